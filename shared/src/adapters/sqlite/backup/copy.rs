//! From one file to another, page by page, and whether what came of it is sound.

use std::ffi::{OsString, c_int};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::fault::{BackupFault, Doing};
use crate::adapters::sqlite::fault::{Remedy, remedy};
use crate::adapters::sqlite::paths::{SIDECARS, beside};
use crate::adapters::sqlite::private;

/// Pages that are copied at a time: 8 MiB, so that progress can be shown.
const STEP_PAGES: c_int = 2048;

/// Findings that are told of a damaged file.
const FINDINGS_MAX: u32 = 5;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Checks a file from beginning to end.
    Checking,
    /// So many bytes of so many are copied.
    Copying {
        /// Bytes that are copied.
        done: u64,
        /// Bytes in all.
        all: u64,
    },
}

/// Hears how far it is.
pub type Watcher<'a> = &'a mut dyn FnMut(Progress);

/// Opens a file that nobody changes, and changes nothing: neither the file nor its folder.
pub(in crate::adapters::sqlite) fn open_unchanged(path: &Path) -> rusqlite::Result<Connection> {
    // The file may be of a store with a write-ahead log; otherwise SQLite would put one beside it.
    let mut uri = OsString::from("file:");
    uri.push(quoted(path));
    uri.push("?immutable=1");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(PathBuf::from(uri), flags)
}

/// A path within a URI.
fn quoted(path: &Path) -> OsString {
    let quote = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => vec![*byte],
        _ => format!("%{byte:02X}").into_bytes(),
    };
    OsString::from_vec(path.as_os_str().as_bytes().iter().flat_map(quote).collect())
}

/// Copies the whole source as it is at one moment, however much is written to it meanwhile, into a new
/// file that only its owner can read: the owner of `beside`, if that is a store. The copy is one file without
/// a log.
///
/// It is not yet safe from a loss of power: [`seal`] makes it so.
pub(in crate::adapters::sqlite) fn copy(
    (source, from): (&Connection, &Path),
    to: &Path,
    beside: Option<&Path>,
    watcher: Watcher<'_>,
) -> Result<Connection, BackupFault> {
    private::create(to, beside).map_err(|error| Doing::of("create the file", to).file(error))?;
    let copying = || Doing::of("copy to", to);
    let mut copy =
        Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(|error| copying().sql(error))?;
    // Nobody else has it, and after a crash it is thrown away: no lock, no journal, no sync on the way.
    copy.execute_batch(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF",
    )
    .map_err(|error| copying().sql(error))?;

    // SQLite begins a backup anew whenever somebody else has written in between. Within a transaction that
    // reads, the source stands still for this connection: it ends after as many steps as it has pages for.
    let snapshot = source.unchecked_transaction().map_err(|error| Doing::of("read", from).sql(error))?;
    let number = |sql: &str| snapshot.query_row(sql, [], |row| row.get::<_, u32>(0));
    // A transaction begins with its first look at the tables.
    number("SELECT count(*) FROM sqlite_schema").map_err(|error| Doing::of("read", from).sql(error))?;
    let page_bytes = number("PRAGMA page_size").map_err(|error| Doing::of("read", from).sql(error))?;
    let bytes = |pages: c_int| u64::try_from(pages).unwrap_or(0).saturating_mul(u64::from(page_bytes));
    let backup = Backup::new(&snapshot, &mut copy).map_err(|error| copying().sql(error))?;
    while backup.step(STEP_PAGES).map_err(|error| copying().sql(error))? != StepResult::Done {
        let progress = backup.progress();
        let done = progress.pagecount.saturating_sub(progress.remaining);
        watcher(Progress::Copying { done: bytes(done), all: bytes(progress.pagecount) });
    }
    drop(backup);
    snapshot.finish().map_err(|error| Doing::of("read", from).sql(error))?;

    // The copy says of itself that it has a write-ahead log, as the source does.
    let journal_mode: String = copy
        .query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))
        .map_err(|error| copying().sql(error))?;
    assert!(journal_mode == "delete", "a file that nobody else has can leave its log: {journal_mode}");
    Ok(copy)
}

/// Reads the whole file: whether its pages, rows, indexes and references fit together.
pub(in crate::adapters::sqlite) fn check_sound(
    connection: &Connection,
    path: &Path,
    watcher: Watcher<'_>,
) -> Result<(), BackupFault> {
    watcher(Progress::Checking);
    // Where the damage is bad enough, the check itself cannot go on.
    let reading = |error: rusqlite::Error| match remedy(&error) {
        Remedy::Repair => BackupFault::Damaged { path: path.to_owned(), findings: error.to_string() },
        Remedy::Wait | Remedy::Change => Doing::of("read", path).sql(error),
    };
    let findings = |sql: &str, fine: &str| -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare(sql)?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.filter(|row| row.as_ref().map_or(true, |finding| finding != fine)).collect()
    };
    let mut found = findings(&format!("PRAGMA integrity_check({FINDINGS_MAX})"), "ok").map_err(reading)?;
    if found.is_empty() {
        let sql = format!(
            "SELECT 'a row of ' || \"table\" || ' refers to none of ' || parent
             FROM pragma_foreign_key_check LIMIT {FINDINGS_MAX}"
        );
        found = findings(&sql, "").map_err(reading)?;
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(BackupFault::Damaged { path: path.to_owned(), findings: found.join("; ") })
}

/// Closes a copy, and makes it safe from a loss of power.
pub(in crate::adapters::sqlite) fn seal(copy: Connection, path: &Path) -> Result<(), BackupFault> {
    copy.close().map_err(|(_, error)| Doing::of("close", path).sql(error))?;
    let sync = || File::open(path)?.sync_all();
    sync().map_err(|error| Doing::of("sync", path).file(error))
}

/// Refuses a file that has more to it than is in it.
pub(in crate::adapters::sqlite) fn check_closed(path: &Path) -> Result<(), BackupFault> {
    let logs = SIDECARS.iter().filter(|suffix| **suffix != "-shm").map(|suffix| beside(path, suffix));
    for log in logs {
        if log.metadata().is_ok_and(|metadata| metadata.len() > 0) {
            return Err(BackupFault::NotClosed { path: path.to_owned(), beside: log });
        }
    }
    Ok(())
}
