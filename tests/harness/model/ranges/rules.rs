//! By which rules the model plays: those of the bank, or the same with one of them broken.

/// A rule that is broken on purpose, to show that the model would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// A range can be issued from as soon as its write is sent.
    PublishBeforeConfirmation,
    /// A range can be issued from although its write had no answer.
    UnclearIsDone,
    /// The write compares with the revision of the moment instead of the one that was read.
    CompareWithNewest,
    /// Ranges are fetched without end, whatever is in reserve.
    FetchWithoutEnd,
    /// What is to be given back can still be issued until it is.
    GiveBackOpenRange,
    /// The whole range is given back, with what was taken from it.
    GiveBackWholeRange,
    /// A tail is given back although others have reserved behind it.
    GiveBackFromTheMiddle,
    /// What was given back without an answer is given back again.
    GiveBackAgain,
    /// A number that was in a commit is handed out again.
    ReuseBurntNumber,
}

impl Mutation {
    /// The property that must fall.
    pub const fn breaks(self) -> &'static str {
        match self {
            Self::PublishBeforeConfirmation | Self::UnclearIsDone => CONFIRMED,
            Self::FetchWithoutEnd => TWO_LOST,
            Self::CompareWithNewest
            | Self::GiveBackOpenRange
            | Self::GiveBackWholeRange
            | Self::GiveBackFromTheMiddle
            | Self::GiveBackAgain
            | Self::ReuseBurntNumber => ISSUED_ONCE,
        }
    }
}

/// Unique for ever.
pub const ISSUED_ONCE: &str = "an order number is issued at most once";
/// Only what is surely one's own.
pub const CONFIRMED: &str = "order numbers are issued only from ranges whose reservation was confirmed";
/// Few gaps.
pub const TWO_LOST: &str = "at most two ranges are lost with a crash, and one with an unclear write";
/// No false alarm.
pub const NEVER_REFUSED: &str = "a process that is not ending never takes a sound register for damaged";

/// The rules of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The rule that is broken.
    pub mutation: Option<Mutation>,
}

impl Rules {
    /// Those of the bank.
    pub const SOUND: Self = Self { mutation: None };

    /// Those of the bank with one of them broken.
    pub const fn with(mutation: Mutation) -> Self {
        Self { mutation: Some(mutation) }
    }

    /// Whether that rule is broken.
    pub fn breaks(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
