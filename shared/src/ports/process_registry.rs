//! The registry of processes that can be called, because they listen to queues or serve the API. Each process has one row,
//! which it renews.
//!
//! Gate changes are sent to the processes in the registry, so a process without a valid entry posts nothing
//! ([`GatePermits`](crate::cluster::gate::permits::GatePermits)). For other calls the registry is only an optimization:
//! work is also found by polling the queues, and a call to a process that no longer runs has no effect. The entries also
//! show which processes crashed during an attempt to process a message alone
//! ([`Attempts`](crate::cluster::attempts::Attempts)). A process without a valid entry starts no such attempt.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::fault::StoreFault;
use crate::domain::time::Timestamp;
use crate::text::whole_number;

/// Validity of an entry after its renewal. One renewal may fail.
pub const VALID_FOR: Duration = Duration::from_secs(35 * 60);
/// How long an entry stays valid after its due time, because clocks differ and a store may be slow.
const GRACE: Duration = Duration::from_secs(30);
/// Time after the due time at which any reader removes an entry. Until then it proves that the process crashed during an
/// attempt, so that crashes also add up if the only worker of a bank crashes every few days.
const REMOVED_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The level of this program. A program that can read a new kind of row or message has the next level. It writes that kind
/// only if [`every_process_knows`] its level, because older programs cannot continue with rows that they cannot read.
pub const LEVEL: u32 = 1;
/// Time after the due time in which a process may still run and post, although it cannot renew its entry.
const MAY_RUN_FOR: Duration = Duration::from_secs(24 * 3600);

/// Identifies one run of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(Uuid);

impl ProcessId {
    /// Wraps a UUID.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// Returns the UUID.
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }

    /// Parses the output of [`Self::simple`].
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }

    /// Returns the id as 32 lower-case hexadecimal digits.
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

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind {
    /// Listens to the work queues, and may serve the API as well.
    Worker,
    /// Serves the API only.
    Web,
}

impl ProcessKind {
    /// Returns the stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Web => "web",
        }
    }

    /// Returns the kind with this code; `None` for a kind of a newer version.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::Worker, Self::Web].into_iter().find(|kind| kind.code() == code)
    }
}

/// Maximum length of an address, in characters.
pub const ADDRESS_CHARS_MAX: usize = 200;

/// The address of a process, such as `http://10.0.0.7:40123`.
///
/// Invariant: `http://`, a host name or IP address, and a port. It contains no character that needs quoting in JSON, and
/// nothing that could redirect a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(String);

/// Error: the text is not a valid address of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not http://host:port, such as http://10.0.0.7:8081")]
pub struct AddressError;

impl Address {
    /// Parses `http://host:port`; the scheme is optional, and a trailing slash is allowed.
    ///
    /// # Errors
    /// [`AddressError`] for anything else, including TLS: the processes of one bank call each other
    /// within their own network and sign their requests.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or(AddressError)?;
        let port: u16 = whole_number(port).ok_or(AddressError)?;
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
        Err(AddressError)
    }

    /// Returns the address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The entry of one process in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredProcess {
    /// The process.
    pub id: ProcessId,
    /// The role of the process.
    pub kind: ProcessKind,
    /// The address at which the process can be called.
    pub address: Address,
    /// When the process started.
    pub started_at: Timestamp,
    /// The time by which a live process renews its entry.
    pub next_by: Timestamp,
    /// How many attempts to process a message alone the process survived although the message may still record them.
    pub attempts_survived: u64,
    /// The level of the program; see [`LEVEL`].
    pub level: u32,
}

impl RegisteredProcess {
    /// Returns when the entry was last written, assuming that the program uses the same [`VALID_FOR`].
    pub fn written_at(&self) -> Timestamp {
        self.next_by.before(VALID_FOR)
    }

    /// Returns whether the renewal is overdue, so that the process counts as dead.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        now > self.next_by.after(GRACE)
    }

    /// Returns whether the entry has been stale for so long that it can be removed.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now > self.next_by.after(REMOVED_AFTER)
    }
}

/// The registered processes of one store.
#[async_trait]
pub trait ProcessRegistry: Send + Sync {
    /// Writes the entry of a process, replacing any existing one. Takes one store operation.
    async fn announce(&self, entry: &RegisteredProcess) -> Result<(), StoreFault>;

