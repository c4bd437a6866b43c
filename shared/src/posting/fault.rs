//! Reasons why work is not final.

use std::sync::Arc;

use crate::backoff::ACCOUNT_WRITE;
use crate::ports::fault::StoreFault;
use crate::posting::order_numbers::OrderNumberFault;

/// The reason why work is not final.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PostFault {
    /// The ledger could not be read or written. A commit may have happened.
    #[error("the ledger could not be used")]
    Ledger(#[source] Arc<StoreFault>),
    /// No order number is available.
    #[error("no order number is available")]
    OrderNumbers(#[source] OrderNumberFault),
    /// Concurrent commits changed the account during each attempt.
    #[error("the account changed during each of {} attempts", ACCOUNT_WRITE.attempts)]
    Contended,
    /// The account does not exist.
    #[error("the account does not exist")]
    AccountUnknown,
    /// The log does not contain the transaction: it was never accepted.
    #[error("the transaction was never accepted")]
    NeverAccepted,
    /// The gate is held, so nothing may be posted.
    #[error("the gate is held")]
    GateHeld,
    /// Posting panicked because of a bug. The state of the work is unknown.
    #[error("posting panicked; the log of the process has more")]
    Bug,
}

impl PostFault {
    /// Returns whether a later retry can succeed. Work with any other fault becomes a dead letter.
    pub fn is_transient(&self) -> bool {
        match self {
            // A refusal by an available ledger concerns this work. An operator has to investigate it.
            Self::Ledger(fault) => matches!(**fault, StoreFault::Unavailable { .. }),
            // A damaged register stops all posting until an operator repairs it. The work is not the cause.
            Self::OrderNumbers(_) | Self::Contended | Self::GateHeld => true,
            Self::AccountUnknown | Self::NeverAccepted | Self::Bug => false,
        }
    }
}

impl From<StoreFault> for PostFault {
    fn from(fault: StoreFault) -> Self {
        Self::Ledger(Arc::new(fault))
    }
}
