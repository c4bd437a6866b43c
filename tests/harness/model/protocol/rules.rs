//! By which rules the model plays: those of the bank, or the same with one of them broken.

/// A rule that is broken on purpose, to show that the model would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// A worker deletes what it received before it commits.
    DeleteBeforeCommit,
    /// A commit without an answer counts as written, and the message is deleted.
    UnclearIsDone,
    /// A commit without an answer counts as failed: the work is decided anew under what the rows say
    /// now, without asking whether they are final.
    UnclearIsFailed,
    /// A message is deleted when any of its items is final.
    DeleteWithRest,
    /// 202 as soon as the log has the transaction.
    PromiseBeforeSend,
    /// 202 for a repetition because the row is old, without a send of one's own.
    PromiseOldRows,
    /// The stored content is not compared.
    SkipFingerprint,
    /// An insert replaces the row under its key.
    InsertReplaces,
    /// A commit does not ask for the account's version.
    NoAccountGuard,
    /// A commit does not ask for the revisions of its transactions.
    NoRowGuard,
    /// A commit of rejections does not ask for the account's version.
    NoGuardForRejections,
    /// A commit without an answer is recognized by the status of its row instead of its nonce.
    RecognizeByStatus,
    /// After a stale commit the cached account is used again.
    KeepOldCache,
    /// Whoever knows work to be final deletes its messages, with or without a receipt. The design
    /// says that nothing may depend on receipts: this one has to do no harm.
    IgnoreReceipts,
}

impl Mutation {
    /// The property that must fall; `None` where none may.
    pub const fn breaks(self) -> Option<&'static str> {
        match self {
            Self::DeleteBeforeCommit
            | Self::UnclearIsDone
            | Self::DeleteWithRest
            | Self::PromiseBeforeSend
            | Self::PromiseOldRows => Some(NOTHING_LOST),
            Self::UnclearIsFailed | Self::NoRowGuard => Some(POSTED_ONCE),
            Self::SkipFingerprint => Some(CONTENT_COMPARED),
            Self::InsertReplaces => Some(FINAL_STAYS),
            Self::NoAccountGuard => Some(BALANCE_IS_SUM),
            Self::NoGuardForRejections => Some(REJECTED_RIGHTLY),
            Self::RecognizeByStatus => Some(TOLD_RIGHTLY),
            Self::KeepOldCache => Some(NEARER_TO_REST),
            Self::IgnoreReceipts => None,
        }
    }
}

/// Posted at most once.
pub const POSTED_ONCE: &str = "a transaction is posted at most once";
/// On the queue until it is final.
pub const NOTHING_LOST: &str = "nothing acknowledged is lost";
/// Final is final.
pub const FINAL_STAYS: &str = "a final status never changes";
/// The idempotency check looks at the content.
pub const CONTENT_COMPARED: &str = "the same id with other content is never acknowledged";
/// The books are right.
pub const BALANCE_IS_SUM: &str = "the balance is the sum of the entries";
/// Only the balance of the moment counts.
pub const REJECTED_RIGHTLY: &str = "an old balance never refuses what the account can pay";
/// A worker knows its own commits.
pub const TOLD_RIGHTLY: &str = "what is announced is what was recorded";
/// The first half of progress.
pub const NEARER_TO_REST: &str = "each step without a fault leads nearer to rest";
/// The second half of progress.
pub const FINAL_AT_REST: &str = "at rest everything acknowledged is final";

/// The rules of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whether log and queue are written in one step, as on the embedded store.
    pub sends_with_insert: bool,
    /// The rule that is broken.
    pub mutation: Option<Mutation>,
}

impl Rules {
    /// Log and queue are two services, as on Azure.
    pub const TWO_SERVICES: Self = Self { sends_with_insert: false, mutation: None };
    /// Log and queue are one database.
    pub const ONE_DATABASE: Self = Self { sends_with_insert: true, mutation: None };

    /// The same rules with one of them broken.
    #[must_use]
    pub const fn with(self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..self }
    }

    /// Whether that rule is broken.
    pub fn breaks(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
