//! Codes with a fixed list of values: enums and deserializers of responses, and rules of requests. The deserializers refuse
//! other values; the enums keep them. The patterns of the schemas contain the same lists; a test compares them with the rules.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use validator::ValidationError;

use super::rules::broken;

/// Declares lists of codes with their deserializers.
macro_rules! codes {
    ($($(#[$doc:meta])* $vis:vis $list:ident $name:ident: $($code:literal)*;)*) => {$(
        $(#[$doc])*
        $vis const $list: &[&str] = &[$($code,)*];

        pub(super) fn $name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, str>, D::Error> {
            known(&String::deserialize(deserializer)?, $list)
        }
    )*};
}

codes! {
    /// Values of `status` of an account.
    pub ACCOUNT_STATUSES account_status: "open" "frozen" "closed";
    /// Values of `type` of a transaction and of a batch item.
    pub TRANSACTION_TYPES transaction_type: "deposit" "withdrawal";
    TRANSACTION_STATUSES transaction_status: "accepted" "posted" "rejected";
    /// Values of `state` of the gate.
    pub GATE_STATES gate_state: "held" "released";
    RESOLUTIONS resolution: "replayed" "discarded";
    /// Values of `status` of a partner.
    pub PARTNER_STATUSES partner_status: "active" "suspended";
    /// Values of `algorithm` of a signature key.
    pub SIGNATURE_ALGORITHMS signature_algorithm: "hmac-sha256" "ed25519";
    ANCHOR_KINDS anchor_kind: "round" "restore";
    HEALTHS health: "ok" "unavailable";
    PROCESS_KINDS process_kind: "web" "worker";
}

/// Permissions of an API key.
pub const SCOPES: &[&str] = &[
    "deposit", "withdraw", "batch", "ring", "read", "accounts", "credit", "metrics", "scale", "operate",
    "partners", "admin",
];

/// Deserializes the optional reason for a rejection.
pub(super) fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RejectReason>, D::Error> {
    match Option::deserialize(deserializer)? {
        Some(RejectReason::Other(code)) => Err(D::Error::unknown_variant(&code, RejectReason::CODES)),
        reason => Ok(reason),
    }
}

/// Declares codes of responses as enums.
macro_rules! code_enums {
    ($($(#[$doc:meta])* $name:ident { $($(#[$meaning:meta])* $variant:ident $code:literal;)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$meaning])* #[serde(rename = $code)] $variant,)*
            /// Another text: a code of a newer service, or a sentence where the member allows one.
            #[serde(untagged)]
            Other(String),
        }

        impl $name {
            /// Every code of this version.
            pub const CODES: &[&str] = &[$($code,)*];

            /// Returns the code.
            pub fn code(&self) -> &str {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Other(code) => code,
                }
            }
        }

        impl From<&str> for $name {
            fn from(code: &str) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.code())
            }
        }
    )*};
}

