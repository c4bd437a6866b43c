//! Requests that wait for their outcome, and the way back to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::replies::PendingReplies;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::transaction::{Outcome, Transaction};
use postonce_shared::messaging::envelope::Envelope;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Ledger, StoredTransaction};
use postonce_shared::ports::world::World as _;
use postonce_shared::protocol::accept::{AcceptFault, Acceptance};
use postonce_shared::testing::decorators::LedgerDecorator;

use crate::stage::{Stage, account, address, deposit, key, submit};

/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

async fn wait_for(bank: &Bank, message: u128, patience: Duration) -> Result<Acceptance, AcceptFault> {
    bank.acceptor.submit(key(message), deposit("1.00"), None, Some(patience)).await
}

fn transaction(answer: Result<Acceptance, AcceptFault>) -> Transaction {
    match answer {
        Ok(Acceptance::Accepted(transaction) | Acceptance::Replayed(transaction)) => transaction,
        other => panic!("{other:?}"),
    }
}

/// The envelopes that wait, as soon as there are some.
async fn envelopes(stage: &Stage) -> Vec<Envelope> {
    loop {
        let envelopes = stage.receive_envelopes().await;
        if !envelopes.is_empty() {
            return envelopes;
        }
        tokio::task::yield_now().await;
    }
}

/// What a worker does with an envelope.
async fn work_off(worker: &Bank, envelope: Envelope) {
    let mut pending = PendingReplies::new(&worker.completions, &worker.replies);
    for work in &envelope.items {
        envelope.reply_to.iter().for_each(|to| pending.add(&work.key, to));
    }
    let settled = worker.poster.post(account(), envelope.items).await;
    assert!(settled.iter().all(|(_, result)| result.is_ok()), "{settled:?}");
    pending.send();
}

async fn work_off_next(stage: &Stage, worker: &Bank) {
    for envelope in envelopes(stage).await {
        work_off(worker, envelope).await;
    }
}

#[tokio::test]
async fn who_waits_is_told_by_the_worker_of_the_same_process_and_by_others() {
    let stage = Stage::in_world(Arc::new(TestWorld::new(1))).await;
    let (web, elsewhere) = (stage.linked_process(1, |_| {}), stage.linked_process(2, |_| {}));
    for (message, worker) in [(7, &web), (8, &elsewhere)] {
        // The clock stands still: nothing but an announcement can end the wait.
        let asked = wait_for(&web, message, PATIENCE);
        let (answer, ()) = futures::join!(asked, work_off_next(&stage, worker));
        let told = transaction(answer);
        assert!(told.outcome.is_some());
        assert_eq!(told.outcome, stage.outcome(message).await);
    }
}

#[tokio::test]
async fn only_work_that_is_waited_for_asks_for_a_reply() {
    let stage = Stage::in_world(Arc::new(TestWorld::new(2))).await;
    let (web, alone) = (stage.linked_process(1, |_| {}), stage.process());
    transaction(submit(&web, 7, deposit("1.00")).await);
    let sent = envelopes(&stage).await;
    assert_eq!(sent.iter().map(|envelope| stage.asked_at(envelope)).collect::<Vec<_>>(), [None]);
    for (message, bank, reply_to) in [(8, &web, Some(address(1))), (9, &alone, None)] {
        let mut asked = Box::pin(wait_for(bank, message, PATIENCE));
        let sent = futures::future::select(&mut asked, Box::pin(envelopes(&stage))).await;
        let futures::future::Either::Right((sent, _)) = sent else { panic!("nobody posted it") };
        assert_eq!(stage.asked_at(&sent[0]), reply_to);
    }
}

