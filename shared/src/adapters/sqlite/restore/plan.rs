//! What a restore would do, for the person who has to decide; and what is known of the store that it replaces.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::super::api_keys;
use super::super::backup::{BackupFault, Contents, Doing};
use super::super::connection::{Role, connect};
use super::super::fault::{OpenFault, Remedy, SqlFault, remedy};
use super::super::partners;
use super::ahead::Floor;
use crate::cluster::gate::GateValue;
use crate::domain::ids::{OrderNumber, PartnerId};
use crate::domain::time::Timestamp;
use crate::ports::api_keys::ApiKeyRecord;
use crate::ports::fault::chain;
use crate::protocol::order_numbers::RANGE_LEN_MAX;

/// Order numbers that are skipped at least: ten of the largest ranges that a process reserves, so that
/// also what a few crashes lost lies in between.
pub const ORDER_NUMBER_GAP_MIN: u64 = RANGE_LEN_MAX.saturating_mul(10);

/// Transactions that no store in one file posts in a second. Where the replaced store cannot tell how far
/// it had got, so many numbers are skipped for each second since the backup.
pub const NUMBERS_PER_SECOND_MAX: u64 = 20_000;

/// The store that is replaced.
#[derive(Debug)]
pub enum Replaced {
    /// There is none.
    Nothing,
    /// There is one, and it cannot be read; for this reason.
    Unreadable(String),
    /// There is one.
    Read(Box<Contents>),
}

/// What a restore would do, or did.
#[derive(Debug)]
pub struct Plan {
    /// The backup.
    pub file: PathBuf,
    /// What is in it.
    pub backup: Contents,
    /// The store.
    pub store: PathBuf,
    /// What was in it.
    pub replaced: Replaced,
    /// Whether others use the store now, so that it cannot be replaced.
    pub in_use: bool,
    /// The name of the replaced store, if there is one.
    pub kept: Option<PathBuf>,
    /// Order numbers that are skipped behind the highest that is known.
    pub gap: u64,
    /// The first order number that is issued next.
    pub next_number: OrderNumber,
    /// The gate as it will be; `None` when nobody ever touched it.
    pub gate: Option<GateValue>,
    /// Keys of the backup that were revoked after it: they stay revoked.
    pub revoked_again: Vec<ApiKeyRecord>,
    /// Keys that were made after the backup: they are gone.
    pub keys_gone: Vec<ApiKeyRecord>,
    /// Partners of the backup that were suspended after it: they stay suspended.
    pub suspended_again: BTreeSet<PartnerId>,
    /// Keys that will work, unless their partners are suspended.
    pub keys_working: Vec<ApiKeyRecord>,
}

/// Who may call, in a file: its keys, and the partners that are suspended.
#[derive(Debug, Default)]
pub(super) struct Access {
    pub(super) keys: Vec<ApiKeyRecord>,
    pub(super) suspended: BTreeSet<PartnerId>,
}

impl Access {
    /// Reads it.
    pub(super) fn read(connection: &Connection) -> Result<Self, SqlFault> {
        Ok(Self { keys: api_keys::list(connection)?, suspended: partners::suspended(connection)? })
    }
}

/// What the store tells that is to be replaced, and who might call it. It may be in use, and is not changed.
pub(super) fn look_at(store: &Path) -> Result<(Replaced, Access), BackupFault> {
    if !store.exists() {
        return Ok((Replaced::Nothing, Access::default()));
    }
    let read = || {
        let reading = |error| Doing::of("read", store).sql(error);
        let connection = connect(store, Role::Read).map_err(reading)?;
        // Its log stays as it is until it is known that the store is to be replaced.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(reading)?;
        let contents = Contents::read(&connection, store)?;
        let access = Access::read(&connection).map_err(|fault| Doing::of("read", store).sql(fault))?;
        Ok((Replaced::Read(Box::new(contents)), access))
    };
    read().or_else(|fault: BackupFault| {
        if must_stop(&fault) {
            return Err(fault);
        }
        Ok((Replaced::Unreadable(chain(&fault)), Access::default()))
    })
}

/// Whether a store that cannot be read is not for a backup to replace: it belongs to somebody else, or it
/// may be sound and only cannot be read now.
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

/// How far the store had got, where it tells.
pub(super) fn floor_of(replaced: &Replaced) -> Option<Floor> {
    let Replaced::Read(contents) = replaced else { return None };
    // A register that must not be used tells nothing.
    let number = contents.register.as_ref().ok()?.next;
    let epoch = contents.gate.as_ref().ok().copied().flatten().map_or(0, |order| order.epoch);
    Some(Floor { number, message: contents.last_message, epoch })
}

/// The gap where nobody names one: `known` says whether the replaced store tells how far it had got.
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
