//! The author, the time and the reason of a change of the gate. They are stored beside its value, for operators; no process acts
//! on them.

use std::fmt;

use super::{GateState, GateValue};
use crate::domain::time::Timestamp;

/// Maximum length of a reason, in characters.
pub const REASON_CHARS_MAX: usize = 200;

/// The reason for a change of the gate: one line of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateReason(String);

/// The text is not acceptable as a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to {REASON_CHARS_MAX} characters in one line, without control characters")]
pub struct InvalidReason;

impl GateReason {
    /// Takes a text of 1 to [`REASON_CHARS_MAX`] characters, none of which is a control character.
    ///
    /// # Errors
    /// [`InvalidReason`]
    pub fn parse(text: &str) -> Result<Self, InvalidReason> {
        let is_sound =
            (1..=REASON_CHARS_MAX).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        if is_sound { Ok(Self(text.to_owned())) } else { Err(InvalidReason) }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The author of a change of the gate, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateAct {
    /// The author, such as `partner=ops key=9f86d081884c7d65`.
    pub by: String,
    /// The reason, as text of an operator.
    pub reason: Option<GateReason>,
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

/// The gate with its last change. What is not known is `None`: the gate was never changed, or its row was repaired by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRecord {
    /// The value.
    pub value: GateValue,
    /// The time of the change, by the clock of the process that made it.
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
        Self { value, since: Some(now), by: Some(by), reason: reason.map(|reason| reason.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_text() {
        let longest = "ä".repeat(REASON_CHARS_MAX);
        for sound in ["nightly close", &*longest, "a"] {
            assert_eq!(GateReason::parse(sound).unwrap().as_str(), sound);
        }
        let too_long = "x".repeat(REASON_CHARS_MAX + 1);
        for wrong in ["", "\t", "a\nb", "a\u{0}b", "a\u{1b}[31m", &*too_long] {
            let refused = GateReason::parse(wrong).unwrap_err().to_string();
            assert!(refused.contains("1 to 200 characters"), "{wrong:?}: {refused}");
        }
    }
}
