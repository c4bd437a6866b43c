//! The infrastructure failed. Business answers are never faults.

use std::error::Error;

/// The cause of a fault, for the log.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A store did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// The store could not be reached, was throttled, or did not answer. A write **may have
    /// happened or may still happen**: whoever asked retries under the same guards, or reads back.
    #[error("the store was not available while {doing}")]
    Unavailable {
        /// What was being attempted.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: Cause,
    },
    /// What is stored cannot be understood. Trying again does not help; a person has to look.
    #[error("stored data cannot be understood while {doing}")]
    Corrupt {
        /// What was being attempted.
        doing: &'static str,
        /// What is wrong.
        #[source]
        source: Cause,
    },
    /// The store refused the request for a reason that trying again does not change: wrong
    /// credentials, a missing table, a bug of ours. The write did not happen.
    #[error("the store refused while {doing}")]
    Refused {
        /// What was being attempted.
        doing: &'static str,
        /// What the store said.
        #[source]
        source: Cause,
    },
    /// The cursor that was passed is not one of the listing: the mistake of whoever asks.
    #[error("the cursor is not one of this listing while {doing}")]
    ForeignCursor {
        /// What was being attempted.
        doing: &'static str,
    },
}

impl StoreFault {
    /// Whether trying again later can help. A refusal counts: it is the configuration of the store
    /// that is wrong, not the work, and an operator can mend it while the work waits.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Refused { .. } => true,
            Self::Corrupt { .. } | Self::ForeignCursor { .. } => false,
        }
    }
}

/// The causes of a fault as one line, without what was being attempted.
pub fn causes(fault: &StoreFault) -> String {
    fault.source().map_or_else(|| fault.to_string(), chain)
}

/// A fault and its causes as one line: for the log, and for a person at three in the morning.
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
