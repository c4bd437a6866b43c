#![expect(clippy::arithmetic_side_effects, clippy::disallowed_methods, reason = "test code")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::paths::beside;
use super::*;

/// A file with a table, its writer, and its checkpointer.
struct Fixture {
    writer: Connection,
    checkpointer: Checkpointer,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db");
        let mut writer = connect(&path, Role::Write).unwrap();
        // These tests do not depend on syncs.
        let sql = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; CREATE TABLE rows (row BLOB);";
        writer.execute_batch(sql).unwrap();
        let lock = Arc::new(StoreLock::shared(&path, super::super::lock::IfMissing::Leave).unwrap());
        let files = Arc::new(OpenFiles::none());
        let checkpointer = Checkpointer::start(&path, &mut writer, (&files, &lock)).unwrap();
        Self { writer, checkpointer, path, _folder: folder }
    }

    /// Commits about ten pages.
    fn commit(&self) {
        self.writer.execute("INSERT INTO rows VALUES (zeroblob(40000))", []).unwrap();
    }

    /// Returns the number of pages in the log, and how many of them were checkpointed.
    fn log(&self) -> (i32, i32) {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
        self.writer.query_row("PRAGMA wal_checkpoint(NOOP)", [], read).unwrap()
    }
}

/// Commits until the log is long, waits for the checkpoint, and commits until the log is reused. Returns the number of commits.
fn write_past_a_long_log(fixture: &Fixture) -> i64 {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut commits = 0;
    while fixture.log().0 < LONG_LOG_PAGES {
        fixture.commit();
        commits += 1;
    }
    // Nothing is committed now, so the thread can copy all pages.
    while fixture.checkpointer.turn.now() != Turn::WRITER {
        assert!(Instant::now() < deadline, "{:?}", fixture.log());
        std::thread::yield_now();
    }
    assert!(fixture.log().1 >= LONG_LOG_PAGES);
    fixture.commit();
    let (pages, moved) = fixture.log();
    assert!(pages < LONG_LOG_PAGES, "the log is reused from its start");
    assert_eq!(moved, pages, "the writer moves the rest");
    commits + 1
}

#[test]
fn a_long_log_is_checkpointed_beside_the_writer_and_reused() {
    let fixture = Fixture::new();
    let commits = write_past_a_long_log(&fixture) + write_past_a_long_log(&fixture);
    let ask = |sql: &str| fixture.writer.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0));
    assert_eq!(ask("SELECT count(*) FROM rows").unwrap(), commits.into());
    assert_eq!(ask("PRAGMA integrity_check").unwrap(), "ok".to_owned().into());
}

#[test]
fn closing_removes_the_log() {
    let fixture = Fixture::new();
    write_past_a_long_log(&fixture);
    let Fixture { writer, checkpointer, path, _folder } = fixture;
    drop(writer);
    drop(checkpointer);
    assert!(path.is_file() && !beside(&path, "-wal").exists());
}
