//! Limits of the HTTP API: limits on connections, requests and documents, and request rates.

use std::time::Duration;

use clap::Args;

use super::group::defaults;
use super::values::{number, seconds};
use crate::domain::partner::RequestRate;

/// The limits of the HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
#[command(next_help_heading = "HTTP")]
pub struct HttpLimits {
    /// Maximum size of the body of a request, in bytes, from 4096 to 1048576
    #[arg(long, value_name = "BYTES", default_value = "65536", value_parser = number::<usize>(4096..=1_048_576))]
    pub body_bytes_max: usize,
    /// Maximum size of the request line and the headers of a request, in bytes, from 1024 to 65536
    #[arg(long, value_name = "BYTES", default_value = "16384", value_parser = number::<usize>(1024..=65_536))]
    pub header_bytes_max: usize,
    /// Maximum nesting depth of the elements of an XML document, from 4 to 64
    #[arg(long, value_name = "COUNT", default_value = "32", value_parser = number::<usize>(4..=64))]
    pub xml_depth_max: usize,
    /// Maximum number of attributes of an XML element, from 4 to 256
    #[arg(long, value_name = "COUNT", default_value = "32", value_parser = number::<usize>(4..=256))]
    pub xml_attributes_max: usize,
    /// Time in which the request line and the headers of a request must arrive, in seconds, from 1 to 60
    #[arg(long = "head-timeout-s", value_name = "SECONDS", default_value = "10", value_parser = seconds(1..=60))]
    pub head_timeout: Duration,
    /// Time in which the body of a request must arrive, in seconds, from 1 to 300
    #[arg(long = "body-timeout-s", value_name = "SECONDS", default_value = "30", value_parser = seconds(1..=300))]
    pub body_timeout: Duration,
    /// Maximum number of items of a batch, from 1 to 1000000
    #[arg(long, value_name = "COUNT", default_value = "1000000", value_parser = number::<u32>(1..=1_000_000))]
    pub batch_items_max: u32,
    /// Time after which an idle connection is closed, in seconds, from 1 to 3600
    #[arg(long = "keep-alive-s", value_name = "SECONDS", default_value = "75", value_parser = seconds(1..=3600))]
    pub keep_alive: Duration,
    /// Maximum number of concurrent connections, from 16 to 1000000; to make room for a further one, the oldest one without
    /// a valid key is closed, or else the one that has been without a request for the longest time; a connection takes at most
    /// about 64 KiB of memory, and all large answers together 64 MiB
    #[arg(long, value_name = "COUNT", default_value = "4096", value_parser = number::<usize>(16..=1_000_000))]
    pub connections_max: usize,
    /// Maximum number of concurrent connections of one client address (IPv6: one /64), from 1 to 1000000; not of trusted
    /// proxies; by default half of connections-max
    #[arg(long, value_name = "COUNT", value_parser = number::<usize>(1..=1_000_000))]
    pub connections_per_address_max: Option<usize>,
    /// Sustained rate of a partner that has no rate of its own, in requests, or orders on the queue, per second
    /// and process, from 1 to 1000000
    #[arg(long, value_name = "COUNT", default_value = "20000", value_parser = number::<u32>(1..=1_000_000))]
    pub requests_per_second: u32,
    /// Number of requests that such a partner may send at once after a pause, from 1 to 1000000
    #[arg(long, value_name = "COUNT", default_value = "40000", value_parser = number::<u32>(1..=1_000_000))]
    pub requests_burst: u32,
    /// Sustained rate at which one client address may try API keys that this process has not seen before, in
    /// keys per second, from 1 to 1000000
    #[arg(long, value_name = "COUNT", default_value = "50", value_parser = number::<u32>(1..=1_000_000))]
    pub wrong_keys_per_second: u32,
    /// Number of such keys that one client address may try at once after a pause, from 1 to 1000000
    #[arg(long, value_name = "COUNT", default_value = "500", value_parser = number::<u32>(1..=1_000_000))]
    pub wrong_keys_burst: u32,
}

impl HttpLimits {
    /// Returns the maximum number of connections per client address.
    pub fn connections_of_address(&self) -> usize {
        self.connections_per_address_max.unwrap_or_else(|| self.connections_max.div_ceil(2))
    }

    /// Returns the rate per process of a partner without a rate of its own.
    pub const fn rate(&self) -> RequestRate {
        RequestRate { per_second: self.requests_per_second, burst: self.requests_burst }
    }

    /// Returns the rate per process at which one client address may try unknown API keys.
    pub const fn wrong_key_rate(&self) -> RequestRate {
        RequestRate { per_second: self.wrong_keys_per_second, burst: self.wrong_keys_burst }
    }
}

impl Default for HttpLimits {
    fn default() -> Self {
        defaults()
    }
}
