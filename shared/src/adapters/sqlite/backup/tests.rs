//! Backups to disks that are full or become full.

use std::cell::Cell;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::adapters::sqlite::migrations::migrate;
use crate::adapters::system::SystemWorld;

/// Bytes that must stay free.
const RESERVE: u64 = 1000;
const OPTIONS: BackupOptions = BackupOptions {
    existing: Existing::Replace,
    limits: SpaceLimits { free_bytes_min: RESERVE, ..SpaceLimits::DEFAULT },
};
const BALLAST_BYTES: i64 = 40 * 1024 * 1024;

/// A store in its own folder, and an older backup in another folder.
struct Fixture {
    folder: TempDir,
    writer: Connection,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["store", "backups"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let store = folder.path().join("store/postonce.db");
        let writer = connect(&store, Role::Write).unwrap();
        migrate(&writer, &store).unwrap();
        writer.execute_batch("CREATE TABLE ballast (x)").unwrap();
        writer.execute("INSERT INTO ballast SELECT zeroblob(?1)", [BALLAST_BYTES]).unwrap();
        writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let fixture = Self { folder, writer };
        std::fs::write(fixture.file(), "older").unwrap();
        fixture
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store/postonce.db")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("backups/backup.db")
    }

    fn back_up(
        &self,
        free: FreeBytes<'_>,
        on_progress: ProgressCallback<'_>,
    ) -> Result<TakenBackup, BackupFault> {
        take_on(free, (&self.store(), &self.file()), OPTIONS, &SystemWorld::new(), on_progress)
    }

    /// Checks that the older backup is unchanged and that no other file is left.
    fn check_unchanged(&self) {
        assert_eq!(std::fs::read(self.file()).unwrap(), b"older");
        assert_eq!(std::fs::read_dir(self.folder.path().join("backups")).unwrap().count(), 1);
    }
}

#[test]
fn a_backup_for_which_the_disk_has_no_room_does_not_begin() {
    let fixture = Fixture::new();
    let needed = fixture.store().metadata().unwrap().len();
    let mut steps = 0;
    let refused = fixture.back_up(&|_| Ok(Some(needed + RESERVE - 1)), &mut |_| steps += 1).unwrap_err();
    assert!(matches!(refused, BackupFault::NoRoom { .. }), "{refused}");
    assert_eq!(steps, 0);
    fixture.check_unchanged();
    let unknown = fixture.back_up(&|_| Ok(None), &mut |_| {}).unwrap();
    let written = Cell::new(0);
    let free = |_: &Path| Ok(Some((needed + RESERVE).saturating_sub(written.get())));
    let taken = fixture.back_up(&free, &mut |progress| {
        if let Progress::Copying { done, .. } = progress {
            written.set(done);
        }
    });
    assert_eq!((unknown.bytes, taken.unwrap().bytes), (needed, needed));
}

#[test]
fn a_backup_ends_when_the_disk_fills_while_it_copies() {
    let fixture = Fixture::new();
    let (steps, plenty) = (Cell::new(0), BALLAST_BYTES.unsigned_abs() * 2);
    let free = |_: &Path| Ok(Some(if steps.get() < 2 { plenty } else { RESERVE }));
    let ended = fixture.back_up(&free, &mut |_| steps.set(steps.get() + 1)).unwrap_err();
    assert!(matches!(ended, BackupFault::NoRoom { free_mib: 0, rest_mib: 1.., .. }), "{ended}");
    assert_eq!(steps.get(), 2);
    fixture.check_unchanged();
}

#[test]
fn a_backup_to_another_disk_ends_when_the_log_fills_the_disk_of_the_store() {
    let fixture = Fixture::new();
    let stores_disk_is_full = |folder: &Path| {
        Ok(Some(if folder.ends_with("store") { RESERVE - 1 } else { BALLAST_BYTES.unsigned_abs() * 2 }))
    };
    let write = &mut |_| {
        fixture.writer.execute("INSERT INTO ballast VALUES (1)", []).unwrap();
    };
    let ended = fixture.back_up(&stores_disk_is_full, write).unwrap_err();
    assert!(matches!(ended, BackupFault::StoreDiskFills { growth_mib: 1, .. }), "{ended}");
    fixture.check_unchanged();
    // If nothing is written, a store on a full disk can be backed up.
    fixture.back_up(&stores_disk_is_full, &mut |_| {}).unwrap();
}

#[test]
fn the_free_space_of_a_real_file_system_is_known() {
    let folder = tempfile::tempdir().unwrap();
    assert!(free_bytes(folder.path()).unwrap().unwrap() > 0);
    assert!(free_bytes(&folder.path().join("missing")).is_err());
}
