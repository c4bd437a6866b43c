//! Words of which there is a fixed list, as they are read: any other is refused, by the same list that
//! the patterns of the schemas have.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize as _, Deserializer};

/// Declares a reader for each list.
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
    /// What an account is.
    account_status: "open" "closed";
    /// Which way money moves.
    transaction_type: "deposit" "withdrawal";
    /// How far a transaction is.
    transaction_status: "accepted" "posted" "rejected";
    /// What the gate is.
    gate_state: "held" "released";
    /// What a person decided.
    resolution: "replayed" "discarded";
    /// How a process is.
    health: "ok" "unavailable";
}

/// Why a transaction was rejected.
const REASONS: &[&str] = &[
    "insufficient_funds",
    "account_closed",
    "account_unknown",
    "currency_mismatch",
    "amount_out_of_range",
    "discarded",
];

/// Why a transaction was rejected, if it was.
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
