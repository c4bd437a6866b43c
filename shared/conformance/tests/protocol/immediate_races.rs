//! Immediate posting against other processes, taken keys, and lost or late commits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::{join_all, pending};
use parking_lot::Mutex;
use postonce_shared::cluster::contention::ContentionNotices;
use postonce_shared::cluster::replies::NoReplies;
use postonce_shared::posting::waiting::QueueReason;
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{Fixture, QUEUES, account, deposit, key, release_gate, submit};
use crate::protocol::immediate::{
    LONG, SHORT, ask, operations, posted_at_once, process, process_over, queued,
};

/// A ledger in which another process changes the account before each of the next commits.
struct Contended {
    inner: Arc<dyn Ledger>,
    rival: Bank,
    left: AtomicU32,
    /// The rivals need message ids of their own.
    first_message: u128,
}

#[async_trait]
impl LedgerDecorator for Contended {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        let left = self.left.load(Ordering::SeqCst);
        if left > 0 {
            self.left.store(left - 1, Ordering::SeqCst);
            let message = self.first_message + u128::from(left);
            posted_at_once(&self.rival, message, deposit("1.00")).await;
        }
        self.inner.commit(commit).await
    }
}

#[tokio::test]
async fn a_contended_account_is_left_to_the_queue_for_a_while() {
    let world = Arc::new(TestWorld::new(1));
    let fixture = Fixture::in_world(world.clone()).await;
    let contended = |times: u32| {
        let (rival, first_message) = (process(&fixture), 1000 * u128::from(times));
        process_over(&fixture, |inner| Contended { inner, rival, left: times.into(), first_message })
    };
    let once = contended(1);
    posted_at_once(&once, 1, deposit("1.00")).await;
    let twice = contended(2);
    let queued = async |bank: &Bank, message| {
        let before = bank.acceptor.served().queued(QueueReason::Contended);
        let mut asked = Box::pin(ask(bank, message, deposit("1.00"), LONG));
        while (&mut asked).now_or_never().is_none() && fixture.queued().await == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fixture.lose_messages().await, 1);
        bank.open_work.end(&key(message));
        assert_eq!(bank.acceptor.served().queued(QueueReason::Contended), before + 1);
    };
    queued(&twice, 2).await;
    queued(&twice, 3).await;
    world.advance(Duration::from_millis(250));
    posted_at_once(&twice, 4, deposit("1.00")).await;
    // A worker could not commit.
    twice.immediate.leave_to_worker(account());
    queued(&twice, 5).await;
    world.advance(Duration::from_secs(1));
    posted_at_once(&twice, 6, deposit("1.00")).await;
}

/// Notices that were sent.
#[derive(Default)]
struct Notices(Mutex<BTreeMap<AccountKey, usize>>);

impl ContentionNotices for Notices {
    fn send(&self, account: AccountKey) {
        *self.0.lock().entry(account).or_default() += 1;
    }
}

#[tokio::test]
async fn a_worker_reads_the_account_first_and_then_asks_for_the_account() {
    let fixture = Fixture::new().await;
    let web = fixture.process();
    let notices: Arc<Notices> = Arc::default();
    let worker = |changes: u32| {
        let mut store = fixture.store.ports();
        let (inner, rival) = (Arc::clone(&store.ledger), process(&fixture));
        let (left, first_message) = (changes.into(), 1000 * u128::from(changes));
        store.ledger = Arc::new(Contended { inner, rival, left, first_message });
        let links = Links {
            doorbell: Arc::new(LocalDoorbell::default()),
            completions: Arc::default(),
            replies: Arc::new(NoReplies),
            seal: seal(),
            contention: notices.clone(),
        };
        let bank = Bank::linked(store, Arc::clone(&fixture.world), links, BankSettings::of_queues(QUEUES));
        release_gate(&bank);
        bank
    };
    for (changes, messages, expected_operations) in [(1, 10..15, 4), (2, 20..25, 11)] {
        for message in messages {
            let _ = submit(&web, message, deposit("1.00")).await.unwrap();
        }
        let worker = worker(changes);
        worker.prepare_order_numbers();
        drop(worker.order_numbers.take(1).await.unwrap());
        let before = operations(&worker);
        let settled = worker.poster.post(account(), fixture.receive().await).await;
        assert!(settled.iter().all(|(_, result)| result.is_ok()));
        // Refused once: two reads of the account and two commits. Refused twice: also five transactions.
        assert_eq!(operations(&worker) - before, expected_operations);
        assert_eq!(notices.0.lock().len(), usize::from(changes > 1));
    }
}

