//! What a client of the HTTP API may ask of a connection, before anybody knows who it is.

use std::time::Duration;

use super::ConfigError;
use super::scaling::Find;

/// The limits of the HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Most bytes of the body of a request.
    pub body_bytes_max: usize,
    /// How long the head of a request may take to arrive.
    pub head_patience: Duration,
    /// How long its body may take.
    pub body_patience: Duration,
    /// How long a connection is kept on which nothing is asked.
    pub keep_alive: Duration,
    /// Most connections at the same time; further ones wait until one ends.
    pub connections_max: usize,
}

impl Default for HttpLimits {
    /// As without any configuration.
    fn default() -> Self {
        Self {
            body_bytes_max: 64 * 1024,
            head_patience: Duration::from_secs(10),
            body_patience: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            connections_max: 4096,
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
    Ok(HttpLimits {
        body_bytes_max: count("body-bytes-max", 4096, 1_048_576)?,
        head_patience: seconds("head-timeout-s", 60)?,
        body_patience: seconds("body-timeout-s", 300)?,
        keep_alive: seconds("keep-alive-s", 3600)?,
        connections_max: count("connections-max", 16, 1_000_000)?,
    })
}
