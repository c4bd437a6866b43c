//! The answers to a request.

use std::sync::Arc;

use crate::domain::decision::Submission;
use crate::domain::money::Currency;
use crate::domain::transaction::{Outcome, TransactionStatus};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::StoredTransaction;
use crate::posting::group_commit::Abandoned;

/// A transaction in the log. If it is not final, this process has seen a confirmed send of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The submission of the request that inserted it.
    pub submission: Submission,
    /// The final result; `None` while the status is accepted.
    pub outcome: Option<Outcome>,
    /// Whether an earlier request with the same key and content inserted it.
    pub replayed: bool,
}

impl Accepted {
    pub(super) fn of(stored: StoredTransaction, replayed: bool) -> Self {
        let StoredTransaction { submission, outcome, .. } = stored;
        Self { submission, outcome, replayed }
    }

    /// Returns the current status.
    pub fn status(&self) -> TransactionStatus {
        TransactionStatus::of(self.outcome.as_ref())
    }
}

/// Result of a request.
#[expect(
    clippy::large_enum_variant,
    reason = "most requests are accepted; a box would cost each an allocation"
)]
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// The log contains the transaction, inserted by this request or by an earlier one.
    Accepted(Accepted),
    /// The key belongs to a transaction with another content. Nothing was changed.
    KeyReused,
    /// The account does not exist. The id can be used again.
    AccountUnknown,
    /// The account is in another currency. The id can be used again.
    CurrencyMismatch {
        /// The account's currency.
        account: Currency,
    },
}

/// Error: the request is not confirmed. The transaction may be stored and posted; repeating it with the same id is safe.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AcceptFault {
    /// The account could not be read.
    #[error("the account could not be read")]
    Account(#[source] Arc<StoreFault>),
    /// The transaction log could not be read or written.
    #[error("the transaction log could not be read or written")]
    Log(#[source] Arc<StoreFault>),
    /// The work could not be put on the queue.
    #[error("the work could not be put on the queue")]
    Queue(#[source] Arc<StoreFault>),
    /// A task of this process ended without an answer.
    #[error("the request was aborted")]
    Abandoned(#[from] Abandoned),
    /// The rights on which the request was admitted have ended, cannot be read, or change repeatedly. This request
    /// stored nothing, unless it `is_in_doubt`: an attempt to post the transaction has an unknown result.
    #[error("the rights of the caller have changed meanwhile")]
    RightsChanged {
        /// Whether the transaction may be posted.
        is_in_doubt: bool,
    },
}

impl AcceptFault {
    /// Returns whether a retry later can succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Account(fault) | Self::Log(fault) | Self::Queue(fault) => fault.is_transient(),
            Self::Abandoned(_) | Self::RightsChanged { .. } => true,
        }
    }
}
