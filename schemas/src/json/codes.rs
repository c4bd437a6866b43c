//! Deserializers of codes with a fixed list of values. Other values are refused. The patterns of the schemas contain
//! the same lists.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize as _, Deserializer};

/// Declares a deserializer for each list.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident: $($code:literal)*;)*) => {$(
        $(#[$doc])*
        pub(super) fn $name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, str>, D::Error> {
            const CODES: &[&str] = &[$($code,)*];
            known(&String::deserialize(deserializer)?, CODES)
        }
    )*};
}

codes! {
    /// Status of an account.
    account_status: "open" "frozen" "closed";
    /// Kind of a transaction.
    transaction_type: "deposit" "withdrawal";
    /// Status of a transaction.
    transaction_status: "accepted" "posted" "rejected";
    /// State of the gate.
    gate_state: "held" "released";
    /// Decision about a dead letter.
    resolution: "replayed" "discarded";
    /// Status of a partner.
    partner_status: "active" "suspended";
    /// Algorithm of a signature key.
    signature_algorithm: "hmac-sha256" "ed25519";
    /// Occasion of an anchor.
    anchor_kind: "round" "restore";
    /// Health of a process.
    health: "ok" "unavailable";
    /// Kind of a process.
    process_kind: "web" "worker";
}

/// Reasons for a rejection.
const REASONS: &[&str] = &[
    "insufficient_funds",
    "account_closed",
    "account_frozen",
    "account_unknown",
    "currency_mismatch",
    "amount_out_of_range",
    "discarded",
];

/// Deserializes the reason for a rejection, if there is one.
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
