#![expect(clippy::arithmetic_side_effects, clippy::disallowed_methods, reason = "test code")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::paths::beside;
use super::*;

/// A file with a table, its writer, and the thread that checkpoints its log.
struct Stand {
    writer: Connection,
    checkpointer: Checkpointer,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Stand {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db");
        let mut writer = connect(&path, Role::Write).unwrap();
        // Syncs do not matter for these tests.
        let sql = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; CREATE TABLE rows (row BLOB);";
        writer.execute_batch(sql).unwrap();
        let checkpointer = Checkpointer::start(&path, &mut writer).unwrap();
        Self { writer, checkpointer, path, _folder: folder }
    }

    /// Commits about ten pages.
    fn commit(&self) {
        self.writer.execute("INSERT INTO rows VALUES (zeroblob(40000))", []).unwrap();
    }

    /// Returns the number of pages in the log, and how many of them are moved.
    fn log(&self) -> (i32, i32) {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
        self.writer.query_row("PRAGMA wal_checkpoint(NOOP)", [], read).unwrap()
    }
}

/// Commits until the log is long, waits for the checkpoint, and commits until the log is reused. Returns the number of
/// COMMITs.
fn write_past_a_long_log(stand: &Stand) -> i64 {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut commits = 0;
    while stand.log().0 < LONG {
        stand.commit();
        commits += 1;
    }
    // No COMMIT happens now, so the thread moves the pages.
    while stand.checkpointer.turn.now() != Turn::WRITERS {
        assert!(Instant::now() < deadline, "{:?}", stand.log());
        std::thread::yield_now();
    }
    assert!(stand.log().1 >= LONG);
    stand.commit();
    let (pages, moved) = stand.log();
    assert!(pages < LONG, "the log is reused from its start");
    assert_eq!(moved, pages, "the writer moves the rest");
    commits + 1
}

#[test]
fn a_long_log_is_checkpointed_beside_the_writer_and_reused() {
    let stand = Stand::new();
    let commits = write_past_a_long_log(&stand) + write_past_a_long_log(&stand);
    let ask = |sql: &str| stand.writer.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0));
    assert_eq!(ask("SELECT count(*) FROM rows").unwrap(), commits.into());
    assert_eq!(ask("PRAGMA integrity_check").unwrap(), "ok".to_owned().into());
}

#[test]
fn closing_removes_the_log() {
    let stand = Stand::new();
    write_past_a_long_log(&stand);
    let Stand { writer, checkpointer, path, _folder } = stand;
    drop(writer);
    drop(checkpointer);
    assert!(path.is_file() && !beside(&path, "-wal").exists());
}
