//! The rules of the model: those of the bank, or the same with one rule broken.

/// A rule that is broken on purpose, to show that the model detects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// A worker deletes messages before it commits.
    DeleteBeforeCommit,
    /// A commit without an answer counts as written, and the message is deleted.
    UnclearIsDone,
    /// A commit without an answer counts as failed: the work is decided again with the current revisions,
    /// without a check whether the rows are final.
    UnclearIsFailed,
    /// A message is deleted when any of its items is final.
    DeleteWithRest,
    /// A request is acknowledged as soon as the log has the transaction.
    AcknowledgeBeforeSend,
    /// A repeated request is acknowledged because the row exists, without a confirmed send.
    AcknowledgeOldRows,
    /// The stored content is not compared.
    SkipFingerprint,
    /// An insert replaces the row under its key.
    InsertReplaces,
    /// A commit does not check the version of the account.
    NoAccountGuard,
    /// A commit does not check the revisions of its transactions.
    NoRowGuard,
    /// A commit of rejections does not check the version of the account.
    NoGuardForRejections,
    /// A commit without an answer is recognized by the status of a row instead of its nonce.
    RecognizeByStatus,
    /// The cached account is used again after a stale commit.
    KeepOldCache,
    /// A worker that knows that work is final deletes its messages even without a receipt. By design
    /// nothing depends on receipts, so this mutation must do no harm.
    IgnoreReceipts,
    /// A commit that inserts a transaction does not check that its key is free.
    NoKeyGuard,
    /// A commit that inserts a transaction does not check the version of the account.
    NoAccountGuardForInsertions,
    /// A commit that inserts a rejection does not check the version of the account.
    OldCacheRejects,
    /// A request is rejected at once by a store that does not check the order.
    RejectAtOnce,
    /// A web process forgets the work that it put on the queue.
    ForgetOpenWork,
    /// A commit does not check whether the account has accepted transactions.
    NoOrderCheck,
    /// A web process posts at once although it knows that the gate is held.
    IgnoreGate,
    /// A web process acknowledges a held gate while its commit is under way.
    NoPermit,
    /// A request is answered as posted before its commit is written.
    AnswerBeforeCommit,
    /// A commit that finds its key taken counts as written.
    TakenIsDone,
    /// The insert of the fallback has the nonce of the commit, and a row proves the commit before it is final.
    FallbackSharesNonce,
}

impl Mutation {
    /// The property that must be violated; `None` if there is none.
    pub const fn breaks(self) -> Option<&'static str> {
        match self {
            Self::DeleteBeforeCommit
            | Self::UnclearIsDone
            | Self::DeleteWithRest
            | Self::AcknowledgeBeforeSend
            | Self::AcknowledgeOldRows
            | Self::AnswerBeforeCommit => Some(NOTHING_LOST),
            Self::UnclearIsFailed | Self::NoRowGuard | Self::NoKeyGuard => Some(POSTED_ONCE),
            Self::SkipFingerprint => Some(CONTENT_COMPARED),
            Self::InsertReplaces => Some(FINAL_STAYS),
            Self::NoAccountGuard | Self::NoAccountGuardForInsertions => Some(BALANCE_IS_SUM),
            Self::NoGuardForRejections | Self::OldCacheRejects => Some(REJECTED_CORRECTLY),
            Self::RejectAtOnce => Some(NOTHING_REFUSED_EARLY),
            Self::ForgetOpenWork | Self::NoOrderCheck => Some(ORDER_KEPT),
            Self::IgnoreGate | Self::NoPermit => Some(GATE_OBEYED),
            Self::RecognizeByStatus | Self::TakenIsDone | Self::FallbackSharesNonce => {
                Some(ANNOUNCED_CORRECTLY)
            }
            Self::KeepOldCache => Some(RANK_FALLS),
            Self::IgnoreReceipts => None,
        }
    }
}

/// No transaction is posted twice.
pub const POSTED_ONCE: &str = "a transaction is posted at most once";
/// Acknowledged work is on the queue until it is final.
pub const NOTHING_LOST: &str = "nothing acknowledged is lost";
/// A final status never changes.
pub const FINAL_STAYS: &str = "a final status never changes";
/// The idempotency check compares the content.
pub const CONTENT_COMPARED: &str = "the same id with other content is never acknowledged";
/// The balance equals the sum of the entries.
pub const BALANCE_IS_SUM: &str = "the balance is the sum of the entries";
/// A rejection is decided on the current balance.
pub const REJECTED_CORRECTLY: &str = "an old balance never refuses what the account can pay";
/// What was accepted before counts for a rejection.
pub const NOTHING_REFUSED_EARLY: &str =
    "nothing is rejected at once while an accepted transaction may pay it";
/// The order of the requests to one process, and of all requests to a store that checks it.
pub const ORDER_KEPT: &str = "no transaction is posted at once before an accepted one that it must follow";
/// The acknowledgment of a held gate.
pub const GATE_OBEYED: &str = "a process that acknowledged a held gate posts nothing at once";
/// A process announces only outcomes that were recorded.
pub const ANNOUNCED_CORRECTLY: &str = "an announced outcome is the recorded outcome";
/// The first half of progress.
pub const RANK_FALLS: &str = "each fault-free step lowers the rank";
/// The second half of progress.
pub const FINAL_WHEN_QUIESCENT: &str = "everything acknowledged is final when no fault-free step remains";

/// The rules of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whether the log and the queue are written in one step, as on the embedded store. Such a store also checks in
    /// each commit at once that the account has no accepted transaction.
    pub sends_with_insert: bool,
    /// The rule that is broken.
    pub mutation: Option<Mutation>,
}

impl Rules {
    /// The log and the queue are two services, as on Azure.
    pub const TWO_SERVICES: Self = Self { sends_with_insert: false, mutation: None };
    /// The log and the queue are one database.
    pub const ONE_DATABASE: Self = Self { sends_with_insert: true, mutation: None };

    /// The same rules with one rule broken.
    #[must_use]
    pub const fn with(self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..self }
    }

    /// Whether this rule is broken.
    pub fn breaks(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
