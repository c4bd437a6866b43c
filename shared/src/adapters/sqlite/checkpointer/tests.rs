#![expect(clippy::arithmetic_side_effects, clippy::disallowed_methods, reason = "test code")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::paths::beside;
use super::*;

/// A file with a table, the connection that writes it, and the thread that it calls.
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
        // What is synced is not what these tests are about.
        let sql = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; CREATE TABLE rows (row BLOB);";
        writer.execute_batch(sql).unwrap();
        let checkpointer = Checkpointer::start(&path, &mut writer).unwrap();
        Self { writer, checkpointer, path, _folder: folder }
    }

    /// A COMMIT of about ten pages.
    fn commit(&self) {
        self.writer.execute("INSERT INTO rows VALUES (zeroblob(40000))", []).unwrap();
    }

    /// Pages of the log, and those of them that are moved.
    fn log(&self) -> (i32, i32) {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
        self.writer.query_row("PRAGMA wal_checkpoint(NOOP)", [], read).unwrap()
    }
}

/// Commits until the log is long, lets it be moved, and commits until it has begun anew; tells how many COMMITs
/// that took.
fn write_past_a_long_log(stand: &Stand) -> i64 {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut commits = 0;
    while stand.log().0 < LONG {
        stand.commit();
        commits += 1;
    }
    // Nobody commits now, so that it is the thread that moves it.
    while stand.checkpointer.turn.now() != Turn::WRITERS {
        assert!(Instant::now() < deadline, "{:?}", stand.log());
        std::thread::yield_now();
    }
    assert!(stand.log().1 >= LONG);
    stand.commit();
    let (pages, moved) = stand.log();
    assert!(pages < LONG, "it begins anew");
    assert_eq!(moved, pages, "the writer moves the rest");
    commits + 1
}

#[test]
fn a_long_log_is_moved_beside_the_writer_and_begins_anew() {
    let stand = Stand::new();
    let commits = write_past_a_long_log(&stand) + write_past_a_long_log(&stand);
    let ask = |sql: &str| stand.writer.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0));
    assert_eq!(ask("SELECT count(*) FROM rows").unwrap(), commits.into());
    assert_eq!(ask("PRAGMA integrity_check").unwrap(), "ok".to_owned().into());
}

#[test]
fn nothing_is_left_beside_the_file_when_it_is_closed() {
    let stand = Stand::new();
    write_past_a_long_log(&stand);
    let Stand { writer, checkpointer, path, _folder } = stand;
    drop(writer);
    drop(checkpointer);
    assert!(path.is_file() && !beside(&path, "-wal").exists());
}