#[tokio::test]
async fn taken_keys_leave_the_group_and_the_others_are_posted() {
    let fixture = Fixture::new().await;
    let (bank, other) = (process(&fixture), process(&fixture));
    posted_at_once(&bank, 1, deposit("1.00")).await;
    for message in [3, 5, 7] {
        posted_at_once(&other, message, deposit("1.00")).await;
    }
    let bank = process_over(&fixture, |inner| NamesOne { inner, commits: AtomicU32::default() });
    let requests = (2..=8).map(|message| ask(&bank, message, deposit("1.00"), LONG));
    let answers = join_all(requests.collect::<Vec<_>>()).await;
    let replays: Vec<bool> = answers.iter().map(|answer| answer.replayed).collect();
    assert_eq!(replays, [false, true, false, true, false, true, false]);
    assert_eq!(fixture.account().await.balance.to_string(), "8.00");
    assert_eq!(bank.acceptor.served().immediate(), 4);
    assert_eq!(bank.acceptor.served().queued(QueueReason::KeyTaken), 3);
    assert_eq!(bank.acceptor.served().queued(QueueReason::Contended), 0, "this is no contention");
}

/// A ledger that names only one taken key, as Azure does.
struct NamesOne {
    inner: Arc<dyn Ledger>,
    commits: AtomicU32,
}

#[async_trait]
impl LedgerDecorator for NamesOne {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        let commits = self.commits.fetch_add(1, Ordering::SeqCst);
        assert!(commits < 3, "after the second taken key all keys are read");
        let committed = self.inner.commit(commit).await?;
        let Committed::Taken(keys) = committed else { return Ok(committed) };
        Ok(Committed::Taken(keys.into_iter().take(1).collect()))
    }
}

#[tokio::test]
async fn a_commit_whose_response_was_lost_is_found_by_the_request_that_takes_the_queue() {
    let fixture = Fixture::new().await;
    let bank = fixture.registered_over(|store| lose_answers(store, "Ledger::commit", 1));
    let accepted = ask(&bank, 1, deposit("5.00"), LONG).await;
    assert!(matches!(accepted.outcome, Some(Outcome::Posted { .. })));
    assert!(!accepted.replayed, "the client sent it once");
    assert_eq!(bank.acceptor.served().queued(QueueReason::Fault), 1);
    assert_eq!(fixture.queued().await, 0);
    // Another request with the same key is a replay.
    assert!(ask(&bank, 1, deposit("5.00"), LONG).await.replayed);
    assert_eq!(fixture.account().await.balance.to_string(), "5.00");
    // A commit that never arrived.
    let bank = fixture.registered_over(|store| lose(store, "Ledger::commit", 1));
    queued(&bank, 2, deposit("5.00"), QueueReason::Fault).await;
    assert_eq!(fixture.receive().await.len(), 1);
}

/// A ledger whose first commit happens when the test says so, long after its caller gave up.
struct Late {
    inner: Arc<dyn Ledger>,
    held: Arc<Mutex<Option<AccountCommit>>>,
}

#[async_trait]
impl LedgerDecorator for Late {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        *self.held.lock() = Some(commit.clone());
        pending().await
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        self.inner.transaction(key).await
    }
}

#[tokio::test]
async fn a_commit_that_is_late_and_the_queue_post_once() {
    for commit_first in [false, true] {
        let fixture = Fixture::new().await;
        let held = Arc::new(Mutex::new(None));
        let bank = process_over(&fixture, |inner| Late { inner, held: Arc::clone(&held) });
        let other = fixture.process();
        if commit_first {
            // The commit lands while the client still waits, but its response never arrives.
            let landed = async {
                loop {
                    let commit = held.lock().clone();
                    if let Some(commit) = commit {
                        return other.store.ledger.commit(&commit).await.unwrap();
                    }
                    tokio::task::yield_now().await;
                }
            };
            let (accepted, landed) = futures::join!(ask(&bank, 1, deposit("5.00"), SHORT), landed);
            assert!(matches!(landed, Committed::Done { .. }));
            assert!(accepted.outcome.is_some() && !accepted.replayed);
            assert_eq!(fixture.queued().await, 0);
        } else {
            queued(&bank, 1, deposit("5.00"), QueueReason::Late).await;
            let commit = held.lock().clone().unwrap();
            let landed = other.store.ledger.commit(&commit).await.unwrap();
            assert_eq!(landed, Committed::Taken(vec![key(1)]), "the accepted row is not its success");
            let settled = other.poster.post(account(), fixture.receive().await).await;
            assert!(settled.iter().all(|(_, result)| result.is_ok()));
            let landed = other.store.ledger.commit(&commit).await.unwrap();
            assert_eq!(landed, Committed::Taken(vec![key(1)]), "a final row of another commit neither");
        }
        assert_eq!(fixture.account().await.balance.to_string(), "5.00");
        assert!(bank.gate_permits.until_unused().now_or_never().is_none(), "the commit is still in progress");
    }
}
