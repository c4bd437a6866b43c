//! The audit trail: administrative actions with actor, target, origin and outcome, as structured log events. The time
//! of an event is the time of its log line. Completed actions are also rows of the store ([`AuditTrail`]). Refused and
//! failed actions are only logged, so that clients without permission cannot fill the store.
//!
//! Events contain only ids and stable codes. Like all log lines, they never contain keys, personal names, references or
//! other client text. They are logged at every configured log level ([`crate::telemetry`]).

mod body;
mod trail;

use std::fmt;

pub use self::body::AuditBodyError;
pub(crate) use self::trail::HEAD;
pub use self::trail::{AuditHead, AuditTrail, StoredAuditRow};
use crate::domain::audit_row::DoneAct;
use crate::domain::ids::Nonce;
use crate::domain::time::Timestamp;

/// The target of the log events, for filtering.
pub const TARGET: &str = "postonce::audit";
/// The actor of commands: a person who can read the configuration and write to the store.
pub const OPERATOR: &str = "operator";
/// The origin of commands.
pub const COMMAND_LINE: &str = "command line";
/// The actor if the caller was not identified.
pub const UNKNOWN: &str = "unknown";

/// Outcome of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The action was carried out, or had already been.
    Done,
    /// The action was refused; the caller must change something. The code is the reason.
    Refused(&'a str),
    /// The action failed, or its outcome is unknown. The code is the reason.
    Failed(&'a str),
}

impl Outcome<'_> {
    /// Returns the stable name of the outcome.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    /// Returns the stable code of the reason; empty for [`Self::Done`].
    pub const fn code(&self) -> &str {
        match self {
            Self::Done => "",
            Self::Refused(code) | Self::Failed(code) => code,
        }
    }
}

/// An audit event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// The partner, [`OPERATOR`] or [`UNKNOWN`].
    pub who: &'a str,
    /// The id of the API key (never the key itself); empty if there was none.
    pub key: &'a str,
    /// The stable code of the action, such as `gate.change`.
    pub act: &'a str,
    /// The ids of the targets, and further details.
    pub on: AuditTarget,
    /// Outcome of the action.
    pub outcome: Outcome<'a>,
    /// The address of the client, or [`COMMAND_LINE`].
    pub from: &'a str,
}

impl<'a> Event<'a> {
    /// Creates the event of a command.
    pub const fn by_operator(act: &'a str, on: AuditTarget, outcome: Outcome<'a>) -> Self {
        Self { who: OPERATOR, key: "", act, on, outcome, from: COMMAND_LINE }
    }

    /// Creates the event of a command that has ended.
    pub fn of_command<T, E>(act: &'a str, on: AuditTarget, ended: &Result<T, E>) -> Self {
        let outcome = if ended.is_ok() { Outcome::Done } else { Outcome::Failed("command_failed") };
        Self::by_operator(act, on, outcome)
    }

    /// Returns the completed act, for its row.
    fn done_at(&self, at: Timestamp, nonce: Nonce) -> DoneAct {
        let Self { who, key, act, on, outcome: _, from } = self;
        let text = |text: &str| text.to_owned();
        let (actor, key_id, act, origin) = (text(who), text(key), text(act), text(from));
        DoneAct { at, actor, key_id, act, target: on.to_string(), origin, nonce }
    }

    /// Writes the event to the log only.
    pub fn log(&self) {
        let Self { who, key, act, on, outcome, from } = self;
        let (on, word, code) = (on.to_string(), outcome.word(), outcome.code());
        let act = *act;
        tracing::info!(
            target: TARGET,
            who, key, act, on, outcome = word, code, from,
            "Audit: {who} {act} {word}"
        );
    }
}

/// The targets of an action: program-defined names such as `account_id`, with ids. Client text may be added only after
/// it was parsed as an id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditTarget(Vec<(String, String)>);

impl AuditTarget {
    /// No target.
    pub const fn nothing() -> Self {
        Self(Vec::new())
    }

    /// One target.
    pub fn one(name: &str, id: impl fmt::Display) -> Self {
        Self::nothing().and(name, id)
    }

    /// Adds a target.
    #[must_use]
    pub fn and(mut self, name: &str, id: impl fmt::Display) -> Self {
        self.0.push((name.to_owned(), id.to_string()));
        self
    }

    /// Adds all targets of `others`.
    #[must_use]
    pub fn with(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }
}

impl fmt::Display for AuditTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, id)) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            let is_word = !id.is_empty() && id.chars().all(|c| c.is_ascii_graphic() && c != '"');
            if is_word { write!(f, "{space}{name}={id}")? } else { write!(f, "{space}{name}={id:?}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_written_as_pairs() {
        assert_eq!(AuditTarget::nothing().to_string(), "");
        let on = AuditTarget::one("user_id", "u-1").and("changed", "status");
        assert_eq!(on.to_string(), "user_id=u-1 changed=status");
        assert_eq!(
            AuditTarget::one("file", "a b\n.db").and("to", "").to_string(),
            r#"file="a b\n.db" to="""#
        );
    }

    #[test]
    fn only_actions_that_were_not_done_have_a_code() {
        assert_eq!((Outcome::Done.word(), Outcome::Done.code()), ("done", ""));
        let refused = Outcome::Refused("scope_missing");
        assert_eq!((refused.word(), refused.code()), ("refused", "scope_missing"));
        let failed = Outcome::Failed("storage_unavailable");
        assert_eq!((failed.word(), failed.code()), ("failed", "storage_unavailable"));
    }
}
