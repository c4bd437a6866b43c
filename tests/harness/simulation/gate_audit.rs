//! The part of the auditor for the gate: which processes may post, and when the gate may be released.

use std::collections::BTreeMap;

use postonce_shared::cluster::gate::RELEASE_SKEW_MAX;
use postonce_shared::domain::time::Timestamp;
use serde_json::Value;

use super::scheduler::ProcessId;

/// The state of the gate that the auditor has observed.
#[derive(Debug, Default)]
pub(super) struct GateAudit {
    held: bool,
    epoch: u64,
    /// The time of the scheduled release, in milliseconds since 1970.
    release_at_ms: Option<i64>,
    /// Number of operators that are releasing the gate.
    operators: u32,
    /// Last epoch that an operator may have released.
    operators_epoch: u64,
    /// The last process that started before the gate was held.
    last_started: Option<ProcessId>,
    acknowledged: BTreeMap<ProcessId, u64>,
}

impl GateAudit {
    /// Returns the reason why the process must not receive or post now, if there is one.
    pub(super) fn forbids(&self, process_id: ProcessId) -> Option<String> {
        let acknowledged = self.acknowledged.get(&process_id).is_some_and(|epoch| *epoch >= self.epoch);
        let started_later = self.last_started.is_some_and(|last| process_id > last);
        let reason = if acknowledged { "acknowledged the hold" } else { "started after the hold" };
        (self.held && (acknowledged || started_later))
            .then(|| format!("while the gate is held (epoch {}; it {reason})", self.epoch))
    }

    /// Records the epoch that a process acknowledged.
    pub(super) fn acknowledged(&mut self, process_id: ProcessId, epoch: u64) {
        self.acknowledged.insert(process_id, epoch);
    }

    /// Records the stored value at this time of the store. Returns a finding if a scheduled release was too early.
    pub(super) fn stored(
        &mut self,
        value: &Value,
        at: Timestamp,
        last_started: Option<ProcessId>,
    ) -> Option<String> {
        let (held, epoch) = (value["state"] == "held", value["epoch"].as_u64().unwrap_or(0));
        if epoch == self.epoch {
            return None;
        }
        let by_operator = self.operators > 0 || self.epoch <= self.operators_epoch;
        let early_ms_max = i64::try_from(RELEASE_SKEW_MAX.as_millis()).unwrap_or(i64::MAX);
        let early_ms = self.release_at_ms.map(|due_ms| due_ms.saturating_sub(at.unix_ms()));
        let too_early =
            early_ms.filter(|early_ms| self.held && !held && !by_operator && *early_ms > early_ms_max);
        (self.held, self.epoch, self.last_started) = (held, epoch, last_started);
        self.release_at_ms = value["release_at"].as_i64();
        too_early.map(|ms| format!("the gate was released {ms} ms before its time (epoch {epoch})"))
    }

    /// Records that an operator starts to release the gate, regardless of the schedule.
    pub(super) fn operator_releases(&mut self) {
        self.operators = self.operators.saturating_add(1);
        self.operators_epoch = self.epoch;
    }

    /// Records that an operator has released the gate.
    pub(super) fn operator_released(&mut self) {
        self.operators = self.operators.saturating_sub(1);
        self.operators_epoch = self.epoch;
    }
}
