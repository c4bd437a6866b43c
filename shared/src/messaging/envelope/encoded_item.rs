//! Items that are encoded before it is decided whether they are sent.

use serde_json::value::RawValue;

use super::item;
use crate::domain::account::Revision;
use crate::domain::ids::TransactionKey;
use crate::domain::instruction::Instruction;
use crate::domain::origin::Origin;
use crate::domain::time::Timestamp;

/// One item of an envelope, already encoded.
#[derive(Debug, Clone)]
pub struct EncodedItem {
    key: TransactionKey,
    item: Box<RawValue>,
}

impl EncodedItem {
    /// Encodes the work of a transaction, given the revision that its row will have.
    pub fn of(
        key: &TransactionKey,
        instruction: &Instruction,
        accepted_at: Timestamp,
        revision: &Revision,
        origin: &Origin,
    ) -> Self {
        let item = item::write(&item::row(key, instruction, accepted_at, revision, origin));
        Self { key: key.clone(), item }
    }

    /// Returns the key of the transaction.
    pub const fn key(&self) -> &TransactionKey {
        &self.key
    }

    pub(super) fn item(&self) -> &RawValue {
        &self.item
    }
}
