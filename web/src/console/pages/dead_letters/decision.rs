//! Decision about dead letters: its request to the API, and the description of its consequence.

use actix_web::http::Method;
use maud::{Markup, html};

use super::API;
use crate::console::addresses::encoded;
use crate::console::html::components::Tone;
use crate::console::html::format::counted;
use crate::console::html::forms::Confirmation;

/// Code of the problem if the dead letter had been decided before.
pub const RESOLVED: &str = "dead_letter_resolved";

/// Decision of an operator about a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Enqueue the work again.
    Replay,
    /// Reject the work.
    Discard,
}

impl Decision {
    /// All decisions, in the order of their buttons.
    pub const ALL: [Self; 2] = [Self::Replay, Self::Discard];

    /// Returns the value in forms and queries.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Discard => "discard",
        }
    }

    /// Parses the value in forms and queries.
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.code() == code)
    }

    /// Returns the method of the API request.
    pub const fn method(self) -> Method {
        match self {
            Self::Replay => Method::POST,
            Self::Discard => Method::DELETE,
        }
    }

    /// Returns the path of the API request for a dead letter.
    pub fn path(self, id: &str) -> String {
        match self {
            Self::Replay => format!("{API}/{}/replay", encoded(id)),
            Self::Discard => format!("{API}/{}", encoded(id)),
        }
    }

    /// Returns the tone of the button.
    pub const fn tone(self) -> Tone {
        match self {
            Self::Replay => Tone::Notice,
            Self::Discard => Tone::Bad,
        }
    }

    /// Returns the verb on the button.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Replay => "Replay",
            Self::Discard => "Discard",
        }
    }

    /// Returns the past participle for results.
    pub const fn participle(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::Discard => "discarded",
        }
    }

    /// Returns what confirms the decision about all dead letters with a reason. A discard must be typed.
    pub const fn confirmation_of_all(self) -> Confirmation<'static> {
        match self {
            Self::Replay => {
                Confirmation::Ticked("The cause is removed, or I want to see whether it still exists")
            }
            Self::Discard => Confirmation::Typed("discard"),
        }
    }

    /// Returns the title of the page with the result.
    pub const fn title_of_all(self) -> &'static str {
        match self {
            Self::Replay => "Replay of dead letters",
            Self::Discard => "Discard of dead letters",
        }
    }

    /// Describes the effect on a number of transactions. `at_least` precedes the number; it is empty if all were counted.
    pub fn consequence(self, at_least: &str, transactions: u64) -> Markup {
        let count = format!("{at_least}{}", counted(transactions, "transaction", "transactions"));
        html! {
            @match self {
                Self::Replay => p {
                    strong { (count) } ": those that are not final are enqueued again, and posted or rejected exactly once. Those \
                    that are final already do not change. If the cause still exists, they become dead letters again."
                },
                Self::Discard => p {
                    strong { (count) } ": those that are not final are rejected with the reason " code { "discarded" }
                    "; the partners see that. " strong { "It cannot be undone." } " Those that are final already do not change."
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_requests_of_the_api() {
        let check = |decision: Decision, method, path: &str| {
            assert_eq!((decision.method(), decision.path("a b")), (method, path.to_owned()));
            assert_eq!(Decision::of_code(decision.code()), Some(decision));
        };
        check(Decision::Replay, Method::POST, "/v1/admin/dead-letters/a%20b/replay");
        check(Decision::Discard, Method::DELETE, "/v1/admin/dead-letters/a%20b");
        assert_eq!(Decision::of_code("forget"), None);
    }

    #[test]
    fn a_consequence_has_a_number() {
        let words = |decision: Decision| decision.consequence("", 1).into_string();
        assert!(words(Decision::Replay).contains("<strong>1 transaction</strong>"));
        assert!(words(Decision::Discard).contains("<code>discarded</code>; the partners see that."));
    }
}