    /// Removes the entry of a process. Succeeds if there is none.
    async fn withdraw(&self, id: ProcessId) -> Result<(), StoreFault>;

    /// Returns all entries in id order, including stale ones. Takes one store operation for any realistic number of
    /// processes. Entries of unknown kinds are skipped.
    async fn list(&self) -> Result<Vec<RegisteredProcess>, StoreFault>;
}

/// Returns the processes that count as alive. Removes expired entries.
///
/// # Errors
/// [`StoreFault`] when the registry cannot be read.
pub async fn live_processes(
    registry: &dyn ProcessRegistry,
    now: Timestamp,
) -> Result<Vec<RegisteredProcess>, StoreFault> {
    let mut entries = registry.list().await?;
    for entry in entries.iter().filter(|entry| entry.is_expired(now)) {
        if let Err(fault) = registry.withdraw(entry.id).await {
            // The next reader tries again.
            tracing::debug!("Expired registry entry not removed: {}", super::fault::chain(&fault));
        }
    }
    entries.retain(|entry| !entry.is_stale(now));
    Ok(entries)
}

/// Returns whether every process that may still run has at least this level. The calling process must have written its own
/// entry.
///
/// # Errors
/// [`StoreFault`] when the registry cannot be read.
pub async fn every_process_knows(
    registry: &dyn ProcessRegistry,
    level: u32,
    now: Timestamp,
) -> Result<bool, StoreFault> {
    let entries = registry.list().await?;
    Ok(entries.iter().all(|entry| entry.level >= level || now > entry.next_by.after(MAY_RUN_FOR)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::memory::world::TestWorld;
    use crate::ports::world::World;

    #[test]
    fn addresses_have_one_normal_form() {
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
            "http://host:+80",
            "http://host:080",
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
    fn an_entry_is_valid_until_its_due_time_and_a_grace_period() {
        let at = |seconds: i64| Timestamp::from_unix_ms(seconds.saturating_mul(1000));
        let entry = RegisteredProcess {
            id: ProcessId::from_uuid(Uuid::from_u128(1)),
            kind: ProcessKind::Worker,
            address: Address::parse("h:1").unwrap(),
            started_at: at(0),
            next_by: at(600),
            attempts_survived: 0,
            level: LEVEL,
        };
        assert!(!entry.is_stale(at(0)) && !entry.is_stale(at(600)) && !entry.is_stale(at(630)));
        assert!(entry.is_stale(at(631)) && !entry.is_expired(at(631)));
        assert!(
            !entry.is_expired(at(600 + 29 * 24 * 3600)) && entry.is_expired(at(600 + 30 * 24 * 3600 + 1))
        );
    }

    #[tokio::test]
    async fn a_level_is_known_when_no_process_of_a_lower_one_may_still_run() {
        let test_world = std::sync::Arc::new(TestWorld::new(1));
        let registry = MemoryStore::new(test_world.clone()).process_registry;
        let announce = async |id: u128, level: u32| {
            let now = test_world.now();
            let entry = RegisteredProcess {
                id: ProcessId::from_uuid(Uuid::from_u128(id)),
                kind: ProcessKind::Worker,
                address: Address::parse("h:1").unwrap(),
                started_at: now,
                next_by: now,
                attempts_survived: 0,
                level,
            };
            registry.announce(&entry).await.unwrap();
        };
        let knows = async |level| every_process_knows(&*registry, level, test_world.now()).await.unwrap();
        announce(1, 7).await;
        announce(2, 6).await;
        assert!(knows(6).await && !knows(7).await, "process 2 runs");
        test_world.advance(MAY_RUN_FOR);
        announce(1, 7).await;
        assert!(!knows(7).await, "it may run without its entry");
        test_world.advance(Duration::from_secs(1));
        assert!(knows(7).await && !knows(8).await);
        announce(2, 6).await;
        assert!(!knows(7).await);
        registry.withdraw(ProcessId::from_uuid(Uuid::from_u128(2))).await.unwrap();
        assert!(knows(7).await, "it has ended");
    }
}
