//! Backups are complete, show one moment, and neither block nor change the store.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use postonce_shared::adapters::sqlite::SCHEMA_VERSION;
use postonce_shared::adapters::sqlite::backup::{
    BackupFault, BackupOptions, Existing, Progress, SpaceLimits, TakenBackup, take,
};
use postonce_shared::testing::fresh_nonce;
use rusqlite::Connection;

use super::fixture::{Fixture, number, within_deadline};

pub const KEEP: BackupOptions = BackupOptions { existing: Existing::Keep, limits: SpaceLimits::DEFAULT };
const REPLACE: BackupOptions = BackupOptions { existing: Existing::Replace, ..KEEP };

pub fn back_up(fixture: &Fixture, file: &Path) -> Result<TakenBackup, BackupFault> {
    take(&fixture.path(), file, KEEP, fixture.world(), &mut |_| {})
}

/// SQLite's backup starts again when another connection has written; here one writes after each step. Both
/// values change together, so a copy that mixes two moments would show.
#[test]
fn a_backup_ends_and_shows_one_moment_under_constant_writes() {
    const BYTES: i64 = 40 * 1024 * 1024;
    let fixture = Fixture::new();
    let _store = fixture.open();
    let writer = fixture.sql();
    writer
        .execute_batch("CREATE TABLE ballast (x); INSERT INTO sync_values VALUES ('a', 0, ''), ('b', 0, '')")
        .unwrap();
    writer.execute("INSERT INTO ballast SELECT zeroblob(?1)", [BYTES]).unwrap();
    let (mut steps, mut written) = (0, 0);
    let watcher = &mut |progress| {
        if matches!(progress, Progress::Copying { .. }) {
            steps += 1;
            written += writer
                .execute("UPDATE sync_values SET revision = revision + 1 WHERE name IN ('a', 'b')", [])
                .unwrap();
            assert!(steps < 20, "the copy started again");
        }
    };
    let file = fixture.file("backup.db");
    take(&fixture.path(), &file, KEEP, fixture.world(), watcher).unwrap();
    assert!(steps >= 4 && written == 2 * steps, "{steps} steps, {written} rows written");
    let backup = Connection::open(&file).unwrap();
    let revisions = "SELECT sum(revision) FROM sync_values WHERE name IN ('a', 'b')";
    assert_eq!(number(&backup, revisions), 0, "the backup shows the moment of its start");
    assert_eq!(number(&fixture.sql(), revisions), i64::try_from(written).unwrap());
}

/// The last process that closes the store removes its log.
#[test]
fn the_service_can_be_restarted_while_a_backup_is_checked() {
    let fixture = Fixture::new();
    let mut open = Some(fixture.open());
    let log = fixture.path().with_extension("db-wal");
    let mut restarted = 0;
    let watcher = &mut |progress| {
        if matches!(progress, Progress::Checking) && restarted == 0 {
            assert!(log.exists());
            drop(open.take());
            let until = fixture.world().uptime() + Duration::from_secs(20);
            while log.exists() {
                assert!(fixture.world().uptime() < until, "the log is removed");
                std::thread::yield_now();
            }
            open = Some(fixture.open());
            restarted += 1;
        }
    };
    take(&fixture.path(), &fixture.file("backup.db"), KEEP, fixture.world(), watcher).unwrap();
    assert_eq!(restarted, 1);
}

/// While a backup copies, the log cannot be emptied. A backup that takes too long gives up, and the service continues.
#[test]
fn a_backup_that_makes_the_log_too_long_ends_and_the_service_goes_on() {
    const BALLAST_BYTES: i64 = 64 * 1024 * 1024;
    const WRITTEN_BYTES: i64 = 3 * 1024 * 1024;
    const GROWTH_BYTES_MAX: u64 = 4 * 1024 * 1024;
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        fixture.open_account(&store).await;
        let writer = fixture.sql();
        writer.execute_batch("CREATE TABLE ballast (x)").unwrap();
        writer.execute("INSERT INTO ballast SELECT zeroblob(?1)", [BALLAST_BYTES]).unwrap();
        let empty_log = || number(&writer, "PRAGMA wal_checkpoint(TRUNCATE)");
        assert_eq!(empty_log(), 0);
        let (file, mut steps) = (fixture.file("backup.db"), 0);
        let watcher = &mut |progress| {
            if matches!(progress, Progress::Copying { .. }) {
                steps += 1;
                writer.execute("INSERT INTO ballast SELECT zeroblob(?1)", [WRITTEN_BYTES]).unwrap();
            }
        };
        let limits = SpaceLimits { log_growth_bytes_max: GROWTH_BYTES_MAX, ..SpaceLimits::DEFAULT };
        let options = BackupOptions { limits, ..KEEP };
        let ended = take(&fixture.path(), &file, options, fixture.world(), watcher).unwrap_err();
        let BackupFault::LogGrows { growth_mib, growth_mib_max, .. } = ended else { panic!("{ended}") };
        assert_eq!((growth_mib_max, steps), (4, 2), "{growth_mib} MiB");
        assert!((5..=8).contains(&growth_mib), "{growth_mib} MiB");
        assert!(!file.exists() && !fixture.file("backup.db.partial").exists());

        assert_eq!(empty_log(), 0, "no snapshot is left that keeps the log from being emptied");
        drop(store.ledger.accept(&[fixture.deposit(1)], fresh_nonce()).await.unwrap());
        assert_eq!(back_up(&fixture, &file).unwrap().contents.accepted, 1);
    });
}

