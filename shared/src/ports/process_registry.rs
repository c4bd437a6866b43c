//! The processes that can be called, each with one row that it renews: those that listen to queues, and those
//! that serve the API.
//!
//! The roster only saves time. A process that it does not name still finds its work by looking at the
//! queues; one that it names in vain is called in vain.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::fault::StoreFault;
use crate::domain::time::Timestamp;

/// How long an entry stands after its time: clocks differ, and a store may be slow.
const GRACE: Duration = Duration::from_secs(30);
/// How long after its time an entry is removed by whoever reads it: its process is long gone.
const REMOVED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Names one process from its start to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(Uuid);

impl ProcessId {
    /// Wraps a UUID.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The id that was written with [`Self::simple`].
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }

    /// Thirty-two lower-case hexadecimal digits.
    pub fn simple(self) -> String {
        self.0.simple().to_string()
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessId({})", self.0)
    }
}

/// What a process does for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind {
    /// It listens to the work queues. It may serve the API as well.
    Worker,
    /// It serves the API only. Programs before this kind was known leave it out.
    Web,
}

impl ProcessKind {
    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Web => "web",
        }
    }

    /// The kind with that code; `None` for one of a newer program.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::Worker, Self::Web].into_iter().find(|kind| kind.code() == code)
    }
}

/// Longest address, in characters.
pub const ADDRESS_CHARS_MAX: usize = 200;

/// Where a process can be called, such as `http://10.0.0.7:40123`.
///
/// Invariant: `http://`, a host name or an IP address, and a port; nothing that needs quoting in
/// JSON, and nothing else that could lead a request astray.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(String);

/// The text is no address of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not http://host:port, such as http://10.0.0.7:8081")]
pub struct InvalidAddress;

impl Address {
    /// Reads `http://host:port`; also without the scheme, and with a slash at the end.
    ///
    /// # Errors
    /// [`InvalidAddress`] for anything else, TLS included: processes of one bank call each other
    /// within its own network, and sign what they say.
    pub fn parse(text: &str) -> Result<Self, InvalidAddress> {
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or(InvalidAddress)?;
        let port: u16 = port.parse().map_err(|_| InvalidAddress)?;
        let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(ipv6) => ipv6.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                !host.is_empty() && host.bytes().all(plain)
            }
        };
        let address = format!("http://{host}:{port}");
        if is_host && port != 0 && address.len() <= ADDRESS_CHARS_MAX {
            return Ok(Self(address));
        }
        Err(InvalidAddress)
    }

    /// The address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One process in the roster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredProcess {
    /// The process.
    pub id: ProcessId,
    /// What it does.
    pub kind: ProcessKind,
    /// Where it can be called.
    pub address: Address,
    /// When it started.
    pub started_at: Timestamp,
    /// By when it announces itself again, if it lives.
    pub next_by: Timestamp,
}

impl RegisteredProcess {
    /// Whether the process missed its time, and is taken for dead.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        now > self.next_by.after(GRACE)
    }

    /// Whether the process was dead for so long that its row only costs.
    pub fn is_forgotten(&self, now: Timestamp) -> bool {
        now > self.next_by.after(REMOVED_AFTER)
    }
}

/// The processes of one store.
#[async_trait]
pub trait ProcessRegistry: Send + Sync {
    /// Writes the entry of a process, whatever stood there before. One operation of the store.
    async fn announce(&self, entry: &RegisteredProcess) -> Result<(), StoreFault>;

    /// Removes the entry of a process. That there is none is fine.
    async fn withdraw(&self, id: ProcessId) -> Result<(), StoreFault>;

    /// All entries, stale ones included, by id. One operation of the store for as many as any bank
    /// has. Entries of a kind that this program does not know are left out.
    async fn list(&self) -> Result<Vec<RegisteredProcess>, StoreFault>;
}

/// The processes that are taken for alive. What was forgotten long ago is removed on the way.
///
/// # Errors
/// [`StoreFault`] when the roster cannot be read.
pub async fn living(
    roster: &dyn ProcessRegistry,
    now: Timestamp,
) -> Result<Vec<RegisteredProcess>, StoreFault> {
    let mut entries = roster.list().await?;
    for entry in entries.iter().filter(|entry| entry.is_forgotten(now)) {
        if let Err(fault) = roster.withdraw(entry.id).await {
            // The next reader tries again.
            tracing::debug!("An old entry of the roster stays: {}", super::fault::chain(&fault));
        }
    }
    entries.retain(|entry| !entry.is_stale(now));
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_one_form() {
        let check = |text: &str, expected: Option<&str>| {
            let parsed = Address::parse(text).ok();
            assert_eq!(parsed.as_ref().map(Address::as_str), expected, "{text}");
        };
        check("http://10.0.0.7:8081", Some("http://10.0.0.7:8081"));
        check("worker-1.bank_net:80/", Some("http://worker-1.bank_net:80"));
        check("http://[::1]:9", Some("http://[::1]:9"));
        for wrong in [
            "",
            "http://",
            "http://host",
            "http://host:0",
            "http://host:99999",
            "https://host:1",
            "ftp://host:1",
            "http://user@host:1",
            "http://host:1/path",
            "http://host:1?query",
            "http://ho st:1",
            "http://\"host:1",
            "http://[::g]:1",
            "http://::1:1",
            ":1",
        ] {
            check(wrong, None);
        }
        check(&format!("{}:1", "h".repeat(ADDRESS_CHARS_MAX)), None);
    }

    #[test]
    fn an_entry_stands_until_its_time_and_some_grace() {
        let at = |seconds: i64| Timestamp::from_unix_ms(seconds.saturating_mul(1000));
        let entry = RegisteredProcess {
            id: ProcessId::from_uuid(Uuid::from_u128(1)),
            kind: ProcessKind::Worker,
            address: Address::parse("h:1").unwrap(),
            started_at: at(0),
            next_by: at(600),
        };
        assert!(!entry.is_stale(at(0)) && !entry.is_stale(at(600)) && !entry.is_stale(at(630)));
        assert!(entry.is_stale(at(631)) && !entry.is_forgotten(at(631)));
        assert!(entry.is_forgotten(at(600 + 24 * 3600 + 1)));
    }
}
