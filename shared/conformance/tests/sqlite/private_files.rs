//! Access rights of the store's files, under any umask.

use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use postonce_shared::adapters::sqlite::backup::{Progress, take};
use postonce_shared::adapters::sqlite::restore::{Intent, Restoration, RestoreOptions};
use postonce_shared::testing::captured_output::Written;
use postonce_shared::testing::prelude::*;
use rusqlite::Connection;

use super::backup::KEEP;
use super::fixture::{Fixture, one_message_per_work, within_deadline};

/// Variable with the folder that a child process uses.
const FOLDER: &str = "POSTONCE_TEST_FOLDER";

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// The files of a folder, with their modes.
fn modes(folder: &Path) -> Vec<(String, u32)> {
    let mut found: Vec<(String, u32)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), mode(&path)))
        .collect();
    found.sort();
    found
}

/// Checks the modes of a folder and of all its files, and that the files in `least` exist.
fn assert_private(folder: &Path, least: &[&str]) {
    let found = modes(folder);
    let open: Vec<_> = found.iter().filter(|(_, mode)| *mode != 0o600).collect();
    assert!(open.is_empty() && mode(folder) == 0o700, "{:04o} {found:?}", mode(folder));
    for name in least {
        assert!(found.iter().any(|(found, _)| found == name), "there is no {name}: {found:?}");
    }
}

/// Runs one of the tests below in a child process with the given umask.
fn child(umask: &str, folder: &Path, test: &str) -> Output {
    Command::new("sh")
        .args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("sqlite::private_files::{test}"), "--nocapture"])
        .env(FOLDER, folder)
        .output()
        .unwrap()
}

#[test]
fn all_files_are_private_from_their_creation_under_any_umask() {
    for umask in ["000", "022", "077", "777"] {
        let folder = tempfile::tempdir().unwrap();
        let ran = child(umask, folder.path(), "creation_backup_and_restore_of_a_store");
        let printed = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && printed.contains("1 passed"), "umask {umask}: {ran:?}");
    }
}

/// Creates, uses, backs up and restores a store. Does nothing unless it runs as a child process.
#[test]
fn creation_backup_and_restore_of_a_store() {
    let Some(outer) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let (folder, backups) = (outer.join("new").join("data"), outer.join("backups"));
    std::fs::create_dir(&backups).unwrap();
    set_mode(&backups, 0o700);
    let (path, backup) = (folder.join("postonce.db"), backups.join("backup.db"));
    let world = Arc::new(SystemWorld::new());
    within_deadline(async {
        let store = SqliteStore::open(&path, Arc::new(one_message_per_work), world.clone()).unwrap();
        let least = ["postonce.db", "postonce.db-shm", "postonce.db-wal", "postonce.db.lock"];
        assert_private(&folder, &least);
        assert_eq!(mode(&outer.join("new")), 0o700, "a missing parent folder is created private, too");
        let watcher = &mut |progress| {
            let copying = matches!(progress, Progress::Copying { .. });
            assert_private(&backups, if copying { &["backup.db.partial"] } else { &[] });
        };
        drop(take(&path, &backup, KEEP, &*world, watcher).unwrap());
        assert_private(&backups, &["backup.db"]);
        assert_private(&folder, &["postonce.db.backup-lock"]);
        drop(store);
    });
    // As an operator left it.
    set_mode(&path, 0o644);
    let options = RestoreOptions { intent: Intent::Replace, order_number_gap: None, held: false };
    let restoration = Restoration::prepare(&path, &backup, options, &*world, &mut |_| {}).unwrap();
    assert_private(&folder, &["postonce.db"]);
    let watcher = &mut |_| {
        let found = modes(&folder);
        let prepared = found.iter().filter(|(name, _)| name.starts_with("postonce.db.restoring"));
        assert!(prepared.into_iter().all(|(_, mode)| *mode == 0o600), "{found:?}");
    };
    let plan = restoration.carry_out(watcher).unwrap();
    let kept = plan.kept.unwrap();
    assert_private(&folder, &["postonce.db", kept.file_name().unwrap().to_str().unwrap()]);
}

/// The log of an action.
fn logged(action: impl FnOnce()) -> String {
    let written = Written::default();
    let writer = written.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(log, action);
    written.lines().join("\n")
}

fn folder_of(fixture: &Fixture) -> PathBuf {
    fixture.path().parent().unwrap().to_owned()
}

