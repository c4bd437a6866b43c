//! The plan of a restore, which an operator reviews, and the state of the replaced store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::super::api_keys;
use super::super::backup::{BackupFault, Contents, FileOperation};
use super::super::connection::{Role, connect};
use super::super::fault::{OpenFault, Remedy, SqlFault, remedy};
use super::advanced_values::ReachedValues;
use super::partners::{self, RestrictedPartner};
use crate::cluster::gate::GateValue;
use crate::domain::ids::{OrderNumber, PartnerId};
use crate::domain::partner::Partner;
use crate::domain::time::Timestamp;
use crate::ports::api_keys::ApiKeyRecord;
use crate::ports::fault::chain;
use crate::posting::order_numbers::RANGE_LEN_MAX;

/// Minimum number of order numbers to skip: ten times the largest range that a process reserves. This also covers
/// ranges that were lost in a few crashes.
pub const ORDER_NUMBER_GAP_MIN: u64 = RANGE_LEN_MAX.saturating_mul(10);

/// Upper bound of the transactions per second that a store in one file can post. If the replaced store cannot be read,
/// this number of order numbers is skipped per second since the backup.
pub const NUMBERS_PER_SECOND_MAX: u64 = 20_000;

/// The store that a restore replaces.
#[derive(Debug)]
pub enum Replaced {
    /// There is no store.
    Nothing,
    /// The store cannot be read. Contains the reason.
    Unreadable(String),
    /// The contents of the store.
    Read(Box<Contents>),
}

/// The plan of a restore.
#[derive(Debug)]
pub struct Plan {
    /// The backup file.
    pub file: PathBuf,
    /// The contents of the backup.
    pub backup: Contents,
    /// The store file.
    pub store: PathBuf,
    /// The state of the replaced store.
    pub replaced: Replaced,
    /// Whether other processes are using the store, so that it cannot be replaced.
    pub in_use: bool,
    /// The path under which the replaced store is kept, if there is one.
    pub kept: Option<PathBuf>,
    /// Number of order numbers skipped after the highest known one.
    pub gap: u64,
    /// The next order number that is issued.
    pub next_number: OrderNumber,
    /// The gate after the restore; `None` if it was never changed.
    pub gate: Option<GateValue>,
    /// Keys of the backup that were revoked later. They stay revoked.
    pub revoked_again: Vec<ApiKeyRecord>,
    /// Keys that were added after the backup. They are lost.
    pub keys_gone: Vec<ApiKeyRecord>,
    /// Partners of the backup that lost rights later.
    pub restricted: Vec<RestrictedPartner>,
    /// Keys that are valid after the restore, unless their partners are suspended.
    pub keys_working: Vec<ApiKeyRecord>,
}

/// The API keys and partners in a store file.
#[derive(Debug, Default)]
pub(super) struct Access {
    pub(super) keys: Vec<ApiKeyRecord>,
    pub(super) partners: BTreeMap<PartnerId, Partner>,
}

impl Access {
    pub(super) fn read(connection: &Connection) -> Result<Self, SqlFault> {
        Ok(Self { keys: api_keys::list(connection)?, partners: partners::read_all(connection)? })
    }
}

/// Reads the contents, the API keys and the partners of the store to replace. It may be in use, and is not changed.
pub(super) fn read_replaced(store: &Path) -> Result<(Replaced, Access), BackupFault> {
    if !store.exists() {
        return Ok((Replaced::Nothing, Access::default()));
    }
    let read = || {
        let reading = |error| FileOperation::of("read", store).sql(error);
        let connection = connect(store, Role::Read).map_err(reading)?;
        // Closing the connection must not checkpoint the log until it is certain that the store is replaced.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(reading)?;
        let contents = Contents::read(&connection, store)?;
        let access =
            Access::read(&connection).map_err(|fault| FileOperation::of("read", store).sql(fault))?;
        Ok((Replaced::Read(Box::new(contents)), access))
    };
    read().or_else(|fault: BackupFault| {
        if must_stop(&fault) {
            return Err(fault);
        }
        Ok((Replaced::Unreadable(chain(&fault)), Access::default()))
    })
}

/// Returns whether a fault must prevent the replacement of the store: the store belongs to another program, or it may
/// be sound and only temporarily unreadable.
fn must_stop(fault: &BackupFault) -> bool {
    let passes = |error: &rusqlite::Error| remedy(error) == Remedy::Wait;
    if let BackupFault::Open(OpenFault::Database { source, .. }) = fault {
        return passes(source);
    }
    if let BackupFault::Database { source, .. } = fault
        && let Some(SqlFault::Database(source)) = source.downcast_ref()
    {
        return passes(source);
    }
    matches!(fault, BackupFault::Open(OpenFault::Foreign { .. }) | BackupFault::File { .. })
}

/// Returns the values that the store has reached, or `None` if they cannot be read.
pub(super) fn reached_by(replaced: &Replaced) -> Option<ReachedValues> {
    let Replaced::Read(contents) = replaced else { return None };
    // The values of an inconsistent register are not trusted.
    let number = contents.register.as_ref().ok()?.next;
    let epoch = contents.gate.as_ref().ok().copied().flatten().map_or(0, |order| order.epoch);
    Some(ReachedValues { number, message: contents.last_message, epoch })
}

/// Returns the default gap. `known` is true if the values of the replaced store could be read.
pub(super) fn default_gap(
    known: bool,
    (file, backup): (&Path, &Contents),
    now: Timestamp,
) -> Result<u64, BackupFault> {
    if known {
        return Ok(ORDER_NUMBER_GAP_MIN);
    }
    let as_of = backup.as_of();
    let Some(at) = as_of.filter(|at| *at <= now) else {
        return Err(BackupFault::AgeUnknown { path: file.to_owned(), as_of, now });
    };
    let seconds = now.since(at).as_secs().saturating_add(1);
    Ok(ORDER_NUMBER_GAP_MIN.saturating_add(seconds.saturating_mul(NUMBERS_PER_SECOND_MAX)))
}
