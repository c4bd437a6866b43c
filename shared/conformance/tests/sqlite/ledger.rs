//! The two atomic steps, repeated and under concurrency.

use futures::future::join_all;

use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;

use super::fixture::{Fixture, account_key, number, refused, within_deadline, work_queue};

#[test]
fn concurrent_processes_post_once() {
    within_deadline(async {
        let fixture = Fixture::new();
        let (one, other) = (fixture.open(), fixture.open());
        fixture.open_account(&one).await;
        for round in 1..=30 {
            let outcomes = one.ledger.accept(&[fixture.deposit(round)], fresh_nonce()).await.unwrap();
            assert!(matches!(outcomes[..], [AcceptOutcome::Inserted { enqueued: true, .. }]));
            let mine = fixture.decide(&one, &[round], round * 1000).await;
            let theirs = fixture.decide(&other, &[round], round * 1000 + 500).await;
            let (mine, theirs) = tokio::join!(one.ledger.commit(&mine), other.ledger.commit(&theirs));
            let answers = [mine.unwrap(), theirs.unwrap()];
            let done = answers.iter().filter(|answer| matches!(answer, Committed::Done { .. })).count();
            let lost = answers.iter().filter(|answer| matches!(answer, Committed::RowsChanged(_))).count();
            assert_eq!((done, lost), (1, 1), "{answers:?}");
        }
        let account = other.ledger.account(account_key()).await.unwrap().unwrap().value;
        assert_eq!(account.sequence, 30);
        assert_eq!(account.balance.minor_units(), 100 * 30);
        let pages = other.log.pages(account_key(), 1, 1000).await.unwrap();
        assert_eq!(pages.last().unwrap().hash, account.head);
    });
}

#[test]
fn concurrent_processes_accept_a_key_once() {
    within_deadline(async {
        let fixture = Fixture::new();
        let stores = [fixture.open(), fixture.open()];
        let calls = (0..200).map(|call: u32| {
            let store = if call.is_multiple_of(2) { &stores[0] } else { &stores[1] };
            let new = fixture.deposit(call / 4);
            async move { store.ledger.accept(&[new], fresh_nonce()).await.unwrap().remove(0) }
        });
        let outcomes = join_all(calls).await;
        let inserted = |outcome: &&AcceptOutcome| matches!(outcome, AcceptOutcome::Inserted { .. });
        assert_eq!(outcomes.iter().filter(inserted).count(), 50);
        let backlog = stores[0].queue.backlog(&work_queue()).await.unwrap();
        assert_eq!(backlog.depth, 50, "one message for each inserted transaction");
    });
}

#[test]
fn an_accept_whose_response_was_lost_is_recognized() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        let (new, nonce) = (fixture.deposit(1), fresh_nonce());
        for _ in 0..2 {
            let outcome = store.ledger.accept(std::slice::from_ref(&new), nonce).await.unwrap().remove(0);
            assert!(matches!(outcome, AcceptOutcome::Inserted { enqueued: true, .. }), "{outcome:?}");
        }
        let other = store.ledger.accept(&[fixture.deposit(1)], fresh_nonce()).await.unwrap().remove(0);
        assert!(matches!(other, AcceptOutcome::Existing(_)), "{other:?}");
        assert_eq!(store.queue.backlog(&work_queue()).await.unwrap().depth, 1);
    });
}

