//! Deliberate mistakes in the code of the bank, each of which a developer could make. A simulation that does not find them
//! proves nothing.

use postonce_shared::adapters::memory::flaws::Flaw;

use super::run::WorldStore;

/// A deliberate mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// A commit does not check the version of the account.
    CommitWithoutVersionGuard,
    /// A commit does not check the rows of its transactions.
    CommitWithoutRowGuard,
    /// A rejection is written without a check of the version of the account.
    RejectionWithoutVersionGuard,
    /// A message is deleted when it is received.
    DeleteBeforeCommit,
    /// A message is dropped after a number of receipts.
    DropAfterReceipts,
    /// A write of the register without a clear response counts as written.
    RangePublishedBeforeConfirmed,
    /// A write of the register is compared with the revision at the time of the write.
    RangeComparedAtWrite,
    /// A commit without a clear response counts as failed, and is decided and written again.
    UnclearCommitPostedAgain,
    /// A row under the same key counts as a row with the same content.
    FingerprintSkipped,
    /// An insert replaces an existing row.
    InsertReplaces,
    /// A request is acknowledged before the log has the row.
    AnswerBeforeLog,
    /// A send without a clear response counts as sent.
    AnswerBeforeQueue,
    /// An existing row counts as enqueued.
    ReplayTrustsTheRow,
    /// A gate that cannot be read counts as released.
    UnreadableGateIsReleased,
    /// An account is read in two steps, between which other processes may commit.
    AccountReadTorn,
    /// A message is trusted without a check of its seal.
    SealNotChecked,
    /// The seal does not cover the amounts of the items.
    SealOverPartOfTheItem,
    /// The amounts in a message without a seal are trusted.
    UnsealedAmountTrusted,
    /// A message that arrived without a seal gets one when it is written again.
    Resealing,
    /// A commit that inserts a transaction does not check that its key is free.
    KeyNotGuarded,
    /// A commit that inserts a transaction does not check the version of the account.
    InsertionWithoutVersionGuard,
    /// A process posts immediately while the gate is held.
    PostedAtHeldGate,
    /// A process does not remember the work that it put on the queue.
    OwnOpenWorkForgotten,
    /// A request is rejected immediately by a cached balance, without a check of the version of the account.
    RejectionFromOldCache,
    /// A request gets the response "posted" before its commit is written.
    AnswerBeforeCommit,
    /// A row under the key of a commit counts as written by this commit.
    TakenCountsAsPosted,
    /// A commit does not require that it comes after the accepted transactions of its account.
    OrderNotRequired,
    /// The process assumes that the ledger checks the order of commits.
    OrderCheckAssumed,
    /// The outcome of a chunk is added to the totals each time it is reported.
    ChunkCountedTwice,
    /// A commit of a chunk does not check that the keys of its items are free.
    ChunkKeysNotGuarded,
    /// The outcome of a chunk is the decision of its worker instead of the outcome in its rows.
    OutcomeBelieved,
    /// An initiator posts its chunks although its manifest is not the one of the record.
    ChunkOfNoManifest,
    /// A batch is completed before all chunks are counted.
    CompletedBeforeTheLastChunk,
    /// The results of a batch are not in the order of the document.
    ResultsOutOfOrder,
    /// A claim whose payload does not exist counts as settled.
    MissingPayloadSettled,
    /// A process that survived an attempt does not record that in its registry entry, and counts as ended.
    SurvivorCountsAsEnded,
    /// A process performs a scheduled release of the gate by its own clock, even if that is wrong.
    WrongClockReleases,
    /// A commit omits one of its rejections from its page.
    RejectionLeftOut,
    /// The page of a change of terms has other terms.
    TermsLeftOut,
    /// The adapter for Azure treats every row that it reads back as its own, without comparing the nonce.
    ReadBackNonceNotCompared,
    /// The adapter for Azure assumes that a commit that it does not read back will never be written.
    AbsenceProvesFailure,
    /// The adapter for Azure assumes that operations missing in the response to a batch were written.
    MissingPartsCountAsWritten,
    /// The adapter for Azure treats each page of a scan as the last one.
    PageCountsAsLast,
}

