//! Migrates a file to the schema of this program, also when several processes start at once.
//!
//! `user_version` of the file is the number of migrations that were applied. A file from a newer program is refused,
//! because this program does not know the meaning of its columns. `application_id` marks the files of this program,
//! so that a wrong path in the configuration does not change the data of another program.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use super::fault::OpenFault;

/// All migrations, oldest first.
const MIGRATIONS: [&str; 11] = [
    include_str!("migrations/001_initial.sql"),
    include_str!("migrations/002_roster.sql"),
    include_str!("migrations/003_payload_age.sql"),
    include_str!("migrations/004_partner_records.sql"),
    include_str!("migrations/005_transactions_in_order.sql"),
    include_str!("migrations/006_batches.sql"),
    include_str!("migrations/007_survivals.sql"),
    include_str!("migrations/008_chained_decisions.sql"),
    include_str!("migrations/009_chaining_processes.sql"),
    include_str!("migrations/010_key_lifetimes.sql"),
    include_str!("migrations/011_passages.sql"),
];

/// The schema version that this program writes, and the newest that it supports.
pub const SCHEMA_VERSION: i64 = 11;

/// "Post" in ASCII.
const APPLICATION_ID: i64 = 0x506f_7374;

/// Maximum number of attempts to enable the log. SQLite waits for locks by itself, except where it detects a possible
/// deadlock between two exclusive locks: then one side has to retry.
const ATTEMPTS_MAX: u32 = 100;

/// Checks the file, enables the write-ahead log, and runs the missing migrations.
pub(super) fn migrate(connection: &Connection, path: &Path) -> Result<(), OpenFault> {
    let database = |source| OpenFault::Database { path: path.to_owned(), source };
    // Checked before anything is changed.
    check(connection, path)?;
    let journal_mode =
        retried(|| connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)))
            .map_err(database)?;
    if journal_mode != "wal" {
        return Err(OpenFault::NoWriteAheadLog { path: path.to_owned(), journal_mode });
    }
    if check(connection, path)? == SCHEMA_VERSION {
        return Ok(());
    }
    let sql_tx = retried(|| Transaction::new_unchecked(connection, TransactionBehavior::Immediate))
        .map_err(database)?;
    // Checked again under the lock: another process may have migrated the file.
    let seen = usize::try_from(check(&sql_tx, path)?).unwrap_or(0);
    for migration in MIGRATIONS.iter().skip(seen) {
        sql_tx.execute_batch(migration).map_err(database)?;
    }
    sql_tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(database)?;
    sql_tx.pragma_update(None, "user_version", SCHEMA_VERSION).map_err(database)?;
    sql_tx.commit().map_err(database)
}

/// Checks that the file has exactly the schema of this program, for read-only connections.
pub(super) fn check_current(connection: &Connection, path: &Path) -> Result<(), OpenFault> {
    let found = check(connection, path)?;
    if found == SCHEMA_VERSION {
        return Ok(());
    }
    Err(OpenFault::Older { path: path.to_owned(), found, known: SCHEMA_VERSION })
}

/// Returns the schema version of the file if this program supports it; zero for an empty file.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<i64, OpenFault> {
    // One statement, so that the three values are consistent.
    let sql = "SELECT (SELECT user_version FROM pragma_user_version),
                      (SELECT application_id FROM pragma_application_id),
                      (SELECT count(*) FROM sqlite_schema)";
    let (version, application, tables) = connection
        .query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
        .map_err(|source| OpenFault::Database { path: path.to_owned(), source })?;
    let empty = version == 0 && application == 0 && tables == 0;
    if !empty && application != APPLICATION_ID {
        return Err(OpenFault::Foreign { path: path.to_owned() });
    }
    if version > SCHEMA_VERSION {
        return Err(OpenFault::Newer { path: path.to_owned(), found: version, known: SCHEMA_VERSION });
    }
    Ok(version)
}

fn retried<T>(mut attempt: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    for _ in 1..ATTEMPTS_MAX {
        match attempt() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_version_is_the_number_of_migrations() {
        assert_eq!(i64::try_from(MIGRATIONS.len()), Ok(SCHEMA_VERSION));
    }
}