#[test]
fn a_backup_is_one_private_file_and_its_contents_are_reported() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        fixture.open_account(&store).await;
        drop(store.ledger.accept(&[fixture.deposit(1), fixture.deposit(2)], fresh_nonce()).await.unwrap());
        drop(store.ledger.commit(&fixture.decide(&store, &[1], 1).await).await.unwrap());
        let file = fixture.file("backup.db");
        let before = fixture.world().now();
        let taken = back_up(&fixture, &file).unwrap();
        let contents = taken.contents;
        assert_eq!((contents.accounts, contents.posted, contents.accepted, contents.rejected), (1, 1, 1, 0));
        assert!(
            contents.taken_at.unwrap() >= before && contents.newest_at.unwrap() <= contents.taken_at.unwrap()
        );
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (taken.bytes, 0o600));
        let beside: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().collect();
        assert_eq!(beside.len(), 2, "the backup and the folder of the store: {beside:?}");
    });
}

#[test]
fn an_existing_file_is_replaced_only_on_request() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let file = fixture.file("backup.db");
    std::fs::write(&file, "precious").unwrap();
    let refused = back_up(&fixture, &file).unwrap_err();
    assert!(matches!(refused, BackupFault::Exists { .. }), "{refused}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    // The partial file of a killed backup does not block the next one.
    std::fs::write(fixture.file("backup.db.partial"), "half").unwrap();
    drop(take(&fixture.path(), &file, REPLACE, fixture.world(), &mut |_| {}).unwrap());
    assert!(!fixture.file("backup.db.partial").exists());
    assert_eq!(number(&Connection::open(&file).unwrap(), "PRAGMA user_version"), SCHEMA_VERSION);
    // A backup never replaces a store, neither its own nor another one.
    for own in ["", "-wal", "-shm", ".lock"] {
        let mut path = fixture.path().into_os_string();
        path.push(own);
        let refused = take(&fixture.path(), Path::new(&path), REPLACE, fixture.world(), &mut |_| {});
        assert!(matches!(refused, Err(BackupFault::SameFile { .. })), "{own:?}");
    }
    let other = Fixture::new();
    let _in_use = other.open();
    let refused = take(&fixture.path(), &other.path(), REPLACE, fixture.world(), &mut |_| {});
    assert!(matches!(refused, Err(BackupFault::NotClosed { .. })));
}

#[test]
fn one_backup_is_taken_at_a_time() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let (mut second, file, other) = (None, fixture.file("one.db"), fixture.file("other.db"));
    let watcher = &mut |_| second = Some(back_up(&fixture, &other));
    drop(take(&fixture.path(), &file, KEEP, fixture.world(), watcher).unwrap());
    assert!(matches!(second, Some(Err(BackupFault::UnderWay))));
    assert!(!other.exists() && file.exists());
}

#[test]
fn a_backup_creates_no_store_and_takes_none_of_another_program() {
    let fixture = Fixture::new();
    let file = fixture.file("backup.db");
    assert!(matches!(back_up(&fixture, &file), Err(BackupFault::Missing { .. })));
    assert!(!fixture.path().exists() && !file.exists());
    let foreign = Fixture::new();
    std::fs::create_dir_all(foreign.path().parent().unwrap()).unwrap();
    foreign.sql().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(matches!(back_up(&foreign, &foreign.file("backup.db")), Err(BackupFault::Open(_))));
}

/// Damage that the service has not reached yet is found while an older backup can still help.
#[test]
fn a_damaged_store_gives_no_backup() {
    let fixture = Fixture::new();
    drop(fixture.open());
    let sql = fixture.sql();
    sql.execute_batch(
        "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'dead_letters_open'",
    )
    .unwrap();
    drop(sql);
    let refused = back_up(&fixture, &fixture.file("backup.db")).unwrap_err();
    assert!(matches!(refused, BackupFault::Damaged { .. }), "{refused}");
    assert!(!fixture.file("backup.db").exists() && !fixture.file("backup.db.partial").exists());
}
