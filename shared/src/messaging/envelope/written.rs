//! Work that was written ahead of the moment in which it is known that it goes into an envelope.

use serde_json::value::RawValue;

use super::item;
use crate::domain::account::Revision;
use crate::domain::ids::TransactionKey;
use crate::domain::instruction::Instruction;
use crate::domain::time::Timestamp;

/// One piece of work as it stands in an envelope.
#[derive(Debug, Clone)]
pub struct Written {
    key: TransactionKey,
    item: Box<RawValue>,
}

impl Written {
    /// The work of a transaction that is accepted then, and whose row has that revision.
    pub fn of(
        key: &TransactionKey,
        instruction: &Instruction,
        accepted_at: Timestamp,
        revision: &Revision,
    ) -> Self {
        let item = item::write(&item::row(key, instruction, accepted_at, revision));
        Self { key: key.clone(), item }
    }

    /// Which transaction it is of.
    pub const fn key(&self) -> &TransactionKey {
        &self.key
    }

    pub(super) fn item(&self) -> &RawValue {
        &self.item
    }
}
