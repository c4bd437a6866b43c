//! Tracks when the pings of other processes arrived. While the pings of every registered process arrive, this process
//! knows that it has missed no ring.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ports::process_registry::ProcessId;

/// Time between two pings of a process.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(60);
/// How long a ping counts as evidence that rings of its sender arrive: the interval, and the retries of a ping.
const PING_VALID: Duration = Duration::from_secs(75);
/// Maximum age of the cached registry while all pings arrive, so that processes whose pings never arrived are found.
const READ_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Maximum age of the cached registry while it cannot be read.
const READ_VALID: Duration = Duration::from_secs(30 * 60);

/// The arrival times of pings, by the uptime of this process.
#[derive(Debug, Default)]
pub(super) struct PingTimes {
    /// Arrival of the last ping of each process; `None` for a registered process whose pings never arrived.
    last_pings: BTreeMap<ProcessId, Option<Duration>>,
    /// When the registry was last read.
    read_at: Option<Duration>,
}

impl PingTimes {
    /// Records a ping. Returns whether the process was unknown.
    pub(super) fn record(&mut self, from: ProcessId, now: Duration) -> bool {
        self.last_pings.insert(from, Some(now)).is_none()
    }

    /// Records the registered processes. Unregistered processes are removed once their last ping has expired.
    pub(super) fn update(&mut self, registered: &BTreeSet<ProcessId>, now: Duration) {
        self.read_at = Some(now);
        self.last_pings.retain(|id, last_ping| {
            registered.contains(id) || last_ping.is_some_and(|at| at.saturating_add(PING_VALID) > now)
        });
        for id in registered {
            self.last_pings.entry(*id).or_default();
        }
    }

    /// Returns whether a process still runs, as far as known: its last ping arrived on time. Returns true for every process until
    /// the first ping of any of them.
    pub(super) fn is_running(&self, process: ProcessId, now: Duration) -> bool {
        if self.last_pings.values().all(Option::is_none) {
            return true;
        }
        let last_ping = self.last_pings.get(&process).copied().flatten();
        last_ping.is_some_and(|at| at.saturating_add(PING_VALID) > now)
    }

    /// Returns until when this process knows that it misses no ring, assuming that no more pings arrive. Returns `None`
    /// if the pings of a registered process are missing, or if the registry is unknown.
    pub(super) fn proven_until(&self, now: Duration) -> Option<Duration> {
        let mut until = self.read_at?.saturating_add(READ_VALID);
        for last_ping in self.last_pings.values() {
            until = until.min((*last_ping)?.saturating_add(PING_VALID));
        }
        (until > now).then_some(until)
    }

    /// Returns whether the registry must be read: if it is unknown or old, or if the last ping of a process has expired
    /// since the last read, because the process may have ended.
    pub(super) fn needs_read(&self, now: Duration) -> bool {
        let Some(read_at) = self.read_at else { return true };
        let deadlines = self.last_pings.values().flatten().map(|at| at.saturating_add(PING_VALID));
        let mut missed = deadlines.filter(|deadline| read_at < *deadline && *deadline <= now);
        now.saturating_sub(read_at) >= READ_INTERVAL || missed.next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn id(number: u128) -> ProcessId {
        ProcessId::from_uuid(Uuid::from_u128(number))
    }

    fn registered(numbers: &[u128]) -> BTreeSet<ProcessId> {
        numbers.iter().copied().map(id).collect()
    }

    #[test]
    fn all_registered_processes_must_ping() {
        let mut times = PingTimes::default();
        assert!(times.record(id(1), seconds(0)));
        assert_eq!(times.proven_until(seconds(0)), None, "the registry is unknown");
        assert!(times.needs_read(seconds(0)));

        times.update(&registered(&[1, 2]), seconds(1));
        assert_eq!(times.proven_until(seconds(1)), None, "process 2 has not pinged");
        assert!(!times.needs_read(seconds(1)));
        assert!(!times.record(id(2), seconds(10)));
        assert_eq!(times.proven_until(seconds(10)), Some(seconds(75)));
        assert!(!times.record(id(1), seconds(60)));
        assert_eq!(times.proven_until(seconds(60)), Some(seconds(85)));
        assert_eq!(times.proven_until(seconds(85)), None, "process 2 missed its ping");
        assert!(!times.record(id(2), seconds(90)));
        assert_eq!(times.proven_until(seconds(90)), Some(seconds(135)));
    }

    #[test]
    fn the_registry_is_read_once_for_each_missed_ping_and_rarely_otherwise() {
        let mut times = PingTimes::default();
        times.update(&registered(&[1]), seconds(0));
        assert!(!times.needs_read(seconds(899)), "a process that never pinged causes no reads");
        assert!(times.needs_read(seconds(900)));
        times.update(&registered(&[1]), seconds(900));
        times.record(id(1), seconds(1000));
        assert!(!times.needs_read(seconds(1074)));
        assert!(times.needs_read(seconds(1075)));
        times.update(&registered(&[1]), seconds(1075));
        assert!(!times.needs_read(seconds(1075)), "it is still registered");
        assert_eq!(times.proven_until(seconds(1075)), None);
    }

    #[test]
    fn a_process_runs_until_its_ping_is_missed() {
        let mut times = PingTimes::default();
        times.update(&registered(&[1, 2]), seconds(0));
        let running =
            |times: &PingTimes, now| [1, 2].map(|number| times.is_running(id(number), seconds(now)));
        assert_eq!(running(&times, 500), [true, true], "pings have not begun");
        times.record(id(1), seconds(500));
        assert_eq!(running(&times, 574), [true, false]);
        assert_eq!(running(&times, 575), [false, false], "it is still registered");
    }

    #[test]
    fn a_process_that_ended_is_forgotten() {
        let mut times = PingTimes::default();
        times.update(&registered(&[1, 2, 3]), seconds(0));
        times.record(id(1), seconds(0));
        times.record(id(2), seconds(50));
        times.update(&registered(&[]), seconds(80));
        assert_eq!(times.proven_until(seconds(80)), Some(seconds(125)), "process 2 still pings");
        times.update(&registered(&[]), seconds(130));
        assert_eq!(times.proven_until(seconds(130)), Some(seconds(1930)), "no other process is left");
        assert_eq!(times.proven_until(seconds(1930)), None, "the registry cannot be read");
    }
}
