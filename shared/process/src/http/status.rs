//! The status that a process reports to other processes.

use std::collections::BTreeMap;
use std::time::Duration;

use postonce_shared::cluster::gate::{GateState, GateValue};
use postonce_shared::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::PeerState;
use crate::activity::{ActivityCounts, Steps};
use crate::build;
use crate::meter;

/// Name of the counter of transactions that the receiving process posted or rejected immediately.
pub const POSTED_IMMEDIATELY: &str = "posted_immediately";

/// Status of a process. Readers ignore unknown members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Id of the process.
    pub id: String,
    /// Start of the process, in milliseconds since 1970.
    pub started_at: i64,
    /// Receivers by queue.
    pub listeners: BTreeMap<String, QueueListeners>,
    /// The rule for the number of receivers; absent in a process that listens to no queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receivers_rule: Option<String>,
    /// Counters since the start, by metric name without prefix.
    pub counters: BTreeMap<String, u64>,
    /// Storage operations since the start.
    pub storage_operations: Vec<OperationCount>,
    /// Version of the program.
    pub version: String,
    /// Abbreviated commit of the program.
    pub commit: String,
    /// The gate as the process applies it; absent before the first read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<AppliedGate>,
    /// Number of open dead letters in the last scrub; absent in processes that do not scrub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters_open: Option<u64>,
    /// Codes of the missing parts, as in `/readyz`.
    pub not_ready: Vec<String>,
    /// Accepted and decided transactions in the last seconds, as requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<ActivitySteps>,
}

/// The query of a status request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StatusQuery {
    /// Requested length of the activity in seconds; at most [`crate::activity::HISTORY_S`] are returned.
    pub activity_s: u16,
}

impl Default for StatusQuery {
    fn default() -> Self {
        Self { activity_s: 60 }
    }
}

/// The gate as a process applies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedGate {
    /// Epoch of the gate.
    pub epoch: u64,
    /// Whether the gate is held.
    pub held: bool,
}

/// Counts per step of [`crate::activity::STEP_S`] seconds, the oldest step first; see [`ActivityCounts`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ActivitySteps {
    /// The end of the last step, in milliseconds since 1970.
    pub until_ms: i64,
    /// Accepted transactions.
    pub accepted: Vec<u64>,
    /// Transactions posted immediately by the process that received them.
    pub immediate: Vec<u64>,
    /// Transactions posted from the queue.
    pub queued: Vec<u64>,
    /// Items of batches that were posted.
    pub batch: Vec<u64>,
    /// Rejected transactions.
    pub rejected: Vec<u64>,
    /// Storage operations that failed.
    pub storage_errors: Vec<u64>,
    /// Requests that were answered with a status of 500 or above.
    pub request_errors: Vec<u64>,
}

impl ActivitySteps {
    fn of(steps: &Steps) -> Self {
        let of = |count: fn(&ActivityCounts) -> u64| steps.counts.iter().map(count).collect();
        Self {
            until_ms: steps.until.unix_ms(),
            accepted: of(|counts| counts.accepted),
            immediate: of(|counts| counts.immediate),
            queued: of(|counts| counts.queued),
            batch: of(|counts| counts.batch),
            rejected: of(|counts| counts.rejected),
            storage_errors: of(|counts| counts.storage_errors),
            request_errors: of(|counts| counts.request_errors),
        }
    }

    /// Returns the steps. Missing counts are zero.
    pub fn steps(&self) -> Steps {
        let at = |counts: &[u64], step: usize| counts.get(step).copied().unwrap_or_default();
        let counts = (0..self.accepted.len()).map(|step| ActivityCounts {
            accepted: at(&self.accepted, step),
            immediate: at(&self.immediate, step),
            queued: at(&self.queued, step),
            batch: at(&self.batch, step),
            rejected: at(&self.rejected, step),
            storage_errors: at(&self.storage_errors, step),
            request_errors: at(&self.request_errors, step),
        });
        Steps { until: Timestamp::from_unix_ms(self.until_ms), counts: counts.collect() }
    }
}

/// The receivers of one queue in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueListeners {
    /// Receivers that are handling messages.
    pub active: u64,
    /// Maximum number of receivers.
    pub max: u64,
    /// Messages that the process has leased.
    pub leased: u64,
    /// Whether the queue is assigned to the process by a lease.
    pub is_assigned: bool,
    /// Messages that were waiting, without those in progress, at the last observation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
    /// Waiting time of the oldest message at that observation, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_age_ms: Option<u64>,
    /// Time of that observation, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<i64>,
}

