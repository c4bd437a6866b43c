//! Restores that fail at each file operation, with a readable store and with an unreadable one.

use std::cell::Cell;
use std::collections::BTreeMap;

use rusqlite::OpenFlags;
use tempfile::TempDir;

use super::*;
use crate::adapters::sqlite::backup::{BackupOptions, Existing, SpaceLimits, take};
use crate::adapters::sqlite::connection::{Role, connect};
use crate::adapters::sqlite::migrations::migrate;
use crate::adapters::system::SystemWorld;

/// A file system whose operations all fail after a number of steps, as if the process was killed there.
struct FailingDisk {
    steps_left: Cell<u32>,
    /// The free space; `None` if it is unknown.
    free_bytes: Cell<Option<u64>>,
}

impl FailingDisk {
    fn after(steps: u32) -> Self {
        Self { steps_left: Cell::new(steps), free_bytes: Cell::new(None) }
    }

    fn step(&self, step: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.steps_left.get().checked_sub(1) {
            None => Err(io::Error::other("the process was killed")),
            Some(left) => {
                self.steps_left.set(left);
                step()
            }
        }
    }
}

impl Disk for FailingDisk {
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|| RealDisk.link(from, to))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|| RealDisk.rename(from, to))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step(|| RealDisk.remove(path))
    }
    fn sync(&self, folder: &Path) -> io::Result<()> {
        self.step(|| RealDisk.sync(folder))
    }
    fn free_bytes(&self, _folder: &Path) -> io::Result<Option<u64>> {
        Ok(self.free_bytes.get())
    }
}

/// A folder with a backup that contains the word "backup", and a killed process's store with "store" only in its log.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let live = folder.path().join("living.db");
        let connection = connect(&live, Role::Write).unwrap();
        migrate(&connection, &live).unwrap();
        write_word(&connection, "backup");
        let fixture = Self { folder };
        let options = BackupOptions { existing: Existing::Keep, limits: SpaceLimits::DEFAULT };
        take(&live, &fixture.backup(), options, &SystemWorld::new(), &mut |_| {}).unwrap();
        connection.query_row("PRAGMA wal_checkpoint", [], |_| Ok(())).unwrap();
        write_word(&connection, "store");
        for suffix in ["", "-wal"] {
            std::fs::copy(beside(&live, suffix), beside(&fixture.store(), suffix)).unwrap();
        }
        drop(connection);
        std::fs::remove_file(&live).unwrap();
        fixture
    }

    fn damage(&self) {
        std::fs::write(self.store(), "no database any more").unwrap();
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("postonce.db")
    }

    fn backup(&self) -> PathBuf {
        self.folder.path().join("backup.db")
    }

    fn restoration(&self) -> Restoration {
        let options = RestoreOptions { intent: Intent::Replace, order_number_gap: None, held: false };
        Restoration::prepare(&self.store(), &self.backup(), options, &SystemWorld::new(), &mut |_| {})
            .unwrap()
    }

    /// Returns the kept files of the old store, each with its word.
    fn kept(&self) -> BTreeMap<PathBuf, Option<String>> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let mains = entries.filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.contains(KEPT_MARK) && !SIDECARS.iter().any(|suffix| name.ends_with(suffix))
        });
        mains.map(|path| (path.clone(), read_word(&path))).collect()
    }
}

fn write_word(connection: &Connection, word: &str) {
    let sql =
        "INSERT INTO sync_values VALUES ('word', 1, ?1) ON CONFLICT DO UPDATE SET value = excluded.value";
    connection.execute(sql, [word]).unwrap();
}

/// Returns the word of a store if it is sound. Reads from copies, so that the store is not changed.
fn read_word(store: &Path) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let copied = folder.path().join("copy.db");
    for suffix in ["", "-wal", "-journal"] {
        if beside(store, suffix).exists() {
            std::fs::copy(beside(store, suffix), beside(&copied, suffix)).unwrap();
        }
    }
    let connection = Connection::open_with_flags(&copied, OpenFlags::SQLITE_OPEN_READ_WRITE).ok()?;
    check_sound(&connection, &copied, &mut |_| {}).ok()?;
    connection.query_row("SELECT value FROM sync_values WHERE name = 'word'", [], |row| row.get(0)).ok()
}

/// Number of steps at the end of a restore that remove the copy and its sidecars.
const CLEAN_UP_STEPS: u32 = 4;

/// Returns the number of steps of a successful restore.
fn steps(fixture: &Fixture) -> u32 {
    const MANY: u32 = 1000;
    let disk = FailingDisk::after(MANY);
    drop(fixture.restoration().carry_out_on(&disk, &mut |_| {}).unwrap());
    MANY.saturating_sub(disk.steps_left.get())
}

