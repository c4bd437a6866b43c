//! Summarizes a store file: the counts that an operator sees, and the values that must not be reused after a restore.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};

use super::fault::{BackupFault, FileOperation};
use crate::adapters::sqlite::columns;
use crate::adapters::sqlite::fault::SqlFault;
use crate::adapters::sqlite::migrations::check;
use crate::cluster::gate::{self, GateValue};
use crate::domain::time::Timestamp;
use crate::domain::transaction::TransactionStatus;
use crate::ports::fault::StoreFault;
use crate::posting::order_numbers::{REGISTER, Register, RegisterError};

/// The contents of a store file at one point in time.
#[derive(Debug)]
pub struct Contents {
    /// Schema version of the file.
    pub schema_version: i64,
    /// When the snapshot was taken, if the file is a backup that the `backup` command made.
    pub taken_at: Option<Timestamp>,
    /// Number of accounts.
    pub accounts: u64,
    /// Number of posted transactions.
    pub posted: u64,
    /// Number of rejected transactions.
    pub rejected: u64,
    /// Number of accepted transactions that are not posted yet.
    pub accepted: u64,
    /// When the newest transaction was accepted or decided.
    pub newest_at: Option<Timestamp>,
    /// Number of unresolved dead letters.
    pub dead_letters: u64,
    /// The register of order numbers, or why it must not be used.
    pub register: Result<Register, RegisterError>,
    /// The state of the gate, or why it cannot be decoded; `None` if it was never changed.
    pub gate: Result<Option<GateValue>, StoreFault>,
    /// The highest id that was ever assigned to a queue message.
    pub last_message: u64,
}

impl Contents {
    /// Returns the number of all transactions.
    pub const fn transactions(&self) -> u64 {
        self.posted.saturating_add(self.rejected).saturating_add(self.accepted)
    }

    /// Returns the time of the contents, if it is known. They include the effects of all responses sent before.
    pub fn as_of(&self) -> Option<Timestamp> {
        self.taken_at.or(self.newest_at)
    }

    /// Reads a file that has the schema of a store.
    pub(in crate::adapters::sqlite) fn read(
        connection: &Connection,
        path: &Path,
    ) -> Result<Self, BackupFault> {
        let schema_version = check(connection, path)?;
        if schema_version == 0 {
            return Err(BackupFault::Empty { path: path.to_owned() });
        }
        // Read in one snapshot, because the file may be in use.
        let counted = connection
            .unchecked_transaction()
            .map_err(SqlFault::from)
            .and_then(|sql_tx| count(&sql_tx, schema_version));
        counted.map_err(|fault| FileOperation::of("read", path).sql(fault))
    }
}

/// Record of the origin of a file, which `backup` and `restore` write into it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::adapters::sqlite) struct Origin {
    v: u32,
    /// When the backup was taken, in milliseconds since 1970.
    pub(in crate::adapters::sqlite) taken_at: Option<i64>,
    /// When the backup replaced the store, in milliseconds since 1970; `None` in a backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::adapters::sqlite) restored_at: Option<i64>,
}

/// The name of the shared value that contains the record.
pub(in crate::adapters::sqlite) const ORIGIN: &str = "backup";

impl Origin {
    /// Creates the record of a backup.
    pub(in crate::adapters::sqlite) const fn of(
        taken_at: Option<Timestamp>,
        restored_at: Option<Timestamp>,
    ) -> Self {
        const fn ms(at: Option<Timestamp>) -> Option<i64> {
            match at {
                Some(at) => Some(at.unix_ms()),
                None => None,
            }
        }
        Self { v: 1, taken_at: ms(taken_at), restored_at: ms(restored_at) }
    }

    /// Encodes the record as a shared value.
    pub(in crate::adapters::sqlite) fn encode(&self) -> String {
        serde_json::to_string(self).expect("numbers can always be written as JSON")
    }

    /// Returns when the backup was taken. Returns `None` for a restored store, which is no longer a backup.
    fn taken_at(value: &str) -> Option<Timestamp> {
        let origin: Self = serde_json::from_str(value).ok()?;
        let taken_at = origin.taken_at.filter(|_| origin.restored_at.is_none());
        taken_at.map(Timestamp::from_unix_ms)
    }
}

fn count(connection: &Connection, schema_version: i64) -> Result<Contents, SqlFault> {
    let number = |sql: &str| -> Result<u64, SqlFault> {
        columns::unsigned(connection.query_row(sql, [], |row| row.get(0))?, "count")
    };
    let has_postings = number("SELECT EXISTS (SELECT 1 FROM transactions WHERE status = 'posted')")? > 0;
    let register = match shared_value(connection, REGISTER)? {
        Some(value) => Register::decode(&value),
        None if has_postings => Err(RegisterError::Missing),
        None => Ok(Register::fresh()),
    };
    let gate = shared_value(connection, gate::NAME)?
        .map(|value| gate::decode(&value).map(|record| record.value))
        .transpose();
    let mut contents = Contents {
        schema_version,
        taken_at: shared_value(connection, ORIGIN)?.as_deref().and_then(Origin::taken_at),
        accounts: number("SELECT count(*) FROM accounts")?,
        posted: 0,
        rejected: 0,
        accepted: 0,
        newest_at: None,
        dead_letters: number("SELECT count(*) FROM dead_letters WHERE resolution IS NULL")?,
        register,
        gate,
        last_message: number(
            "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'queue_messages'",
        )?,
    };
    let sql = "SELECT status, count(*), max(max(accepted_at), coalesce(max(decided_at), 0))
               FROM transactions GROUP BY status";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let status = columns::code(row, 0, "status", TransactionStatus::from_code)?;
        let count = columns::unsigned(row.get(1)?, "count")?;
        match status {
            TransactionStatus::Posted => contents.posted = count,
            TransactionStatus::Rejected => contents.rejected = count,
            TransactionStatus::Accepted => contents.accepted = count,
        }
        contents.newest_at = contents.newest_at.max(Some(columns::timestamp(row, 2)?));
    }
    Ok(contents)
}

fn shared_value(connection: &Connection, name: &str) -> Result<Option<String>, SqlFault> {
    let sql = "SELECT value FROM sync_values WHERE name = ?1";
    Ok(connection.query_row(sql, [name], |row| row.get(0)).optional()?)
}