#[test]
fn a_store_that_other_users_can_read_is_made_private_with_one_warning() {
    let fixture = Fixture::new();
    let _open = fixture.open();
    for (name, _) in modes(&folder_of(&fixture)) {
        set_mode(&folder_of(&fixture).join(name), 0o664);
    }
    set_mode(&fixture.path(), 0o644);
    set_mode(&folder_of(&fixture), 0o755);
    let warned = logged(|| drop(fixture.open()));
    assert_private(&folder_of(&fixture), &["postonce.db-wal", "postonce.db-shm"]);
    let lines: Vec<&str> = warned.lines().filter(|line| line.contains("WARN")).collect();
    assert!(lines.len() == 2 && lines[0].contains("it had 0755"), "{warned}");
    assert!(lines[1].contains("postonce.db had mode 0644"), "{warned}");
    assert!(lines[1].contains("postonce.db-wal had mode 0664"), "{warned}");
    assert!(lines[1].contains("postonce.db.lock had mode 0664"), "{warned}");
    let again = logged(|| drop(fixture.open()));
    assert!(!again.contains("WARN"), "{again}");
}

#[test]
fn readers_and_backups_make_a_store_private_too() {
    let fixture = Fixture::new();
    drop(fixture.open());
    set_mode(&fixture.path(), 0o640);
    drop(SqliteStore::open_to_read(&fixture.path(), fixture.shared_world()).unwrap());
    assert_eq!(mode(&fixture.path()), 0o600);
    set_mode(&fixture.path(), 0o604);
    drop(take(&fixture.path(), &fixture.file("b.db"), KEEP, fixture.world(), &mut |_| {}).unwrap());
    assert_eq!(mode(&fixture.path()), 0o600);
}

#[test]
fn the_mode_of_a_folder_with_other_files_is_not_changed() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let folder = folder_of(&fixture);
    File::create(folder.join("notes.txt")).unwrap();
    set_mode(&folder, 0o755);
    let silent = logged(|| drop(fixture.open()));
    assert!(!silent.contains("WARN") && mode(&folder) == 0o755, "{silent}");
    set_mode(&folder, 0o775);
    let warned = logged(|| drop(fixture.open()));
    assert!(warned.contains("Other users can write to the folder") && mode(&folder) == 0o775, "{warned}");
    assert_eq!(mode(&fixture.path()), 0o600);
}

/// When a process closes any handle of a file, POSIX releases the locks that it holds on that file.
#[test]
fn making_a_store_private_keeps_the_locks_of_sqlite() {
    let fixture = Fixture::new();
    let _open = fixture.open();
    let writer = fixture.sql();
    writer.execute_batch("BEGIN IMMEDIATE; INSERT INTO sync_values VALUES ('a', 0, '')").unwrap();
    for (name, _) in modes(&folder_of(&fixture)) {
        set_mode(&folder_of(&fixture).join(name), 0o644);
    }
    drop(SqliteStore::open_to_read(&fixture.path(), fixture.shared_world()).unwrap());
    assert_private(&folder_of(&fixture), &["postonce.db-shm"]);
    let ran = child("022", &folder_of(&fixture), "another_process_cannot_write");
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && printed.contains("1 passed"), "{ran:?}");
    writer.execute_batch("COMMIT").unwrap();
}

/// Does nothing unless it runs as a child process.
#[test]
fn another_process_cannot_write() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let sql = Connection::open(folder.join("postonce.db")).unwrap();
    let refused = sql.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy), "{refused}");
}

/// Tests something only as root, because other users cannot change the owner of a file.
#[test]
fn files_that_root_creates_belong_to_the_owner_of_the_store() {
    const SERVICE: Option<u32> = Some(4_711);
    let fixture = Fixture::new();
    let folder = folder_of(&fixture);
    std::fs::create_dir(&folder).unwrap();
    if chown(&folder, SERVICE, SERVICE).is_err() {
        return;
    }
    let owners = || {
        let paths = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        paths.map(|path| (path.clone(), path.metadata().unwrap().uid())).collect::<Vec<_>>()
    };
    let check = |least: usize| {
        let found = owners();
        assert!(found.len() >= least && found.iter().all(|(_, uid)| Some(*uid) == SERVICE), "{found:?}");
    };
    let store = fixture.open();
    check(4);
    let backup = folder.join("postonce.db.backup");
    drop(take(&fixture.path(), &backup, KEEP, fixture.world(), &mut |_| {}).unwrap());
    check(6);
    drop(store);
    let lock = folder.join("postonce.db.lock");
    chown(&lock, Some(0), Some(0)).unwrap();
    set_mode(&lock, 0o644);
    drop(fixture.open());
    check(4);
    let outside = fixture.file("outside.db");
    drop(take(&fixture.path(), &outside, KEEP, fixture.world(), &mut |_| {}).unwrap());
    assert_eq!(
        outside.metadata().unwrap().uid(),
        0,
        "a backup in another folder belongs to the user who took it"
    );
}
