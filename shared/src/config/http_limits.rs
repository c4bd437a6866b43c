//! What a client of the HTTP API may ask for: of a connection, before anybody knows who it is; of a
//! document, before anybody knows what it says; and in a second, once its partner is known.

use std::time::Duration;

use super::ConfigError;
use super::scaling::Find;
use crate::domain::partner::RequestRate;

/// Most requests in a second, and at once, that can be asked for.
const RATE_MAX: u64 = 1_000_000;

/// The limits of the HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Most bytes of the body of a request.
    pub body_bytes_max: usize,
    /// Most bytes of the head of a request: its first line and its headers.
    pub header_bytes_max: usize,
    /// Most elements of an XML document that stand within one another.
    pub xml_depth_max: usize,
    /// Most attributes of one of its elements.
    pub xml_attributes_max: usize,
    /// How long the head of a request may take to arrive.
    pub head_patience: Duration,
    /// How long its body may take.
    pub body_patience: Duration,
    /// How long a connection is kept on which nothing is asked.
    pub keep_alive: Duration,
    /// Most connections at the same time; further ones wait until one ends.
    pub connections_max: usize,
    /// How many requests, or orders on the queue, a partner may send that has no rate of its own, to each process.
    pub rate: RequestRate,
    /// How many keys that nobody knows one address may try, of each process.
    pub wrong_key_rate: RequestRate,
}

impl Default for HttpLimits {
    /// As without any configuration.
    fn default() -> Self {
        Self {
            body_bytes_max: 64 * 1024,
            header_bytes_max: 16 * 1024,
            xml_depth_max: 32,
            xml_attributes_max: 32,
            head_patience: Duration::from_secs(10),
            body_patience: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            connections_max: 4096,
            rate: RequestRate { per_second: 20_000, burst: 40_000 },
            wrong_key_rate: RequestRate { per_second: 50, burst: 500 },
        }
    }
}

/// Reads the limits.
pub(super) fn http_limits(find: Find<'_>) -> Result<HttpLimits, ConfigError> {
    let number = |name, least, most| {
        find(name).unwrap_or_else(|| unreachable!("{name} has a default")).number(least, most)
    };
    let seconds = |name, most| number(name, 1, most).map(Duration::from_secs);
    let count =
        |name, least, most| number(name, least, most).map(|it| usize::try_from(it).unwrap_or(usize::MAX));
    let rate = |per_second, burst| {
        let number = |name| number(name, 1, RATE_MAX).map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        Ok(RequestRate { per_second: number(per_second)?, burst: number(burst)? })
    };
    Ok(HttpLimits {
        body_bytes_max: count("body-bytes-max", 4096, 1_048_576)?,
        header_bytes_max: count("header-bytes-max", 1024, 65_536)?,
        xml_depth_max: count("xml-depth-max", 4, 64)?,
        xml_attributes_max: count("xml-attributes-max", 4, 256)?,
        head_patience: seconds("head-timeout-s", 60)?,
        body_patience: seconds("body-timeout-s", 300)?,
        keep_alive: seconds("keep-alive-s", 3600)?,
        connections_max: count("connections-max", 16, 1_000_000)?,
        rate: rate("requests-per-second", "requests-burst")?,
        wrong_key_rate: rate("wrong-keys-per-second", "wrong-keys-burst")?,
    })
}
