//! What becomes of a request to a store.

/// What becomes of a request, as far as its sender can tell, and in truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out, and its answer arrives.
    Answered,
    /// It is carried out; the answer gets lost.
    AnswerLost,
    /// It gets lost.
    NeverArrives,
    /// The sender hears nothing and goes on; it is carried out at any later time, or never.
    Late,
}

impl Fate {
    /// Those without an answer.
    pub const UNANSWERED: [Self; 3] = [Self::AnswerLost, Self::NeverArrives, Self::Late];

    /// All that are possible.
    pub const fn all(with_losses: bool) -> &'static [Self] {
        if with_losses {
            &[Self::Answered, Self::AnswerLost, Self::NeverArrives, Self::Late]
        } else {
            &[Self::Answered]
        }
    }
}
