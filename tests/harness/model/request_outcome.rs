//! The ways in which a request to a store can end.

/// How a request to a store ends, and whether its sender knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The request is carried out, and the answer arrives.
    Answered,
    /// The request is carried out; the answer is lost.
    AnswerLost,
    /// The request is lost.
    RequestLost,
    /// The sender receives no answer and continues; the request is carried out at any later time, or never.
    Late,
}

impl RequestOutcome {
    /// The outcomes without an answer.
    pub const UNANSWERED: [Self; 3] = [Self::AnswerLost, Self::RequestLost, Self::Late];

    /// All outcomes that are possible.
    pub const fn all(with_losses: bool) -> &'static [Self] {
        if with_losses {
            &[Self::Answered, Self::AnswerLost, Self::RequestLost, Self::Late]
        } else {
            &[Self::Answered]
        }
    }
}
