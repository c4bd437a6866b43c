//! Codes with a fixed list of values: deserializers of responses, which refuse other values, and rules of requests. The
//! patterns of the schemas contain the same lists; a test compares them with the rules.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize as _, Deserializer};
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
    "deposit", "withdraw", "batch", "read", "accounts", "credit", "metrics", "scale", "operate", "partners",
    "admin",
];

/// Reasons for the rejection of a transaction.
const REASONS: &[&str] = &[
    "insufficient_funds",
    "account_closed",
    "account_frozen",
    "account_unknown",
    "currency_mismatch",
    "amount_out_of_range",
    "discarded",
];

/// Deserializes the optional reason for a rejection.
pub(super) fn reason<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Cow<'static, str>>, D::Error> {
    let code = Option::<String>::deserialize(deserializer)?;
    code.map(|code| known(&code, REASONS)).transpose()
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
