//! Attacks on the embedded store that its first tests did not detect.

use postonce_shared::ports::ledger::{AcceptOutcome, Committed};
use postonce_shared::testing::fresh_nonce;

use super::fixture::{Fixture, within_deadline, work_queue};

/// A replay in a group of new work must not put its own work on the queue again.
#[test]
fn only_new_transactions_are_enqueued() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        drop(store.ledger.accept(&[fixture.deposit(1)], fresh_nonce()).await.unwrap());
        let group = [fixture.deposit(1), fixture.deposit(2), fixture.deposit(3)];
        let outcomes = store.ledger.accept(&group, fresh_nonce()).await.unwrap();
        assert!(matches!(outcomes[0], AcceptOutcome::Existing(_)));
        let backlog = store.queue.backlog(&work_queue()).await.unwrap();
        assert_eq!(backlog.depth, 3, "one message for each stored transaction");
    });
}

/// After an older copy of the file is put back, versions repeat with another journal before them.
#[test]
fn a_commit_continues_the_journal_at_its_end() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        fixture.open_account(&store).await;
        drop(store.ledger.accept(&[fixture.deposit(1), fixture.deposit(2)], fresh_nonce()).await.unwrap());
        let commit = fixture.decide(&store, &[1], 1).await;
        for damage in ["balance = 7", "sequence = 7", "head = randomblob(32)"] {
            fixture.sql().execute_batch("CREATE TABLE keep AS SELECT * FROM accounts").unwrap();
            fixture.sql().execute_batch(&format!("UPDATE accounts SET {damage}")).unwrap();
            let answer = store.ledger.commit(&commit).await.unwrap();
            assert_eq!(answer, Committed::Stale, "{damage}");
            let undo = "DELETE FROM accounts; INSERT INTO accounts SELECT * FROM keep; DROP TABLE keep";
            fixture.sql().execute_batch(undo).unwrap();
        }
        assert!(matches!(store.ledger.commit(&commit).await.unwrap(), Committed::Done { .. }));
    });
}
