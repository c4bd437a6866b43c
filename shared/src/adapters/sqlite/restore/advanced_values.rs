//! Values that a restored store must not reuse.
//!
//! Clients and operators have received values that were created after the backup:
//!
//! - order numbers: the register continues after every number that may have been issued.
//! - ids of queue messages, which are the ids of dead letters: an operator who discards the letter 7 of a ticket must
//!   not discard another letter with that id.
//! - revoked API keys, and rights that were taken from partners: reach, signature keys, requests without a signature, all
//!   requests. They stay revoked and taken, if the replaced store can be read.
//! - the epoch of the gate only increases.
//! - the process registry: the processes in it have ended.
//!
//! Leases and pop receipts need no change: their holders have ended, and the hidden messages become visible when their
//! timeout ends. Transactions that are not in the backup are lost; they cannot be reconstructed.

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

/// Values that the replaced store had reached. Zero if it could not be read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReachedValues {
    /// The first order number (as a counter) that was not reserved.
    pub(super) number: u64,
    /// The highest id of a queue message.
    pub(super) message: u64,
    /// The epoch of the gate.
    pub(super) epoch: u64,
}

/// Values that are written into the copy before it becomes the store.
#[derive(Debug)]
pub(super) struct AdvancedValues {
    /// The register with the next order number.
    pub(super) register: Register,
    /// The id after which the ids of new queue messages start.
    pub(super) message: u64,
    /// The state of the gate, if it is written.
    pub(super) gate: Option<GateRecord>,
    /// Keys that stay revoked.
    pub(super) revoked: Vec<ApiKeyRecord>,
    /// Partners from which rights were taken.
    pub(super) restricted: Vec<RestrictedPartner>,
    /// The record of the restore.
    pub(super) origin: Origin,
}

impl AdvancedValues {
    /// Computes the values.
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

    /// Writes the values.
    pub(super) fn write(&self, connection: &Connection) -> Result<(), SqlFault> {
        let sql_tx = connection.unchecked_transaction()?;
        overwrite(&sql_tx, REGISTER, &self.register.encode())?;
        overwrite(&sql_tx, ORIGIN, &self.origin.encode())?;
        if let Some(gate) = &self.gate {
            overwrite(&sql_tx, gate::NAME, &gate::encode(gate))?;
        }
        let message = columns::signed(self.message)?;
        // SQLite's own table: it has a row once a message was inserted, and no constraint.
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
        // The first schema has no such table.
        let roster = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'roster'";
        if sql_tx.query_row(roster, [], |_| Ok(())).optional()?.is_some() {
            sql_tx.execute("DELETE FROM roster", [])?;
        }
        Ok(sql_tx.commit()?)
    }
}

/// Returns the gate of the restored store; `None` if it has none.
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
