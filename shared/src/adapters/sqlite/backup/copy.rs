//! Copies a database file page by page, and checks the integrity of the copy.

use std::ffi::{OsString, c_int};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::fault::{BackupFault, FileOperation};
use crate::adapters::sqlite::connection::has_moved;
use crate::adapters::sqlite::fault::{FilesFault, OpenFault, Remedy, remedy};
use crate::adapters::sqlite::paths::{SIDECARS, beside};
use crate::adapters::sqlite::private;

/// Number of pages copied per step. Progress is reported after each step, which is 8 MiB.
const STEP_PAGES: c_int = 2048;

/// Maximum number of findings reported for a damaged file.
const FINDINGS_MAX: u32 = 5;

/// Progress of a backup or a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A file is being checked completely.
    Checking,
    /// Bytes copied so far, and in total.
    Copying {
        /// Bytes copied so far.
        done: u64,
        /// Bytes in total.
        all: u64,
    },
}

/// Callback that receives the progress.
pub type ProgressCallback<'a> = &'a mut dyn FnMut(Progress);

/// Opens a file that no other process changes. Neither the file nor its folder is changed.
pub(in crate::adapters::sqlite) fn open_unchanged(path: &Path) -> rusqlite::Result<Connection> {
    // Without `immutable`, SQLite would create an empty log beside the file if the file is in WAL mode.
    let mut uri = OsString::from("file:");
    uri.push(quoted(path));
    uri.push("?immutable=1");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(PathBuf::from(uri), flags)
}

/// Percent-encodes a path for a URI.
fn quoted(path: &Path) -> OsString {
    let quote = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => vec![*byte],
        _ => format!("%{byte:02X}").into_bytes(),
    };
    OsString::from_vec(path.as_os_str().as_bytes().iter().flat_map(quote).collect())
}

/// Copies a consistent snapshot of the source, even while it is written to. The copy is a new file without a log that
/// only its owner can read. If `beside` is a store, the copy gets the owner of this store. `check_space` is called
/// before each step with the number of bytes still to copy, and its error aborts the copy.
///
/// The copy survives a loss of power only after [`seal`].
pub(in crate::adapters::sqlite) fn copy(
    (source, from): (&Connection, &Path),
    to: &Path,
    beside: Option<&Path>,
    check_space: &dyn Fn(u64) -> Result<(), BackupFault>,
    on_progress: ProgressCallback<'_>,
) -> Result<Connection, BackupFault> {
    private::create(to, beside).map_err(|error| FileOperation::of("create the file", to).file(error))?;
    let copying = || FileOperation::of("copy to", to);
    let mut copy =
        Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(|error| copying().sql(error))?;
    // Only this process uses the copy, and a crash discards it. So it needs no locking, no journal and no sync.
    copy.execute_batch(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF",
    )
    .map_err(|error| copying().sql(error))?;

    // SQLite restarts a backup when another connection writes to the source. A read transaction pins a snapshot of the
    // source, which bounds the number of steps by the number of pages.
    let snapshot =
        source.unchecked_transaction().map_err(|error| FileOperation::of("read", from).sql(error))?;
    let number = |sql: &str| snapshot.query_row(sql, [], |row| row.get::<_, u32>(0));
    // A deferred transaction starts with its first read of a table.
    let read = |sql: &str| number(sql).map_err(|error| FileOperation::of("read", from).sql(error));
    read("SELECT count(*) FROM sqlite_schema")?;
    let (page_bytes, pages) = (read("PRAGMA page_size")?, read("PRAGMA page_count")?);
    let bytes = |pages: c_int| u64::try_from(pages).unwrap_or(0).saturating_mul(u64::from(page_bytes));
    let backup = Backup::new(&snapshot, &mut copy).map_err(|error| copying().sql(error))?;
    check_space(u64::from(pages).saturating_mul(u64::from(page_bytes)))?;
    while backup.step(STEP_PAGES).map_err(|error| copying().sql(error))? != StepResult::Done {
        let progress = backup.progress();
        check_space(bytes(progress.remaining))?;
        let done = progress.pagecount.saturating_sub(progress.remaining);
        on_progress(Progress::Copying { done: bytes(done), all: bytes(progress.pagecount) });
    }
    drop(backup);
    snapshot.finish().map_err(|error| FileOperation::of("read", from).sql(error))?;

    // The copied header marks the copy as a WAL-mode database.
    let journal_mode: String = copy
        .query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))
        .map_err(|error| copying().sql(error))?;
    assert!(journal_mode == "delete", "the journal mode of the copy cannot be changed: {journal_mode}");
    Ok(copy)
}

/// Reads the whole file and checks that its pages, rows, indexes and references are consistent.
pub(in crate::adapters::sqlite) fn check_sound(
    connection: &Connection,
    path: &Path,
    on_progress: ProgressCallback<'_>,
) -> Result<(), BackupFault> {
    on_progress(Progress::Checking);
    // If the damage is severe, the check itself fails.
    let reading = |error: rusqlite::Error| match remedy(&error) {
        Remedy::Repair => BackupFault::Damaged { path: path.to_owned(), findings: error.to_string() },
        Remedy::Wait | Remedy::Change => FileOperation::of("read", path).sql(error),
    };
    let findings = |sql: &str, fine: &str| -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare(sql)?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.filter(|row| row.as_ref().map_or(true, |finding| finding != fine)).collect()
    };
    let mut found = findings(&format!("PRAGMA integrity_check({FINDINGS_MAX})"), "ok").map_err(reading)?;
    if found.is_empty() {
        let sql = format!(
            "SELECT 'a row of ' || \"table\" || ' refers to a missing row of ' || parent
             FROM pragma_foreign_key_check LIMIT {FINDINGS_MAX}"
        );
        found = findings(&sql, "").map_err(reading)?;
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(BackupFault::Damaged { path: path.to_owned(), findings: found.join("; ") })
}

/// Closes a copy and syncs it to disk. Fails if the path no longer names the copy.
pub(in crate::adapters::sqlite) fn seal(copy: Connection, path: &Path) -> Result<(), BackupFault> {
    check_in_place(&copy, path)?;
    copy.close().map_err(|(_, error)| FileOperation::of("close", path).sql(error))?;
    let sync = || File::open(path)?.sync_all();
    sync().map_err(|error| FileOperation::of("sync", path).file(error))
}

/// Fails if the path of an open file names another file or no file.
pub(in crate::adapters::sqlite) fn check_in_place(
    connection: &Connection,
    path: &Path,
) -> Result<(), BackupFault> {
    match has_moved(connection) {
        Ok(false) => Ok(()),
        Ok(true) => Err(OpenFault::Files(FilesFault::Replaced { path: path.to_owned() }).into()),
        Err(error) => Err(FileOperation::of("look at", path).sql(error)),
    }
}

/// Refuses a file with a log beside it, because the log may contain changes that are missing in the file.
pub(in crate::adapters::sqlite) fn check_closed(path: &Path) -> Result<(), BackupFault> {
    let logs = SIDECARS.iter().filter(|suffix| **suffix != "-shm").map(|suffix| beside(path, suffix));
    for log in logs {
        if log.metadata().is_ok_and(|metadata| metadata.len() > 0) {
            return Err(BackupFault::NotClosed { path: path.to_owned(), beside: log });
        }
    }
    Ok(())
}