#[tokio::test]
async fn who_comes_late_sends_again_to_be_told_and_only_once() {
    let stage = Stage::in_world(Arc::new(TestWorld::new(3))).await;
    let (web, worker) = (stage.linked_process(1, |_| {}), stage.linked_process(2, |_| {}));
    transaction(submit(&web, 7, deposit("1.00")).await);
    let first = envelopes(&stage).await;
    assert_eq!(first[0].reply_to, None, "nobody waited for it");
    let late = async {
        let again = envelopes(&stage).await;
        assert_eq!((again.len(), stage.asked_at(&again[0])), (1, Some(address(1))));
        // Another one that waits for the same work finds it asked for.
        let another = async {
            let mut asked = Box::pin(wait_for(&web, 7, PATIENCE));
            for _ in 0..50 {
                assert!(futures::poll!(asked.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            assert_eq!(stage.queued().await, 2, "the first envelope and the second, no third");
            for envelope in first {
                work_off(&worker, envelope).await;
            }
            for envelope in again {
                work_off(&worker, envelope).await;
            }
            transaction(asked.await)
        };
        another.await
    };
    let (one, other) = futures::join!(wait_for(&web, 7, PATIENCE), late);
    let one = transaction(one);
    assert!(one.outcome.is_some());
    assert_eq!(one, other);
}

#[tokio::test]
async fn who_asks_at_another_process_is_told_there() {
    let stage = Stage::in_world(Arc::new(TestWorld::new(4))).await;
    let webs = [stage.linked_process(1, |_| {}), stage.linked_process(2, |_| {})];
    let worker = stage.linked_process(3, |_| {});
    let both = async {
        let mut sent = envelopes(&stage).await;
        while sent.len() < 2 {
            sent.extend(envelopes(&stage).await);
        }
        let mut addresses: Vec<_> = sent.iter().filter_map(|envelope| stage.asked_at(envelope)).collect();
        addresses.sort();
        assert_eq!(addresses, [address(1), address(2)]);
        for envelope in sent {
            work_off(&worker, envelope).await;
        }
    };
    let (one, other, ()) =
        futures::join!(wait_for(&webs[0], 7, PATIENCE), wait_for(&webs[1], 7, PATIENCE), both);
    let outcome = stage.outcome(7).await;
    assert!(outcome.is_some());
    assert_eq!((transaction(one).outcome, transaction(other).outcome), (outcome.clone(), outcome));
}

#[tokio::test]
async fn when_the_reply_is_lost_the_row_is_read_once_at_the_deadline() {
    let world = Arc::new(TestWorld::new(5));
    let stage = Stage::in_world(world.clone()).await;
    let reads = Arc::new(AtomicU32::new(0));
    let web = stage.linked_process(1, |store| CountedReads::over(store, &reads));
    let worker = stage.linked_process(2, |_| {});
    stage.lose_replies();
    let posted = async {
        work_off_next(&stage, &worker).await;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert_eq!(reads.load(Ordering::SeqCst), 0, "nothing is read while somebody waits");
        world.advance(PATIENCE);
    };
    let (answer, ()) = futures::join!(wait_for(&web, 7, PATIENCE), posted);
    assert_eq!(transaction(answer).outcome, stage.outcome(7).await);
    assert_eq!(reads.load(Ordering::SeqCst), 1);
}

/// Waits until the web has read the row so often; `false` if it does not.
async fn until_read(reads: &AtomicU32, times: u32) -> bool {
    for _ in 0..1000 {
        if reads.load(Ordering::SeqCst) == times {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn a_hint_makes_who_waits_read_the_row_and_nothing_of_it_is_believed() {
    let stage = Stage::in_world(Arc::new(TestWorld::new(8))).await;
    let reads = Arc::new(AtomicU32::new(0));
    let web = stage.linked_process(1, |store| CountedReads::over(store, &reads));
    let worker = stage.linked_process(2, |_| {});
    stage.lose_replies();
    let hinted = async {
        let envelopes = envelopes(&stage).await;
        web.completions.hint(&key(7));
        assert!(until_read(&reads, 1).await, "the row is read");
        // Of another transaction, or of one that nobody waits for.
        web.completions.hint(&key(8));
        for envelope in envelopes {
            work_off(&worker, envelope).await;
        }
        web.completions.hint(&key(7));
    };
    // The clock stands still: nothing but a hint can end the wait.
    let (answer, ()) = futures::join!(wait_for(&web, 7, PATIENCE), hinted);
    let outcome = stage.outcome(7).await;
    assert!(outcome.is_some());
    assert_eq!(transaction(answer).outcome, outcome);
    assert_eq!(reads.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn however_many_hints_come_the_row_is_read_early_three_times_at_most() {
    let world = Arc::new(TestWorld::new(9));
    let stage = Stage::in_world(world.clone()).await;
    let reads = Arc::new(AtomicU32::new(0));
    let web = stage.linked_process(1, |store| CountedReads::over(store, &reads));
    let flood = async {
        drop(envelopes(&stage).await);
        for hint in 1..=100 {
            web.completions.hint(&key(7));
            assert_eq!(until_read(&reads, hint).await, hint <= 3, "{hint}");
        }
        // What can be believed is still heard.
        let outcome = Outcome::Rejected { reason: RejectReason::AccountClosed, rejected_at: world.now() };
        web.completions.complete(&key(7), &outcome);
        outcome
    };
    let (answer, outcome) = futures::join!(wait_for(&web, 7, PATIENCE), flood);
    assert_eq!(transaction(answer).outcome, Some(outcome));
    assert_eq!(reads.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn who_waited_in_vain_keeps_its_promise() {
    let world = Arc::new(TestWorld::new(6));
    let stage = Stage::in_world(world.clone()).await;
    let web = stage.linked_process(1, |_| {});
    let nobody = async {
        drop(envelopes(&stage).await);
        while world.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        world.advance(PATIENCE);
    };
    let (answer, ()) = futures::join!(wait_for(&web, 7, PATIENCE), nobody);
    let Ok(Acceptance::Accepted(transaction)) = answer else { panic!("{answer:?}") };
    assert_eq!(transaction.outcome, None, "nobody posted it in time");
}

#[tokio::test]
async fn a_reply_to_oneself_is_not_sent() {
    let stage = Stage::in_world(Arc::new(TestWorld::new(7))).await;
    let web = stage.linked_process(1, |_| {});
    stage.lose_replies();
    let (answer, ()) = futures::join!(wait_for(&web, 7, PATIENCE), work_off_next(&stage, &web));
    assert!(transaction(answer).outcome.is_some(), "its own worker told it directly");
}

/// A ledger that counts how often a transaction is read.
struct CountedReads {
    inner: Arc<dyn Ledger>,
    reads: Arc<AtomicU32>,
}

impl CountedReads {
    fn over(store: &mut Store, reads: &Arc<AtomicU32>) {
        let inner = Arc::clone(&store.ledger);
        store.ledger = Arc::new(Self { inner, reads: Arc::clone(reads) });
    }
}

#[async_trait]
impl LedgerDecorator for CountedReads {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.transaction(key).await
    }
}