code_enums! {
    /// The phase of a batch.
    BatchPhase {
        /// The document is stored.
        Received "received";
        /// The document is divided into chunks.
        Splitting "splitting";
        /// The items are posted.
        Posting "posting";
        /// All items are final.
        Completed "completed";
        /// The batch was cancelled before anything of it was posted.
        Cancelled "cancelled";
    }
    /// What becomes of items that break a rule.
    BatchOnInvalid {
        /// The whole batch is refused.
        Refuse "refuse";
        /// The other items are posted.
        Skip "skip";
    }
    /// What hinders a batch.
    BatchHindranceCode {
        /// The store does not answer.
        StoreUnavailable "store_unavailable";
        /// The store refuses requests of the service.
        StoreRefused "store_refused";
        /// Other processes changed the same data during each attempt.
        Contention "contention";
        /// The gate is held.
        GateHeld "gate_held";
        /// No order number is available.
        NoOrderNumber "no_order_number";
        /// The secret of the bank is not known.
        SecretUnknown "secret_unknown";
        /// Stored data is missing or was changed.
        DataMissing "data_missing";
        /// Stored data cannot be read.
        DataUnreadable "data_unreadable";
        /// The service has a defect.
        InternalFault "internal_fault";
        /// A message was received often without a result, and is tried alone.
        TriedAlone "tried_alone";
        /// Processes ended while they handled the batch, and nothing of it is tried.
        ProcessesEnded "processes_ended";
        /// A newer version of the service recorded the reason.
        Unknown "unknown";
    }
    /// The outcome of an item of a batch.
    BatchItemStatus {
        /// The batch posted it.
        Posted "posted";
        /// The bank rejected it.
        Rejected "rejected";
        /// Its id was used before with other content.
        Refused "refused";
        /// It was sent before, alone or in another batch.
        Replayed "replayed";
        /// It breaks a rule.
        Invalid "invalid";
    }
    /// How a transaction was posted.
    TransactionWay {
        /// The request waited, and the transaction was posted at once.
        Immediate "immediate";
        /// A worker posted it.
        Queued "queued";
        /// It is from a batch.
        Batch "batch";
        /// It is neither posted nor rejected yet.
        Open "open";
    }
    /// Why a transaction is not posted.
    RejectReason {
        /// The withdrawal was more than the balance plus the overdraft limit.
        InsufficientFunds "insufficient_funds";
        /// The account was closed.
        AccountClosed "account_closed";
        /// The account was frozen.
        AccountFrozen "account_frozen";
        /// The account did not exist.
        AccountUnknown "account_unknown";
        /// The amount was in another currency than the account.
        CurrencyMismatch "currency_mismatch";
        /// The balance would have left the supported range.
        AmountOutOfRange "amount_out_of_range";
        /// An operator discarded its dead letter.
        Discarded "discarded";
    }
    /// The kind of an event in the life of a transaction.
    TransactionEventKind {
        /// It was stored.
        Accepted "accepted";
        /// Its message was put on the queue.
        Sent "sent";
        /// The worker that decided it received its message.
        Received "received";
        /// Its message was lost, and another one was sent.
        EnqueuedAgain "enqueued_again";
        /// It was posted.
        Posted "posted";
        /// It was rejected.
        Rejected "rejected";
    }
}

fn known<E: Error>(code: &str, codes: &'static [&'static str]) -> Result<Cow<'static, str>, E> {
    let found = codes.iter().find(|known| **known == code);
    found.map(|known| Cow::Borrowed(*known)).ok_or_else(|| E::unknown_variant(code, codes))
}

/// Declares rules that check a code of a request against a list, with a function that formats the list for messages.
macro_rules! rules {
    ($($name:ident: $list:ident $words:ident;)*) => {$(
        #[doc = concat!("Checks that a code is one of [`", stringify!($list), "`].")]
        ///
        /// # Errors
        /// Fails with the list of codes in the message.
        pub fn $name(code: &str) -> Result<(), ValidationError> {
            if $list.contains(&code) { Ok(()) } else { Err(broken("code", format!("must be {}", $words($list)))) }
        }
    )*};
}

rules! {
    is_account_status: ACCOUNT_STATUSES quoted;
    is_transaction_type: TRANSACTION_TYPES one_of;
    is_gate_state: GATE_STATES quoted;
    is_partner_status: PARTNER_STATUSES quoted;
    is_signature_algorithm: SIGNATURE_ALGORITHMS plain;
    is_scope: SCOPES one_of;
}

fn one_of(codes: &[&str]) -> String {
    format!("one of {}", codes.join(", "))
}

fn plain(codes: &[&str]) -> String {
    match codes.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        Some(_) | None => codes.concat(),
    }
}

fn quoted(codes: &[&str]) -> String {
    let quoted: Vec<String> = codes.iter().map(|code| format!("{code:?}")).collect();
    plain(&quoted.iter().map(String::as_str).collect::<Vec<_>>())
}
