//! Backups: whole, of one moment, and never in the way of anything.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use postonce_shared::adapters::sqlite::SCHEMA_VERSION;
use postonce_shared::adapters::sqlite::backup::{BackupFault, Existing, Progress, TakenBackup, take};
use rusqlite::Connection;

use super::bank::{Bank, number, within_deadline};

fn back_up(bank: &Bank, file: &Path) -> Result<TakenBackup, BackupFault> {
    take(&bank.path(), file, Existing::Keep, bank.world(), &mut |_| {})
}

/// SQLite's backup begins anew when somebody else has written: here somebody always has. Both values
/// change together, so a copy of two moments would show.
#[test]
fn it_ends_and_is_of_one_moment_however_much_is_written() {
    const BYTES: i64 = 40 * 1024 * 1024;
    let bank = Bank::new();
    let _store = bank.open();
    let writer = bank.sql();
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
            assert!(steps < 20, "it began anew");
        }
    };
    let file = bank.file("backup.db");
    take(&bank.path(), &file, Existing::Keep, bank.world(), watcher).unwrap();
    assert!(steps >= 4 && written == 2 * steps, "{steps} steps, {written} rows written meanwhile");
    let backup = Connection::open(&file).unwrap();
    let revisions = "SELECT sum(revision) FROM sync_values WHERE name IN ('a', 'b')";
    assert_eq!(number(&backup, revisions), 0, "the moment is that of its beginning");
    assert_eq!(number(&bank.sql(), revisions), i64::try_from(written).unwrap());
}

#[test]
fn it_is_one_private_file_that_says_what_is_in_it() {
    within_deadline(async {
        let bank = Bank::new();
        let store = bank.open();
        bank.open_account(&store).await;
        drop(store.ledger.accept(&[bank.deposit(1), bank.deposit(2)]).await.unwrap());
        drop(store.ledger.commit(&bank.decide(&store, &[1], 1).await).await.unwrap());
        let file = bank.file("backup.db");
        let before = bank.world().now();
        let taken = back_up(&bank, &file).unwrap();
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
fn a_file_is_replaced_only_where_that_is_asked_for() {
    let bank = Bank::new();
    drop(bank.open());
    let file = bank.file("backup.db");
    std::fs::write(&file, "precious").unwrap();
    let refused = back_up(&bank, &file).unwrap_err();
    assert!(matches!(refused, BackupFault::Exists { .. }), "{refused}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    // What a backup that was killed has left is in nobody's way.
    std::fs::write(bank.file("backup.db.partial"), "half").unwrap();
    drop(take(&bank.path(), &file, Existing::Replace, bank.world(), &mut |_| {}).unwrap());
    assert!(!bank.file("backup.db.partial").exists());
    assert_eq!(number(&Connection::open(&file).unwrap(), "PRAGMA user_version"), SCHEMA_VERSION);
    // A store is never replaced by a backup, neither the own one nor another's.
    for own in ["", "-wal", "-shm", ".lock"] {
        let mut path = bank.path().into_os_string();
        path.push(own);
        let refused = take(&bank.path(), Path::new(&path), Existing::Replace, bank.world(), &mut |_| {});
        assert!(matches!(refused, Err(BackupFault::SameFile { .. })), "{own:?}");
    }
    let other = Bank::new();
    let _in_use = other.open();
    let refused = take(&bank.path(), &other.path(), Existing::Replace, bank.world(), &mut |_| {});
    assert!(matches!(refused, Err(BackupFault::NotClosed { .. })));
}

#[test]
fn one_is_taken_at_a_time() {
    let bank = Bank::new();
    drop(bank.open());
    let (mut met, file, other) = (None, bank.file("one.db"), bank.file("other.db"));
    let watcher = &mut |_| met = Some(back_up(&bank, &other));
    drop(take(&bank.path(), &file, Existing::Keep, bank.world(), watcher).unwrap());
    assert!(matches!(met, Some(Err(BackupFault::UnderWay))));
    assert!(!other.exists() && file.exists());
}

#[test]
fn it_makes_no_store_and_migrates_none() {
    let bank = Bank::new();
    let file = bank.file("backup.db");
    assert!(matches!(back_up(&bank, &file), Err(BackupFault::Missing { .. })));
    assert!(!bank.path().exists() && !file.exists());
    // A store of the first version of this program.
    first_schema(&bank);
    assert_eq!(back_up(&bank, &file).unwrap().contents.schema_version, 1);
    assert_eq!(number(&bank.sql(), "PRAGMA user_version"), 1, "a backup before an upgrade is no upgrade");
    let foreign = Bank::new();
    std::fs::create_dir_all(foreign.path().parent().unwrap()).unwrap();
    foreign.sql().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(matches!(back_up(&foreign, &foreign.file("backup.db")), Err(BackupFault::Open(_))));
}

/// Damage that the service has not met yet is found when it is still of use to know.
#[test]
fn a_damaged_store_gives_no_backup() {
    let bank = Bank::new();
    drop(bank.open());
    let sql = bank.sql();
    sql.execute_batch(
        "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'dead_letters_open'",
    )
    .unwrap();
    drop(sql);
    let refused = back_up(&bank, &bank.file("backup.db")).unwrap_err();
    assert!(matches!(refused, BackupFault::Damaged { .. }), "{refused}");
    assert!(!bank.file("backup.db").exists() && !bank.file("backup.db.partial").exists());
}

/// Makes the store one of the first schema.
pub fn first_schema(bank: &Bank) {
    std::fs::create_dir_all(bank.path().parent().unwrap()).unwrap();
    let sql = bank.sql();
    sql.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    sql.execute_batch(include_str!("../../src/adapters/sqlite/migrations/001_initial.sql")).unwrap();
    sql.execute_batch("PRAGMA user_version = 1; PRAGMA application_id = 0x506f7374").unwrap();
}
