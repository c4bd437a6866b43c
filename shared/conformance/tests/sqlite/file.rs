//! The file: which programs may open it, and its contents after a crash or damage.

use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use postonce_shared::adapters::sqlite::{OpenFault, SCHEMA_VERSION, SqliteStore};
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;

use super::fixture::{Fixture, account_key, corrupt, journal_mode, number, within_deadline, work_queue};

#[test]
fn opening_creates_the_folder_and_the_schema() {
    let fixture = Fixture::new();
    within_deadline(async {
        fixture.open().ledger.probe().await.unwrap();
        assert_eq!(number(&fixture.sql(), "PRAGMA user_version"), SCHEMA_VERSION);
        assert_eq!(journal_mode(&fixture), "wal");
    });
}

#[test]
fn a_newer_schema_is_refused_and_not_changed() {
    let fixture = Fixture::new();
    drop(fixture.open());
    fixture.sql().pragma_update(None, "user_version", SCHEMA_VERSION + 1).unwrap();
    let fault = fixture.refusal();
    assert!(matches!(fault, OpenFault::Newer { found, .. } if found == SCHEMA_VERSION + 1), "{fault}");
    assert!(fault.to_string().ends_with("start a newer program"), "{fault}");
    fixture.sql().pragma_update(None, "user_version", SCHEMA_VERSION).unwrap();
    drop(fixture.open());
}

#[test]
fn files_of_other_programs_are_refused_and_not_changed() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path().parent().unwrap()).unwrap();
    fixture.sql().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(matches!(fixture.refusal(), OpenFault::Foreign { .. }));
    assert_eq!(journal_mode(&fixture), "delete");
    std::fs::write(fixture.path(), "this is no database. ".repeat(100)).unwrap();
    assert!(matches!(fixture.refusal(), OpenFault::Database { .. }));
}

#[test]
fn many_processes_may_start_at_once() {
    for _ in 0..5 {
        let fixture = Fixture::new();
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    drop(fixture.open());
                });
            }
        });
        assert_eq!(number(&fixture.sql(), "PRAGMA user_version"), SCHEMA_VERSION);
    }
}

#[test]
fn a_closed_store_is_one_complete_file_even_while_a_thread_holds_it() {
    let (fixture, copied) = (Fixture::new(), Fixture::new());
    within_deadline(async {
        let held = fixture.open();
        fill(&fixture, &held).await;
        let log = fixture.path().with_extension("db-wal");
        assert_ne!(std::fs::metadata(&log).unwrap().len(), 0);
        SqliteStore::checkpoint(&fixture.path()).unwrap();
        assert_eq!(std::fs::metadata(&log).unwrap().len(), 0);
        std::fs::create_dir_all(copied.path().parent().unwrap()).unwrap();
        std::fs::copy(fixture.path(), copied.path()).unwrap();
        check_all_rows(&copied.open()).await;
    });
}

/// Writes rows of every kind; [`check_all_is_there`] checks them.
async fn fill(fixture: &Fixture, store: &Store) {
    fixture.open_account(store).await;
    let new: Vec<_> = (1..=3).map(|message| fixture.deposit(message)).collect();
    assert_eq!(store.ledger.accept(&new, fresh_nonce()).await.unwrap().len(), 3);
    let commit = fixture.decide(store, &[1, 2], 1).await;
    assert!(matches!(store.ledger.commit(&commit).await.unwrap(), Committed::Done { revision: Some(_) }));
    store.queue.send(&work_queue(), b"sent", Duration::ZERO).await.unwrap();
    assert!(matches!(store.sync.swap("range", None, "1000").await.unwrap(), Swapped::Done(_)));
}

#[test]
fn answered_writes_survive_a_crash() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        fill(&fixture, &store).await;
        // A copy of the open files is what a killed process leaves.
        let crashed = Fixture::new();
        copy_database(fixture.path().parent().unwrap(), crashed.path().parent().unwrap());
        check_all_rows(&crashed.open()).await;
        drop(store);
        check_all_rows(&fixture.open()).await;
    });
}

fn copy_database(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        // SQLite rebuilds the index of the log from the log.
        if !file.file_name().to_string_lossy().ends_with("-shm") {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

async fn check_all_rows(store: &Store) {
    let account = store.ledger.account(account_key()).await.unwrap().unwrap();
    assert_eq!((account.value.balance.minor_units(), account.revision.as_str()), (200, "2"));
    assert_eq!(store.log.pages(account_key(), 1, 10).await.unwrap().len(), 1);
    assert_eq!(store.archive.accepted(UserRange::ALL, None, 10).await.unwrap().items.len(), 1);
    let posted = store.log.by_status(account_key(), TransactionStatus::Posted, None, None, 10).await.unwrap();
    assert_eq!(posted.items.len(), 2);
    assert_eq!(store.queue.backlog(&work_queue()).await.unwrap().depth, 4);
    assert_eq!(store.sync.get("range").await.unwrap().unwrap().value, "1000");
}

#[test]
fn a_lock_that_is_held_too_long_is_a_transient_fault() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        let other = fixture.sql();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let new = [fixture.deposit(1)];
        let fault = store.ledger.accept(&new, fresh_nonce()).await.unwrap_err();
        assert!(matches!(fault, StoreFault::Unavailable { .. }), "{fault:?}");
        other.execute_batch("ROLLBACK").unwrap();
        let outcome = store.ledger.accept(&new, fresh_nonce()).await.unwrap().remove(0);
        assert!(matches!(outcome, AcceptOutcome::Inserted { .. }), "{outcome:?}");
    });
}

#[test]
fn damage_is_detected_and_triggers_protect_final_rows() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        fixture.open_account(&store).await;
        for message in 1..=3 {
            assert_eq!(
                store.ledger.accept(&[fixture.deposit(message)], fresh_nonce()).await.unwrap().len(),
                1
            );
            let commit = fixture.decide(&store, &[message], message * 100).await;
            assert!(matches!(store.ledger.commit(&commit).await.unwrap(), Committed::Done { .. }));
        }
        let sql = fixture.sql();
        for statement in [
            "UPDATE transactions SET reference = 'x'",
            "DELETE FROM transactions",
            "UPDATE journal_pages SET entries = '[]'",
            "DELETE FROM journal_pages",
        ] {
            assert!(sql.execute_batch(statement).is_err(), "{statement}");
        }
        assert_eq!(store.log.pages(account_key(), 1, 10).await.unwrap().len(), 3);
        sql.execute_batch("DROP TRIGGER journal_pages_never_change; DROP TRIGGER journal_pages_stay")
            .unwrap();
        for damage in [
            "DELETE FROM journal_pages WHERE first_sequence = 2",
            r#"UPDATE journal_pages SET entries = replace(entries, '"a":"100"', '"a":"101"')"#,
            "UPDATE journal_pages SET entries = 'x'",
        ] {
            sql.execute_batch(damage).unwrap();
            assert!(corrupt(&store.log.pages(account_key(), 1, 10).await), "{damage}");
        }
    });
}