#[test]
fn a_restore_that_fails_at_any_step_leaves_the_old_store_or_the_new_one() {
    let steps = steps(&Fixture::new());
    let mut seen = BTreeMap::new();
    for failed_after in 0..=steps {
        let fixture = Fixture::new();
        let done = fixture.restoration().carry_out_on(&FailingDisk::after(failed_after), &mut |_| {});
        assert_eq!(done.is_ok(), failed_after + CLEAN_UP_STEPS >= steps, "{failed_after}");
        let word = read_word(&fixture.store())
            .unwrap_or_else(|| panic!("no sound store after {failed_after} steps"));
        if word == "backup" {
            assert!(
                !beside(&fixture.store(), "-wal").exists(),
                "a log of another store after {failed_after} steps"
            );
            assert_eq!(fixture.kept().into_values().collect::<Vec<_>>(), [Some("store".to_owned())]);
        }
        *seen.entry(word.clone()).or_insert(0) += 1;

        // A retry succeeds, and keeps the old store at most one more time.
        let plan = fixture.restoration().carry_out(&mut |_| {}).unwrap();
        assert_eq!(read_word(&fixture.store()).as_deref(), Some("backup"));
        assert_eq!(read_word(&plan.kept.unwrap()), Some(word));
        assert!(!beside(&fixture.store(), ".restoring").exists());
        let old =
            fixture.kept().into_values().filter(|read_word| read_word.as_deref() == Some("store")).count();
        assert_eq!(old, 1, "died after {failed_after} steps: {:?}", fixture.kept());
    }
    assert!(seen.get("store") > Some(&3) && seen.get("backup") > Some(&1), "{seen:?}");
}

#[test]
fn a_store_that_cannot_be_read_is_kept_with_its_log_which_is_not_applied_to_the_new_one() {
    let database_files = Fixture::new();
    database_files.damage();
    let steps = steps(&database_files);
    let log = std::fs::read(beside(&Fixture::new().store(), "-wal")).unwrap().len();
    for failed_after in 0..=steps {
        let fixture = Fixture::new();
        fixture.damage();
        let done = fixture.restoration().carry_out_on(&FailingDisk::after(failed_after), &mut |_| {});
        assert_eq!(done.is_ok(), failed_after + CLEAN_UP_STEPS >= steps, "{failed_after}");
        let is_new = read_word(&fixture.store()).as_deref() == Some("backup");
        let logs: Vec<PathBuf> = std::fs::read_dir(fixture.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().ends_with("-wal"))
            .collect();
        assert_eq!(logs.len(), 1, "the log exists once: {logs:?}");
        assert_eq!(std::fs::read(&logs[0]).unwrap().len(), log);
        assert!(!is_new || logs[0] != beside(&fixture.store(), "-wal"), "died after {failed_after} steps");
        drop(fixture.restoration().carry_out(&mut |_| {}).unwrap());
        assert_eq!(read_word(&fixture.store()).as_deref(), Some("backup"));
        assert!(!beside(&fixture.store(), "-wal").exists());
    }
}

#[test]
fn a_restore_for_which_the_disk_has_no_room_is_refused() {
    let fixture = Fixture::new();
    let needed = fixture.backup().metadata().unwrap().len();
    let disk = FailingDisk::after(u32::MAX);
    disk.free_bytes.set(Some(needed - 1));
    let refused = fixture.restoration().carry_out_on(&disk, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupFault::NoRoom { reserve_mib: 0, .. }), "{refused}");
    assert_eq!(read_word(&fixture.store()).as_deref(), Some("store"));
    assert!(fixture.kept().is_empty() && !beside(&fixture.store(), ".restoring").exists());
    disk.free_bytes.set(Some(needed));
    drop(fixture.restoration().carry_out_on(&disk, &mut |_| {}).unwrap());
    assert_eq!(read_word(&fixture.store()).as_deref(), Some("backup"));
}

#[test]
fn a_restore_is_refused_while_another_program_has_the_file_open() {
    let fixture = Fixture::new();
    let other = Connection::open(fixture.store()).unwrap();
    let tables = || other.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
    assert!(tables().unwrap() > 0);
    let refused = fixture.restoration().carry_out(&mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupFault::InUse { .. }), "{refused}");
    assert_eq!(read_word(&fixture.store()).as_deref(), Some("store"));
    assert!(fixture.kept().is_empty() && !beside(&fixture.store(), ".restoring").exists());
}