impl QueueListeners {
    fn of(gauges: &meter::Listeners, is_assigned: bool) -> Self {
        let observed = gauges.observed;
        Self {
            active: gauges.active,
            max: gauges.max,
            leased: gauges.leased,
            is_assigned,
            depth: observed.map(|observed| observed.depth),
            oldest_age_ms: observed
                .map(|observed| u64::try_from(observed.oldest_age.as_millis()).unwrap_or(u64::MAX)),
            observed_at: observed.map(|observed| observed.at.unix_ms()),
        }
    }
}

/// Count of one kind of storage operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationCount {
    /// The service, such as `table`.
    pub service: String,
    /// The operation, such as `insert`.
    pub operation: String,
    /// Kind of price, such as `table_batch`.
    pub price: String,
    /// Operations since the start of the process.
    pub count: u64,
}

impl Status {
    /// Returns the status of this process. Makes no store requests.
    pub fn of(callee: &PeerState, StatusQuery { activity_s }: StatusQuery) -> Self {
        let assigned = callee.meter.assigned();
        let listeners = callee.meter.all_listeners().into_iter().map(|(queue, gauges)| {
            (queue.to_string(), QueueListeners::of(&gauges, assigned.contains(&queue)))
        });
        let counters =
            callee.meter.counters().into_iter().map(|(name, _, counter)| (name.to_owned(), counter.get()));
        let operations = callee.operations.snapshot().into_iter().map(|(operation, count)| OperationCount {
            service: operation.service.code().to_owned(),
            operation: operation.name.to_owned(),
            price: operation.price.code().to_owned(),
            count,
        });
        let (missing, steps) =
            (callee.readiness.missing(), callee.meter.activity.last(Duration::from_secs(activity_s.into())));
        Self {
            id: callee.id.simple(),
            started_at: callee.started_at.unix_ms(),
            listeners: listeners.collect(),
            receivers_rule: callee.meter.receivers_rule().map(str::to_owned),
            counters: counters.chain([(POSTED_IMMEDIATELY.to_owned(), callee.served.immediate())]).collect(),
            storage_operations: operations.collect(),
            version: build::VERSION.to_owned(),
            commit: build::COMMIT.to_owned(),
            gate: callee.process_gate.known().map(AppliedGate::of),
            dead_letters_open: callee.meter.scrubber.open_letters().map(|letters| letters.count),
            not_ready: missing.iter().map(|missing| missing.part.code().to_owned()).collect(),
            activity: steps.as_ref().map(ActivitySteps::of),
        }
    }
}

impl AppliedGate {
    fn of(GateValue { epoch, state }: GateValue) -> Self {
        Self { epoch, held: state != GateState::Released }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_process_of_a_newer_version_is_understood() {
        let newer = r#"{"id": "9f86", "started_at": 5, "listeners": {"work-0": {"active": 1, "max": 4, "leased": 0,
            "is_assigned": false, "of_the_future": 1}}, "counters": {"settled": 2}, "storage_operations": [],
            "version": "9.0.0", "commit": "", "not_ready": [], "of_the_future": 1}"#;
        let status: Status = serde_json::from_str(newer).unwrap();
        assert_eq!((status.version.as_str(), status.gate, status.dead_letters_open), ("9.0.0", None, None));
        assert_eq!((status.not_ready.len(), status.activity), (0, None));
        let receivers = QueueListeners { active: 1, max: 4, ..QueueListeners::default() };
        assert_eq!(status.listeners["work-0"], receivers);
    }

    #[test]
    fn steps_are_the_same_after_the_transfer() {
        let counts =
            |accepted| ActivityCounts { accepted, queued: 7, request_errors: 1, ..ActivityCounts::default() };
        let steps = Steps { until: Timestamp::from_unix_ms(4000), counts: vec![counts(1), counts(2)] };
        let sent = serde_json::to_string(&ActivitySteps::of(&steps)).unwrap();
        assert_eq!(serde_json::from_str::<ActivitySteps>(&sent).unwrap().steps(), steps);
        let of_other_version: ActivitySteps =
            serde_json::from_str(r#"{"until_ms": 4000, "accepted": [1, 2], "more": [5]}"#).unwrap();
        let accepted: Vec<u64> =
            of_other_version.steps().counts.iter().map(|counts| counts.accepted).collect();
        assert_eq!(accepted, [1, 2]);
    }
}
