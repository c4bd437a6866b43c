//! What keeps a batch from making progress. Partners read it, so it has no details: causes of faults, which can contain
//! addresses of the store, are only in the log and in the dead letter.

use uuid::Uuid;

use crate::domain::time::Timestamp;

/// The reason why a batch makes no progress. The codes are part of the HTTP API and of stored rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HindranceReason {
    /// The store does not answer.
    StoreUnavailable,
    /// The store refuses requests, for example because of wrong credentials.
    StoreRefused,
    /// Other processes changed the same record during each attempt.
    Contention,
    /// The gate is held.
    GateHeld,
    /// No order number is available.
    NoOrderNumber,
    /// The secret of the bank is not known to the process.
    SecretUnknown,
    /// A stored body of the batch is missing or was changed.
    DataMissing,
    /// Stored data cannot be decoded.
    DataUnreadable,
    /// The service contradicts itself, which indicates a bug.
    InternalFault,
    /// A message was received often without a result, and is tried alone.
    TriedAlone,
    /// Processes ended while they handled a message: the batch is stopped.
    ProcessesEnded,
    /// A newer version of the service recorded a reason that this one does not know.
    Unknown,
}

impl HindranceReason {
    /// Every reason.
    pub const ALL: [Self; 12] = [
        Self::StoreUnavailable,
        Self::StoreRefused,
        Self::Contention,
        Self::GateHeld,
        Self::NoOrderNumber,
        Self::SecretUnknown,
        Self::DataMissing,
        Self::DataUnreadable,
        Self::InternalFault,
        Self::TriedAlone,
        Self::ProcessesEnded,
        Self::Unknown,
    ];

    /// Returns the stable code and the sentence for operators and the partner.
    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::StoreUnavailable => {
                ("store_unavailable", "The store does not answer. The work is tried again.")
            }
            Self::StoreRefused => {
                ("store_refused", "The store refuses requests of the service. The work is tried again.")
            }
            Self::Contention => {
                ("contention", "Other processes changed the same data meanwhile. The work is tried again.")
            }
            Self::GateHeld => ("gate_held", "The gate is held. The work is tried again after its release."),
            Self::NoOrderNumber => {
                ("no_order_number", "No order number is available. The work is tried again.")
            }
            Self::SecretUnknown => {
                ("secret_unknown", "The secret of the bank is not known. The work is tried again.")
            }
            Self::DataMissing => (
                "data_missing",
                "Stored data of the batch is missing or was changed. An operator has to correct that.",
            ),
            Self::DataUnreadable => (
                "data_unreadable",
                "Stored data cannot be read: it is damaged, or another version of the service wrote it. An operator \
                 has to correct that.",
            ),
            Self::InternalFault => {
                ("internal_fault", "The service has a defect. An operator has to investigate it.")
            }
            Self::TriedAlone => {
                ("tried_alone", "A message was received often without a result, and is tried alone.")
            }
            Self::ProcessesEnded => (
                "processes_ended",
                "Processes ended while they handled the batch. Nothing of it is tried until an operator replays its \
                 dead letter.",
            ),
            Self::Unknown => ("unknown", "A newer version of the service recorded the reason."),
        }
    }

    /// Returns the stable code, such as `store_unavailable`.
    pub const fn code(self) -> &'static str {
        self.texts().0
    }

    /// Returns the reason as a sentence for operators and the partner.
    pub const fn message(self) -> &'static str {
        self.texts().1
    }

    /// Returns the reason with this code, or [`Self::Unknown`]: a newer version can have more reasons.
    pub fn from_code(code: &str) -> Self {
        Self::ALL.into_iter().find(|reason| reason.code() == code).unwrap_or(Self::Unknown)
    }
}

/// An obstacle to the progress of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hindrance {
    /// The reason.
    pub reason: HindranceReason,
    /// The time when it was observed.
    pub at: Timestamp,
    /// Set while the batch is stopped because processes ended during its work: the dead letter whose replay continues it.
    pub stop: Option<Uuid>,
}
