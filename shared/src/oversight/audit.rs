//! The audit trail: who did what, on what, from where, and what came of it, as structured events in the
//! log. The time is that of the log line.
//!
//! It names ids only. Keys, names of people, references and whatever else a client wrote never stand in
//! it, as they never stand in any other log line: what is refused is told by its stable code. Whatever
//! level the log has, these events are in it ([`crate::telemetry`]).

use std::fmt;

/// The target of the events, for whoever filters the log.
pub const TARGET: &str = "postonce::audit";
/// Who acts on the command line: somebody who may read the configuration and write to the store.
pub const OPERATOR: &str = "operator";
/// Where commands come from.
pub const COMMAND_LINE: &str = "command line";
/// Who called, where that could not be found out.
pub const UNKNOWN: &str = "unknown";

/// What came of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It was carried out, or everything was as wished before.
    Done,
    /// It was not carried out, for the reason with that code: the caller's doing.
    Refused(&'a str),
    /// It was not carried out, or nobody knows: our doing.
    Failed(&'a str),
}

impl Outcome<'_> {
    /// The stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    /// Why, as a stable code; empty when it was done.
    pub const fn code(&self) -> &str {
        match self {
            Self::Done => "",
            Self::Refused(code) | Self::Failed(code) => code,
        }
    }
}

/// One event of the trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// The partner, [`OPERATOR`] or [`UNKNOWN`].
    pub who: &'a str,
    /// The id of the API key that was used, never the key; empty where there was none.
    pub key: &'a str,
    /// The stable code of what was wanted, such as `gate.change`.
    pub act: &'a str,
    /// The ids of what it was wanted on, and what else there is to say.
    pub on: AuditTarget,
    /// What came of it.
    pub outcome: Outcome<'a>,
    /// The address that the connection came from, or [`COMMAND_LINE`].
    pub from: &'a str,
}

impl<'a> Event<'a> {
    /// What somebody did on the command line.
    pub const fn by_operator(act: &'a str, on: AuditTarget, outcome: Outcome<'a>) -> Self {
        Self { who: OPERATOR, key: "", act, on, outcome, from: COMMAND_LINE }
    }

    /// Records what somebody did on the command line, and passes on what came of it.
    ///
    /// # Errors
    /// Those of the act.
    pub fn operated<T, E>(act: &'a str, on: AuditTarget, ended: Result<T, E>) -> Result<T, E> {
        let outcome = if ended.is_ok() { Outcome::Done } else { Outcome::Failed("command_failed") };
        Self::by_operator(act, on, outcome).record();
        ended
    }

    /// Writes it into the log.
    pub fn record(&self) {
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

/// What an act was wanted on: names of the bank's own, such as `account_id`, with ids. Nothing that a
/// client wrote may be put in before it turned out to be an id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditTarget(Vec<(String, String)>);

impl AuditTarget {
    /// Nothing in particular.
    pub const fn nothing() -> Self {
        Self(Vec::new())
    }

    /// One thing.
    pub fn one(name: &str, id: impl fmt::Display) -> Self {
        Self::nothing().and(name, id)
    }

    /// And another one.
    #[must_use]
    pub fn and(mut self, name: &str, id: impl fmt::Display) -> Self {
        self.0.push((name.to_owned(), id.to_string()));
        self
    }

    /// And all of those.
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
    fn what_an_act_was_on_is_told_in_pairs() {
        assert_eq!(AuditTarget::nothing().to_string(), "");
        let on = AuditTarget::one("user_id", "u-1").and("changed", "status");
        assert_eq!(on.to_string(), "user_id=u-1 changed=status");
        assert_eq!(
            AuditTarget::one("file", "a b\n.db").and("to", "").to_string(),
            r#"file="a b\n.db" to="""#
        );
    }

    #[test]
    fn only_what_was_not_done_has_a_code() {
        assert_eq!((Outcome::Done.word(), Outcome::Done.code()), ("done", ""));
        let refused = Outcome::Refused("scope_missing");
        assert_eq!((refused.word(), refused.code()), ("refused", "scope_missing"));
        let failed = Outcome::Failed("storage_unavailable");
        assert_eq!((failed.word(), failed.code()), ("failed", "storage_unavailable"));
    }
}
