//! Failures of the infrastructure. Business rejections are never faults.

use std::error::Error;

/// Log target of lines about damaged or contradictory rows. They are never rate-limited, because such a line may be the
/// only trace.
pub const EVIDENCE: &str = "postonce::evidence";

/// The cause of a fault, for the log.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An operation of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// The store could not be reached, throttled the request, or did not respond. A write **may have happened or may still
    /// happen**: the caller retries under the same guards, or reads back.
    #[error("the store was not available while {doing}")]
    Unavailable {
        /// The operation that failed.
        doing: &'static str,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// Stored data is invalid. A retry does not help; an operator must investigate.
    #[error("stored data is invalid while {doing}")]
    Corrupt {
        /// The operation that failed.
        doing: &'static str,
        /// The defect of the data.
        #[source]
        source: Cause,
    },
    /// The store refused the request for a reason that a retry does not change, such as wrong credentials, a missing
    /// table, or a bug in this program. The write did not happen.
    #[error("the store refused the request while {doing}")]
    Refused {
        /// The operation that failed.
        doing: &'static str,
        /// The response of the store.
        #[source]
        source: Cause,
    },
    /// The cursor does not belong to the listing, which is an error of the caller.
    #[error("the cursor does not belong to this listing while {doing}")]
    ForeignCursor {
        /// The operation that failed.
        doing: &'static str,
    },
}

impl StoreFault {
    /// Returns whether a later retry can succeed. A refusal counts as transient: the configuration of the store is wrong,
    /// not the work, and an operator can correct it while the work waits.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Refused { .. } => true,
            Self::Corrupt { .. } | Self::ForeignCursor { .. } => false,
        }
    }
}

/// Returns the cause chain of a fault as one line, without the operation that failed.
pub fn causes(fault: &StoreFault) -> String {
    fault.source().map_or_else(|| fault.to_string(), chain)
}

/// Returns an error and its cause chain as one line.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
