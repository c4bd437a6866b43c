//! What a store that went back in time must not say again.
//!
//! People and programs outside remember what they were told after the backup was taken:
//!
//! - order numbers: the register goes on behind every number that may have been told.
//! - ids of queue messages, which are the ids of dead letters: an operator who discards number 7 of a
//!   ticket must not meet another letter under that number.
//! - that a key was revoked, or a partner suspended: it stays so, where the replaced store still tells.
//! - the epoch of the gate only grows.
//! - the roster: the processes in it have ended.
//!
//! Leases and pop receipts need nothing: those who held them have ended, and what they hid comes back when
//! its time is over. Transactions that are not in the backup are forgotten; no store can know them.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _};

use super::super::backup::BackupFault;
use super::super::backup::contents::{Contents, ORIGIN, Origin};
use super::super::columns;
use super::super::fault::SqlFault;
use super::super::partners;
use super::super::sync_store::overwrite;
use crate::cluster::gate::{self, GateState, GateValue};
use crate::domain::ids::PartnerId;
use crate::domain::time::Timestamp;
use crate::ports::api_keys::ApiKeyRecord;
use crate::ports::fault::chain;
use crate::protocol::order_numbers::{REGISTER, Register};

/// How far the replaced store had got, where it could be read. Zero where it could not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Floor {
    /// The first counter of order numbers that nobody reserved.
    pub(super) number: u64,
    /// The highest id of a queue message.
    pub(super) message: u64,
    /// The epoch of the gate.
    pub(super) epoch: u64,
}

/// What is written into the copy before it becomes the store.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The register from which numbers are issued next.
    pub(super) register: Register,
    /// The id behind which the next queue message gets its own.
    pub(super) message: u64,
    /// The gate, where it is to be written.
    pub(super) gate: Option<GateValue>,
    /// Keys that stay revoked.
    pub(super) revoked: Vec<ApiKeyRecord>,
    /// Partners that stay suspended.
    pub(super) suspended: BTreeSet<PartnerId>,
    /// What the store says about itself.
    pub(super) origin: Origin,
}

impl Ahead {
    /// Decides it.
    pub(super) fn try_new(
        (file, backup): (&Path, &Contents),
        floor: Floor,
        (gap, held): (u64, bool),
        (revoked, suspended): (Vec<ApiKeyRecord>, BTreeSet<PartnerId>),
        now: Timestamp,
    ) -> Result<Self, BackupFault> {
        let path = || file.to_owned();
        let register = backup.register.as_ref();
        let register =
            register.map_err(|unsound| BackupFault::Value { path: path(), source: chain(unsound).into() })?;
        let register = register.moved_ahead(floor.number, gap);
        let register = register.map_err(|source| BackupFault::Register { path: path(), source })?;
        let stood = backup.gate.as_ref();
        let stood =
            stood.map_err(|fault| BackupFault::Value { path: path(), source: chain(fault).into() })?;
        Ok(Self {
            register,
            message: backup.last_message.max(floor.message).saturating_add(gap),
            gate: gate_after(*stood, floor, held),
            revoked,
            suspended,
            origin: Origin::of(backup.taken_at, Some(now)),
        })
    }

    /// Writes it.
    pub(super) fn write(&self, connection: &Connection) -> Result<(), SqlFault> {
        let sql_tx = connection.unchecked_transaction()?;
        overwrite(&sql_tx, REGISTER, &self.register.encode())?;
        overwrite(&sql_tx, ORIGIN, &self.origin.encode())?;
        if let Some(gate) = self.gate {
            overwrite(&sql_tx, gate::NAME, &gate::encode(gate))?;
        }
        let message = columns::signed(self.message)?;
        // The table is SQLite's own: it has a row once there was a message, and no constraint.
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
        for partner in &self.suspended {
            partners::suspend(&sql_tx, partner)?;
        }
        // The first schema had none.
        let roster = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'roster'";
        if sql_tx.query_row(roster, [], |_| Ok(())).optional()?.is_some() {
            sql_tx.execute("DELETE FROM roster", [])?;
        }
        Ok(sql_tx.commit()?)
    }
}

/// The gate as the restored store has it; `None` where it has none.
fn gate_after(stood: Option<GateValue>, floor: Floor, held: bool) -> Option<GateValue> {
    if stood.is_none() && floor.epoch == 0 && !held {
        return None;
    }
    let state = match stood {
        _ if held => GateState::Held { release_at: None },
        Some(order) => order.state,
        None => GateState::Released,
    };
    let epoch = stood.map_or(0, |order| order.epoch).max(floor.epoch).saturating_add(1);
    Some(GateValue { epoch, state })
}
