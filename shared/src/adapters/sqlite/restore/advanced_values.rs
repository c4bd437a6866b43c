//! Values that a restored store must not reuse, because clients and operators have received values that were created
//! after the backup:
//!
//! - Order numbers: the register continues after every number that may have been issued.
//! - Ids of queue messages, which are the ids of dead letters: an operator who discards letter 7 because of a ticket
//!   must not discard another letter with this id.
//! - Revoked API keys, and rights that were withdrawn from partners: reach, signature keys, requests without a
//!   signature, or all requests. If the replaced store can be read, they stay revoked and withdrawn.
//! - The epoch of the gate, which only increases.
//! - The process registry, whose processes have ended.
//!
//! Leases and pop receipts need no change: their holders have ended, and hidden messages become visible after their
//! timeout. Transactions that are not in the backup are lost and cannot be reconstructed.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _};

use super::super::backup::BackupFault;
use super::super::backup::contents::{Contents, ORIGIN, Origin};
use super::super::columns;
use super::super::fault::SqlFault;
use super::super::sync_store::overwrite;
use super::partners::{self, RestrictedPartner};
use crate::cluster::gate::change::{GateAct, GateRecord};
use crate::cluster::gate::{self, GateState, GateValue};
use crate::domain::time::Timestamp;
use crate::ports::api_keys::ApiKeyRecord;
use crate::ports::fault::chain;
use crate::posting::order_numbers::{REGISTER, Register};

/// The highest values of the replaced store. Zero if it could not be read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReachedValues {
    /// The first order number, as a counter, that was not reserved.
    pub(super) number: u64,
    /// The highest id of a queue message.
    pub(super) message: u64,
    /// The epoch of the gate.
    pub(super) epoch: u64,
}

/// Values that are written into the copy before it replaces the store.
#[derive(Debug)]
pub(super) struct AdvancedValues {
    /// The register of order numbers with the new next number.
    pub(super) register: Register,
    /// The id after which new queue messages are numbered.
    pub(super) message: u64,
    /// The state of the gate, or `None` if it is not written.
    pub(super) gate: Option<GateRecord>,
    /// Keys that stay revoked, with the time of their revocation.
    pub(super) revoked: Vec<ApiKeyRecord>,
    /// Partners that lost rights after the backup.
    pub(super) restricted: Vec<RestrictedPartner>,
    /// The record of the origin, with the time of the restore.
    pub(super) origin: Origin,
}

impl AdvancedValues {
    /// Computes the values from the backup, the values that the replaced store had reached, and the options.
    pub(super) fn try_new(
        (file, backup): (&Path, &Contents),
        reached: ReachedValues,
        (gap, held): (u64, bool),
        (revoked, restricted): (Vec<ApiKeyRecord>, Vec<RestrictedPartner>),
        now: Timestamp,
    ) -> Result<Self, BackupFault> {
        let path = || file.to_owned();
        let register = backup.register.as_ref();
        let register =
            register.map_err(|unsound| BackupFault::Value { path: path(), source: chain(unsound).into() })?;
        let register = register.moved_ahead(reached.number, gap);
        let register = register.map_err(|source| BackupFault::Register { path: path(), source })?;
        let stored = backup.gate.as_ref();
        let stored =
            stored.map_err(|fault| BackupFault::Value { path: path(), source: chain(fault).into() })?;
        Ok(Self {
            register,
            message: backup.last_message.max(reached.message).saturating_add(gap),
            gate: gate_after(*stored, reached, held)
                .map(|value| GateRecord::changed(value, now, &GateAct::of_restore())),
            revoked,
            restricted,
            origin: Origin::of(backup.taken_at, Some(now)),
        })
    }

    /// Writes the values in one transaction.
    pub(super) fn write(&self, connection: &Connection) -> Result<(), SqlFault> {
        let sql_tx = connection.unchecked_transaction()?;
        overwrite(&sql_tx, REGISTER, &self.register.encode())?;
        overwrite(&sql_tx, ORIGIN, &self.origin.encode())?;
        if let Some(gate) = &self.gate {
            overwrite(&sql_tx, gate::NAME, &gate::encode(gate))?;
        }
        let message = columns::signed(self.message)?;
        // `sqlite_sequence` is SQLite's own table. It has no row before the first insert, and no unique constraint.
        let known =
            sql_tx.execute("UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'queue_messages'", [message])?;
        if known == 0 {
            sql_tx.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES ('queue_messages', ?1)",
                [message],
            )?;
        }
        for key in &self.revoked {
            let sql = "UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?1) WHERE id = ?2";
            sql_tx.execute(sql, (key.revoked_at.map(Timestamp::unix_ms), &key.id))?;
        }
        for partner in &self.restricted {
            partners::overwrite(&sql_tx, &partner.restored)?;
        }
        // Tolerates a schema without this table, although every supported schema has it.
        let roster = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'roster'";
        if sql_tx.query_row(roster, [], |_| Ok(())).optional()?.is_some() {
            sql_tx.execute("DELETE FROM roster", [])?;
        }
        Ok(sql_tx.commit()?)
    }
}

/// Returns the gate of the restored store, or `None` if the gate need not be written.
fn gate_after(stored: Option<GateValue>, reached: ReachedValues, held: bool) -> Option<GateValue> {
    if stored.is_none() && reached.epoch == 0 && !held {
        return None;
    }
    let state = match stored {
        _ if held => GateState::Held { release_at: None },
        Some(order) => order.state,
        None => GateState::Released,
    };
    let epoch = stored.map_or(0, |order| order.epoch).max(reached.epoch).saturating_add(1);
    Some(GateValue { epoch, state })
}
