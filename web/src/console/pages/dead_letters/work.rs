//! Work of a dead letter, if its body can be decoded. The content is untrusted, so it is only shown and linked.

use postonce_schemas::json::DeadLetter;
use postonce_shared::batches::messages::Named;
use postonce_shared::domain::batch::BatchKey;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::messaging::envelope::{self, Names};

/// Work of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Transactions of accounts.
    Transactions(Vec<TransactionKey>),
    /// Step of a batch.
    Batch(BatchKey),
    /// Work in the payload store, with its name there.
    Claim(String),
    /// The body cannot be decoded.
    Unknown,
}

impl Work {
    /// Reads the work of a dead letter.
    pub fn of(letter: &DeadLetter) -> Self {
        let body = letter.body.as_bytes();
        if let Some(names) = Names::read(body).ok().filter(Names::is_complete) {
            return Self::Transactions(names.items().iter().filter_map(|name| name.key.clone()).collect());
        }
        if let Some(claim) = envelope::claimed(body) {
            return Self::Claim(claim.name);
        }
        Named::decode(body).map_or(Self::Unknown, |named| Self::Batch(named.key))
    }
}

/// Returns the number of transactions in a dead letter; `None` if unknown.
pub fn transactions_in(letter: &DeadLetter) -> Option<u64> {
    letter.items.as_ref().map(|items| u64::try_from(items.len()).unwrap_or(u64::MAX))
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::super::tests::letter;
    use super::*;

    /// The body of a message with one transaction, without a seal.
    pub const TRANSACTION: &str = r#"{"v":1,"items":[{"u":"0b1c6f0a54f24f0c9c642f4b6a3f0d11",
        "c":"77aa0b9e7c2f4c358f0d0a4f6f1f2e22","p":"shop","m":"4f9d0c9e5d3e4c0e9a511b7a4a4e2f10"}]}"#;
    /// The body of a message about a batch.
    pub const BATCH: &str = r#"{"v":1,"partner":"shop","batch":"1c1d6c9e-5d3e-4c0e-9a51-1b7a4a4e2f10"}"#;

    #[test]
    fn transactions_and_batches_are_recognized() {
        let of = |body: &str| Work::of(&letter(&json!({ "body": body })));
        let Work::Transactions(keys) = of(TRANSACTION) else { panic!("no transactions") };
        assert_eq!(keys[0].message.to_string(), "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10");
        let Work::Batch(key) = of(BATCH) else { panic!("no batch") };
        assert_eq!(key.to_string(), "shop-1c1d6c9e-5d3e-4c0e-9a51-1b7a4a4e2f10");
        for other in
            ["", "{}", "not a message of the bank", r#"{"v":1,"items":[{}]}"#, r#"{"v":1,"items":[]}"#]
        {
            assert_eq!(of(other), Work::Unknown, "{other}");
        }
    }
}