#[test]
fn a_commit_whose_response_was_lost_is_recognized() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        fixture.open_account(&store).await;
        assert_eq!(
            store
                .ledger
                .accept(&[fixture.deposit(1), fixture.deposit(2)], fresh_nonce())
                .await
                .unwrap()
                .len(),
            2
        );
        let (commit, rival) =
            (fixture.decide(&store, &[1], 1).await, fixture.decide(&store, &[1], 100).await);
        let old = fixture.decide(&store, &[2], 200).await;
        let first = store.ledger.commit(&commit).await.unwrap();
        assert!(matches!(first, Committed::Done { revision: Some(_) }));
        assert_eq!(store.ledger.commit(&commit).await.unwrap(), first);
        let keys = vec![fixture.deposit(1).key];
        assert_eq!(store.ledger.commit(&rival).await.unwrap(), Committed::RowsChanged(keys));
        assert_eq!(store.ledger.commit(&old).await.unwrap(), Committed::Stale);
        let next = fixture.decide(&store, &[2], 200).await;
        assert!(matches!(store.ledger.commit(&next).await.unwrap(), Committed::Done { .. }));
        // A newer commit changed the row, so the outcome of the first one can only be read from the journal.
        assert_eq!(store.ledger.commit(&commit).await.unwrap(), Committed::Done { revision: None });
    });
}

#[test]
fn a_commit_writes_nothing_if_one_precondition_fails() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        fixture.open_account(&store).await;
        let new: Vec<_> = (1..=3).map(|message| fixture.deposit(message)).collect();
        assert_eq!(store.ledger.accept(&new, fresh_nonce()).await.unwrap().len(), 3);
        let commit = fixture.decide(&store, &[1, 2, 3], 1).await;
        let marked = &commit.decided[2];
        let marks = Marks { dead_letter: true, ..Marks::default() };
        let revision = store.ledger.mark(marked.key(), marked.revision().unwrap(), marks).await.unwrap();
        assert!(revision.is_some_and(|revision| Some(&revision) != marked.revision()));
        assert_eq!(store.ledger.commit(&commit).await.unwrap(), Committed::Stale);
        assert_eq!(store.archive.accepted(UserRange::ALL, None, 10).await.unwrap().items.len(), 3);
        let account = store.ledger.account(account_key()).await.unwrap().unwrap();
        assert_eq!(account.revision, commit.guard);
        assert_eq!(number(&fixture.sql(), "SELECT count(*) FROM journal_pages"), 0);
        let mut unsound = commit;
        unsound.page.entries.clear();
        assert!(refused(&store.ledger.commit(&unsound).await));
    });
}

#[test]
fn a_listing_continues_at_its_cursor() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        // The partners are inserted in another order than that of their names.
        let mut expected = Vec::new();
        for partner in ["zoo", "bar", "shop"] {
            for message in (1..=5).rev() {
                let mut new = fixture.deposit(message);
                new.key.partner = PartnerId::parse(partner).unwrap();
                expected.push(new.key.clone());
                assert_eq!(store.ledger.accept(&[new], fresh_nonce()).await.unwrap().len(), 1);
            }
        }
        expected.sort();
        let status = TransactionStatus::Accepted;
        let (mut listed, mut all) = (Vec::new(), Vec::new());
        let (mut cursor, mut cursor_of_all) = (None, None);
        for _ in 0..4 {
            let page = store.log.by_status(account_key(), status, None, cursor.as_deref(), 4).await.unwrap();
            listed.extend(page.items.into_iter().map(|item| item.submission.key));
            cursor = page.next;
            let page = store.archive.accepted(UserRange::ALL, cursor_of_all.as_deref(), 4).await.unwrap();
            all.extend(page.items.into_iter().map(|item| item.unwrap().submission.key));
            cursor_of_all = page.next;
        }
        assert_eq!((cursor, cursor_of_all), (None, None));
        assert_eq!(listed, expected);
        all.sort();
        assert_eq!(all, expected);
        for cursor in ["", "x", "posted.shop.1", "1.2"] {
            let by_status = store.log.by_status(account_key(), status, None, Some(cursor), 4).await;
            assert!(matches!(by_status, Err(StoreFault::ForeignCursor { .. })), "{cursor}");
            let accepted = store.archive.accepted(UserRange::ALL, Some(cursor), 4).await;
            assert!(matches!(accepted, Err(StoreFault::ForeignCursor { .. })), "{cursor}");
        }
    });
}
