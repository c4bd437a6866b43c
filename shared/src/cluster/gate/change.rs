//! Who changed the gate, when and why. Stored with the value for operators; processes do not act on it.

use super::{GateState, GateValue};
use crate::domain::time::Timestamp;

/// The author of a change of the gate, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateAct {
    /// The author, such as `partner=ops key=9f86d081884c7d65`.
    pub by: String,
    /// The reason, as one line of text by an operator.
    pub reason: Option<String>,
}

impl GateAct {
    /// An act without a reason.
    pub fn by(author: impl Into<String>) -> Self {
        Self { by: author.into(), reason: None }
    }

    /// The release at the scheduled time, by any process.
    pub fn of_schedule() -> Self {
        Self::by("schedule")
    }

    /// The hold by the first process that starts with `--held`.
    pub fn of_start() -> Self {
        Self::by("start")
    }

    /// The restore of a backup, which raises the epoch.
    pub fn of_restore() -> Self {
        Self::by("restore")
    }
}

/// The gate with its last change. Members are `None` if the gate was never changed or its row was repaired by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRecord {
    /// The value.
    pub value: GateValue,
    /// The time of the change, on the clock of the process that made it.
    pub since: Option<Timestamp>,
    /// The author.
    pub by: Option<String>,
    /// The reason.
    pub reason: Option<String>,
}

impl GateRecord {
    /// The gate that was never changed.
    pub const UNSET: Self = Self {
        value: GateValue { epoch: 0, state: GateState::Released },
        since: None,
        by: None,
        reason: None,
    };

    /// The gate after a change.
    pub fn changed(value: GateValue, now: Timestamp, act: &GateAct) -> Self {
        let GateAct { by, reason } = act.clone();
        Self { value, since: Some(now), by: Some(by), reason }
    }
}