impl Mutation {
    /// All mistakes.
    pub const ALL: [Self; 43] = [
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
        Self::UnsealedAmountTrusted,
        Self::Resealing,
        Self::KeyNotGuarded,
        Self::InsertionWithoutVersionGuard,
        Self::PostedAtHeldGate,
        Self::OwnOpenWorkForgotten,
        Self::RejectionFromOldCache,
        Self::AnswerBeforeCommit,
        Self::TakenCountsAsPosted,
        Self::OrderNotRequired,
        Self::OrderCheckAssumed,
        Self::ChunkCountedTwice,
        Self::ChunkKeysNotGuarded,
        Self::OutcomeBelieved,
        Self::ChunkOfNoManifest,
        Self::CompletedBeforeTheLastChunk,
        Self::ResultsOutOfOrder,
        Self::MissingPayloadSettled,
        Self::SurvivorCountsAsEnded,
        Self::WrongClockReleases,
        Self::RejectionLeftOut,
        Self::TermsLeftOut,
        Self::ReadBackNonceNotCompared,
        Self::AbsenceProvesFailure,
        Self::MissingPartsCountAsWritten,
        Self::PageCountsAsLast,
    ];

    /// Returns the name in output and on the command line.
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
            Self::UnsealedAmountTrusted => "unsealed-amount-trusted",
            Self::Resealing => "resealing",
            Self::KeyNotGuarded => "key-not-guarded",
            Self::InsertionWithoutVersionGuard => "insertion-without-version-guard",
            Self::PostedAtHeldGate => "posted-at-held-gate",
            Self::OwnOpenWorkForgotten => "own-open-work-forgotten",
            Self::RejectionFromOldCache => "rejection-from-old-cache",
            Self::AnswerBeforeCommit => "answer-before-commit",
            Self::TakenCountsAsPosted => "taken-counts-as-posted",
            Self::OrderNotRequired => "order-not-required",
            Self::OrderCheckAssumed => "order-check-assumed",
            Self::ChunkCountedTwice => "chunk-counted-twice",
            Self::ChunkKeysNotGuarded => "chunk-keys-not-guarded",
            Self::OutcomeBelieved => "outcome-believed",
            Self::ChunkOfNoManifest => "chunk-of-no-manifest",
            Self::CompletedBeforeTheLastChunk => "completed-before-the-last-chunk",
            Self::ResultsOutOfOrder => "results-out-of-order",
            Self::MissingPayloadSettled => "missing-payload-settled",
            Self::SurvivorCountsAsEnded => "survivor-counts-as-ended",
            Self::WrongClockReleases => "wrong-clock-releases",
            Self::RejectionLeftOut => "rejection-left-out",
            Self::TermsLeftOut => "terms-left-out",
            Self::ReadBackNonceNotCompared => "read-back-nonce-not-compared",
            Self::AbsenceProvesFailure => "absence-proves-failure",
            Self::MissingPartsCountAsWritten => "missing-parts-count-as-written",
            Self::PageCountsAsLast => "page-counts-as-last",
        }
    }

    /// Finds the mistake by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutation| mutation.name() == name)
    }

    /// Returns the store of the worlds that find the mistake.
    pub const fn store(self) -> WorldStore {
        let is_of_azure = matches!(
            self,
            Self::ReadBackNonceNotCompared
                | Self::AbsenceProvesFailure
                | Self::MissingPartsCountAsWritten
                | Self::PageCountsAsLast
        );
        if is_of_azure { WorldStore::Azure } else { WorldStore::Memory }
    }

    /// Returns the part of the mistake that the store makes.
    pub const fn flaw(self) -> Option<Flaw> {
        match self {
            Self::CommitWithoutVersionGuard => Some(Flaw::AccountUnguarded),
            Self::CommitWithoutRowGuard | Self::UnclearCommitPostedAgain => Some(Flaw::RowsUnguarded),
            Self::RejectionWithoutVersionGuard => Some(Flaw::RejectionUnguarded),
            Self::InsertReplaces => Some(Flaw::InsertReplaces),
            Self::InsertionWithoutVersionGuard => Some(Flaw::InsertionUnguarded),
            // Only some commits go to a store with this flaw.
            Self::KeyNotGuarded
            | Self::DeleteBeforeCommit
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
            | Self::UnsealedAmountTrusted
            | Self::Resealing
            | Self::PostedAtHeldGate
            | Self::OwnOpenWorkForgotten
            | Self::RejectionFromOldCache
            | Self::AnswerBeforeCommit
            | Self::TakenCountsAsPosted
            | Self::OrderNotRequired
            | Self::OrderCheckAssumed
            | Self::ChunkCountedTwice
            | Self::ChunkKeysNotGuarded
            | Self::OutcomeBelieved
            | Self::ChunkOfNoManifest
            | Self::CompletedBeforeTheLastChunk
            | Self::ResultsOutOfOrder
            | Self::MissingPayloadSettled
            | Self::SurvivorCountsAsEnded
            | Self::WrongClockReleases
            | Self::RejectionLeftOut
            | Self::TermsLeftOut
            | Self::ReadBackNonceNotCompared
            | Self::AbsenceProvesFailure
            | Self::MissingPartsCountAsWritten
            | Self::PageCountsAsLast => None,
        }
    }
}
