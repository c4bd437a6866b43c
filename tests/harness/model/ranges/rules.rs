//! The rules of the model: those of the bank, or the same with one rule broken.

/// A rule that is broken on purpose, to show that the model detects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// Numbers of a range are issued as soon as the write of the range is sent.
    PublishBeforeConfirmation,
    /// Numbers of a range are issued although the write of the range had no answer.
    UnclearIsDone,
    /// The write compares with the current revision instead of the revision that was read.
    CompareWithNewest,
    /// Ranges are fetched without a limit on the reserve.
    FetchWithoutEnd,
    /// Numbers that are to be returned can still be issued.
    ReturnOpenRange,
    /// A whole range is returned, including the numbers that were taken.
    ReturnWholeRange,
    /// A tail is returned although later ranges were reserved.
    ReturnFromTheMiddle,
    /// Numbers whose return had no answer are returned again.
    ReturnAgain,
    /// A number that was used in a commit is issued again.
    ReuseUsedNumber,
}

impl Mutation {
    /// The property that must be violated.
    pub const fn breaks(self) -> &'static str {
        match self {
            Self::PublishBeforeConfirmation | Self::UnclearIsDone => CONFIRMED,
            Self::FetchWithoutEnd => TWO_LOST,
            Self::CompareWithNewest
            | Self::ReturnOpenRange
            | Self::ReturnWholeRange
            | Self::ReturnFromTheMiddle
            | Self::ReturnAgain
            | Self::ReuseUsedNumber => ISSUED_ONCE,
        }
    }
}

/// Every order number is unique.
pub const ISSUED_ONCE: &str = "an order number is issued at most once";
/// A process issues only numbers that it has reserved.
pub const CONFIRMED: &str = "order numbers are issued only from ranges whose reservation was confirmed";
/// Gaps are bounded.
pub const TWO_LOST: &str = "at most two ranges are lost with a crash, and one with an unclear write";
/// A valid register is never refused.
pub const NEVER_REFUSED: &str = "a process that is not stopping never refuses a valid register";

/// The rules of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The rule that is broken.
    pub mutation: Option<Mutation>,
}

impl Rules {
    /// The rules of the bank.
    pub const CORRECT: Self = Self { mutation: None };

    /// The rules of the bank with one rule broken.
    pub const fn with(mutation: Mutation) -> Self {
        Self { mutation: Some(mutation) }
    }

    /// Whether this rule is broken.
    pub fn breaks(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
