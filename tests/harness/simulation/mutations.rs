//! Deliberate mistakes, each of them one that somebody could make in good faith. A simulation that
//! does not find them proves nothing.

use postonce_shared::adapters::memory::flaws::Flaw;

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// A commit does not look at the version of the account.
    CommitWithoutVersionGuard,
    /// A commit does not look at the rows of its transactions.
    CommitWithoutRowGuard,
    /// A rejection is written beside whatever the account looks like now.
    RejectionWithoutVersionGuard,
    /// A message is deleted as it is received.
    DeleteBeforeCommit,
    /// A message that was received often is dropped.
    DropAfterReceipts,
    /// A write of the register without a clear answer counts as done.
    RangePublishedBeforeConfirmed,
    /// The register is compared with what stands there at the time of the write.
    RangeComparedAtWrite,
    /// A commit without a clear answer counts as failed, and is decided and written anew.
    UnclearCommitPostedAgain,
    /// A row under the same key counts as the same content.
    FingerprintSkipped,
    /// An insert replaces the row that is there.
    InsertReplaces,
    /// The answer goes out before the log has the row.
    AnswerBeforeLog,
    /// A send counts as done when it was begun.
    AnswerBeforeQueue,
    /// A row that is there counts as enqueued.
    ReplayTrustsTheRow,
    /// A gate that cannot be read counts as released.
    UnreadableGateIsReleased,
    /// An account is read in two steps, between which others commit.
    AccountReadTorn,
    /// A message is believed whatever seal it has.
    SealNotChecked,
    /// The seal does not cover the amounts.
    SealOverPartOfTheItem,
    /// A message without a seal names transactions, and its amounts are believed.
    UnsealedAmountBelieved,
    /// What came without a seal gets one when it is written anew.
    Resealing,
}

impl Mutation {
    /// Every mistake.
    pub const ALL: [Self; 19] = [
        Self::CommitWithoutVersionGuard,
        Self::CommitWithoutRowGuard,
        Self::RejectionWithoutVersionGuard,
        Self::DeleteBeforeCommit,
        Self::DropAfterReceipts,
        Self::RangePublishedBeforeConfirmed,
        Self::RangeComparedAtWrite,
        Self::UnclearCommitPostedAgain,
        Self::FingerprintSkipped,
        Self::InsertReplaces,
        Self::AnswerBeforeLog,
        Self::AnswerBeforeQueue,
        Self::ReplayTrustsTheRow,
        Self::UnreadableGateIsReleased,
        Self::AccountReadTorn,
        Self::SealNotChecked,
        Self::SealOverPartOfTheItem,
        Self::UnsealedAmountBelieved,
        Self::Resealing,
    ];

    /// Its name, for people and for commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CommitWithoutVersionGuard => "commit-without-version-guard",
            Self::CommitWithoutRowGuard => "commit-without-row-guard",
            Self::RejectionWithoutVersionGuard => "rejection-without-version-guard",
            Self::DeleteBeforeCommit => "delete-before-commit",
            Self::DropAfterReceipts => "drop-after-receipts",
            Self::RangePublishedBeforeConfirmed => "range-published-before-confirmed",
            Self::RangeComparedAtWrite => "range-compared-at-write",
            Self::UnclearCommitPostedAgain => "unclear-commit-posted-again",
            Self::FingerprintSkipped => "fingerprint-skipped",
            Self::InsertReplaces => "insert-replaces",
            Self::AnswerBeforeLog => "answer-before-log",
            Self::AnswerBeforeQueue => "answer-before-queue",
            Self::ReplayTrustsTheRow => "replay-trusts-the-row",
            Self::UnreadableGateIsReleased => "unreadable-gate-is-released",
            Self::AccountReadTorn => "account-read-torn",
            Self::SealNotChecked => "seal-not-checked",
            Self::SealOverPartOfTheItem => "seal-over-part-of-the-item",
            Self::UnsealedAmountBelieved => "unsealed-amount-believed",
            Self::Resealing => "resealing",
        }
    }

    /// The mistake of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutation| mutation.name() == name)
    }

    /// What of it the store itself does.
    pub const fn flaw(self) -> Option<Flaw> {
        match self {
            Self::CommitWithoutVersionGuard => Some(Flaw::AccountUnguarded),
            Self::CommitWithoutRowGuard | Self::UnclearCommitPostedAgain => Some(Flaw::RowsUnguarded),
            Self::RejectionWithoutVersionGuard => Some(Flaw::RejectionUnguarded),
            Self::InsertReplaces => Some(Flaw::InsertReplaces),
            Self::DeleteBeforeCommit
            | Self::DropAfterReceipts
            | Self::RangePublishedBeforeConfirmed
            | Self::RangeComparedAtWrite
            | Self::FingerprintSkipped
            | Self::AnswerBeforeLog
            | Self::AnswerBeforeQueue
            | Self::ReplayTrustsTheRow
            | Self::UnreadableGateIsReleased
            | Self::AccountReadTorn
            | Self::SealNotChecked
            | Self::SealOverPartOfTheItem
            | Self::UnsealedAmountBelieved
            | Self::Resealing => None,
        }
    }
}
