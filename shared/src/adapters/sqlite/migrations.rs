//! Migrates a database file to the schema of this program. Several processes may do so concurrently.
//!
//! `user_version` is the number of the last applied migration. A file of a newer program is refused, because this
//! program does not know the meaning of its columns. `application_id` marks the files of this program, so that a wrong
//! path in the configuration does not change the data of another program.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, Row, Transaction, TransactionBehavior};

use super::fault::OpenFault;

/// The first migration. Files written before the first release have lower numbers.
const FIRST: (i64, &str) = (100, include_str!("migrations/100_initial.sql"));

/// The schema version of this program, which is also the newest that it supports.
pub const SCHEMA_VERSION: i64 = SCHEMA.version();

const SCHEMA: Schema = Schema(&[FIRST]);

/// "Post" in ASCII.
const APPLICATION_ID: i64 = 0x506f_7374;

/// Maximum number of attempts to enable the write-ahead log. SQLite waits for locks itself, except where it detects a
/// possible deadlock between two exclusive locks; then one side must retry.
const ATTEMPTS_MAX: u32 = 100;

/// Checks the file, enables the write-ahead log, and applies the missing migrations.
pub(super) fn migrate(connection: &Connection, path: &Path) -> Result<(), OpenFault> {
    SCHEMA.migrate(connection, path)
}

/// Checks that the file has exactly the schema of this program. Used by read-only connections.
pub(super) fn check_current(connection: &Connection, path: &Path) -> Result<(), OpenFault> {
    SCHEMA.check_current(connection, path)
}

/// Returns the schema version of the file if this program supports it, or zero for an empty file.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<i64, OpenFault> {
    SCHEMA.check(connection, path)
}

/// A schema: its migrations with their numbers, oldest first.
#[derive(Clone, Copy)]
struct Schema(&'static [(i64, &'static str)]);

impl Schema {
    const fn version(self) -> i64 {
        match self.0.last() {
            Some((number, _)) => *number,
            None => 0,
        }
    }

    fn migrate(self, connection: &Connection, path: &Path) -> Result<(), OpenFault> {
        let database = |source| OpenFault::Database { path: path.to_owned(), source };
        // The first check precedes all changes.
        self.check(connection, path)?;
        let journal_mode =
            retried(|| connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)))
                .map_err(database)?;
        if journal_mode != "wal" {
            return Err(OpenFault::NoWriteAheadLog { path: path.to_owned(), journal_mode });
        }
        if self.check(connection, path)? == self.version() {
            return Ok(());
        }
        let sql_tx = retried(|| Transaction::new_unchecked(connection, TransactionBehavior::Immediate))
            .map_err(database)?;
        // Checked again under the lock: another process may have migrated the file.
        let found = self.check(&sql_tx, path)?;
        for (_, migration) in self.0.iter().filter(|(number, _)| *number > found) {
            sql_tx.execute_batch(migration).map_err(database)?;
        }
        sql_tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(database)?;
        sql_tx.pragma_update(None, "user_version", self.version()).map_err(database)?;
        sql_tx.commit().map_err(database)
    }

    fn check_current(self, connection: &Connection, path: &Path) -> Result<(), OpenFault> {
        let found = self.check(connection, path)?;
        if found == self.version() {
            return Ok(());
        }
        Err(OpenFault::Older { path: path.to_owned(), found, known: self.version() })
    }

    fn check(self, connection: &Connection, path: &Path) -> Result<i64, OpenFault> {
        // One statement, so that the three values come from one snapshot.
        let sql = "SELECT (SELECT user_version FROM pragma_user_version),
                          (SELECT application_id FROM pragma_application_id),
                          (SELECT count(*) FROM sqlite_schema)";
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
        let (found, application, tables) = connection
            .query_row(sql, [], read)
            .map_err(|source| OpenFault::Database { path: path.to_owned(), source })?;
        if (found, application, tables) == (0, 0, 0) {
            return Ok(0);
        }
        let (path, known) = (path.to_owned(), self.version());
        if application != APPLICATION_ID {
            return Err(OpenFault::Foreign { path });
        }
        let (first, _) = FIRST;
        if found < first {
            return Err(OpenFault::Unreleased { path, found, first });
        }
        if found > known {
            return Err(OpenFault::Newer { path, found, known });
        }
        Ok(found)
    }
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

    /// A schema with one more migration.
    const NEXT: Schema = Schema(&[
        FIRST,
        (
            101,
            "ALTER TABLE partners ADD COLUMN rank INTEGER NOT NULL DEFAULT 7; UPDATE partners SET rank = id",
        ),
    ]);

    fn file() -> (tempfile::TempDir, std::path::PathBuf, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("postonce.db");
        let connection = Connection::open(&path).unwrap();
        (folder, path, connection)
    }

    fn ranks(connection: &Connection) -> Vec<(String, i64)> {
        let mut statement = connection.prepare("SELECT name, rank FROM partners ORDER BY id").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_file_keeps_its_rows_when_it_is_migrated_and_is_then_refused_by_the_older_program() {
        let (_folder, path, connection) = file();
        migrate(&connection, &path).unwrap();
        connection.execute_batch("INSERT INTO partners (id, name) VALUES (3, 'shop')").unwrap();
        let fault = NEXT.check_current(&connection, &path).unwrap_err();
        assert!(matches!(fault, OpenFault::Older { found: SCHEMA_VERSION, .. }), "{fault}");
        for _ in 0..2 {
            NEXT.migrate(&connection, &path).unwrap();
            assert_eq!(ranks(&connection), [("shop".to_owned(), 3)], "each migration runs once");
        }
        NEXT.check_current(&connection, &path).unwrap();
        let fault = migrate(&connection, &path).unwrap_err();
        assert!(matches!(fault, OpenFault::Newer { found, .. } if found == SCHEMA_VERSION + 1), "{fault}");
    }

    #[test]
    fn a_new_file_gets_all_migrations() {
        let (_folder, path, connection) = file();
        assert_eq!(NEXT.check(&connection, &path).unwrap(), 0);
        NEXT.migrate(&connection, &path).unwrap();
        assert_eq!(NEXT.check(&connection, &path).unwrap(), NEXT.version());
        assert_eq!(ranks(&connection), []);
    }

    #[test]
    fn a_failed_migration_changes_nothing() {
        let (_folder, path, connection) = file();
        migrate(&connection, &path).unwrap();
        let failing = Schema(&[FIRST, (101, "DROP TABLE records; SELECT no_such_function()")]);
        assert!(matches!(failing.migrate(&connection, &path), Err(OpenFault::Database { .. })));
        check_current(&connection, &path).unwrap();
        connection.execute_batch("SELECT body FROM records").unwrap();
    }

    #[test]
    fn a_file_from_before_the_first_release_is_refused_and_not_changed() {
        let (_folder, path, connection) = file();
        connection.execute_batch("PRAGMA application_id = 0x506f7374; CREATE TABLE accounts (x)").unwrap();
        for version in [0, 1, 11, FIRST.0 - 1] {
            connection.pragma_update(None, "user_version", version).unwrap();
            let fault = migrate(&connection, &path).unwrap_err();
            assert!(matches!(fault, OpenFault::Unreleased { found, .. } if found == version), "{fault}");
            let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
            assert_eq!(mode, "delete");
        }
    }
}
