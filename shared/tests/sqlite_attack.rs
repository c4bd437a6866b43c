//! Attacks on the embedded store that its first tests did not notice.
#![expect(clippy::unwrap_used, reason = "test code")]
#![expect(dead_code, reason = "the bank has more than these tests need")]

#[path = "sqlite/bank.rs"]
mod bank;

use postonce_shared::ports::ledger::{AcceptOutcome, Committed};

use bank::{Bank, within_deadline, work_queue};

/// A replay in a group of new work must not put its own work on the queue again.
#[test]
fn only_what_is_new_is_enqueued() {
    within_deadline(async {
        let bank = Bank::new();
        let store = bank.open();
        drop(store.ledger.accept(&[bank.deposit(1)]).await.unwrap());
        let group = [bank.deposit(1), bank.deposit(2), bank.deposit(3)];
        let outcomes = store.ledger.accept(&group).await.unwrap();
        assert!(matches!(outcomes[0], AcceptOutcome::Existing(_)));
        let backlog = store.queue.backlog(&work_queue()).await.unwrap();
        assert_eq!(backlog.depth, 3, "one message for each transaction that was stored");
    });
}

/// Somebody puts an older copy of the file back: versions come again, with another journal before them.
#[test]
fn a_commit_goes_on_where_the_journal_ends() {
    within_deadline(async {
        let bank = Bank::new();
        let store = bank.open();
        bank.open_account(&store).await;
        drop(store.ledger.accept(&[bank.deposit(1), bank.deposit(2)]).await.unwrap());
        let commit = bank.decide(&store, &[1], 1).await;
        for damage in ["balance = 7", "sequence = 7", "head = randomblob(32)"] {
            bank.sql().execute_batch("CREATE TABLE keep AS SELECT * FROM accounts").unwrap();
            bank.sql().execute_batch(&format!("UPDATE accounts SET {damage}")).unwrap();
            let answer = store.ledger.commit(&commit).await.unwrap();
            assert_eq!(answer, Committed::Stale, "{damage}");
            let undo = "DELETE FROM accounts; INSERT INTO accounts SELECT * FROM keep; DROP TABLE keep";
            bank.sql().execute_batch(undo).unwrap();
        }
        assert!(matches!(store.ledger.commit(&commit).await.unwrap(), Committed::Done { .. }));
    });
}
