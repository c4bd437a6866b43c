//! What becomes of messages when work, ledger or process fail.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::domain::account::{Account, Revision, Versioned};
use postonce_shared::domain::decision::AccountCommit;
use postonce_shared::domain::ids::{AccountKey, TransactionKey};
use postonce_shared::messaging::envelope::Envelope;
use postonce_shared::messaging::envelope::seal::Purpose;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Committed, Ledger, Marks, StoredTransaction};
use postonce_shared::testing::conformance::sealed::{envelope_in, seal};
use postonce_shared::testing::decorators::LedgerDecorator;

use crate::stage::{DEQUEUE_COUNT_MAX, Stage, VISIBILITY, account, outage, queue, until};

/// Switches ledgers off and on.
#[derive(Default)]
struct Switch {
    away: Arc<AtomicBool>,
    probes: Arc<AtomicU32>,
}

impl Switch {
    /// Puts a ledger that can be switched off, and that can be slow, before that of a store.
    fn put_before(&self, store: &mut Store, slow: Option<Duration>) {
        let (away, probes) = (Arc::clone(&self.away), Arc::clone(&self.probes));
        store.ledger = Arc::new(SwitchedLedger { inner: Arc::clone(&store.ledger), away, probes, slow });
    }
}

struct SwitchedLedger {
    inner: Arc<dyn Ledger>,
    away: Arc<AtomicBool>,
    probes: Arc<AtomicU32>,
    slow: Option<Duration>,
}

impl SwitchedLedger {
    fn check(&self) -> Result<(), StoreFault> {
        if self.away.load(Ordering::SeqCst) {
            return Err(outage());
        }
        Ok(())
    }
}

#[async_trait]
impl LedgerDecorator for SwitchedLedger {
    fn inner(&self) -> &dyn Ledger {
        &*self.inner
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        self.check()?;
        if let Some(slow) = self.slow {
            tokio::time::timeout(slow, std::future::pending::<()>()).await.unwrap_err();
        }
        self.inner.commit(commit).await
    }

    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        self.check()?;
        self.inner.account(key).await
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        self.check()?;
        self.inner.transaction(key).await
    }

    async fn mark(
        &self,
        key: &TransactionKey,
        at: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault> {
        self.check()?;
        self.inner.mark(key, at, marks).await
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        self.probes.fetch_add(1, Ordering::SeqCst);
        self.check()
    }
}

#[tokio::test]
async fn the_same_key_in_one_receive_and_one_envelope_posts_once() {
    let stage = Stage::new().await;
    let (one, two) = (stage.accept(account(1), 1).await, stage.accept(account(1), 2).await);
    stage.send(vec![one.clone(), two.clone(), one.clone()]).await;
    stage.send(vec![one.clone()]).await;
    stage.send(vec![one, two]).await;
    let worker = stage.worker();
    stage.until_empty().await;
    worker.drain().await;
    assert_eq!(stage.balance(1).await, "2.00");
}

#[tokio::test]
async fn an_unreadable_message_is_set_aside_at_once_and_stops_nobody() {
    let stage = Stage::new().await;
    stage.send_body(b"garbage").await;
    let work = stage.accept(account(1), 1).await;
    stage.send(vec![work]).await;
    let worker = stage.worker();
    stage.until_empty().await;
    worker.drain().await;
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].body.as_slice(), letters[0].dequeue_count), (&b"garbage"[..], 1));
    assert!(letters[0].reason.contains("not an envelope"), "{}", letters[0].reason);
    assert_eq!(stage.balance(1).await, "1.00");
}

#[tokio::test]
async fn a_newer_envelope_waits_and_is_told() {
    let stage = Stage::new().await;
    let newer = br#"{"v":3,"items":"of another shape"}"#.to_vec();
    stage.send_body(&seal().seal(Purpose::Message, newer)).await;
    let worker = stage.worker();
    until("it was seen", async || worker.meter.newer_versions.get() > 0).await;
    worker.drain().await;
    assert_eq!((stage.depth().await, stage.letters().await.len()), (1, 0));
}

#[tokio::test]
async fn one_bad_item_stands_alone_in_the_end_and_drags_nobody_along() {
    let stage = Stage::new().await;
    let mut bad = stage.accept(account(1), 1).await;
    bad.key.account = account(99);
    let (one, two) = (stage.accept(account(1), 2).await, stage.accept(account(2), 3).await);
    stage.send(vec![one, bad.clone(), two]).await;
    let worker = stage.worker();
    stage.until_empty().await;
    worker.drain().await;
    assert_eq!((stage.balance(1).await, stage.balance(2).await), ("1.00".to_owned(), "1.00".to_owned()));
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(envelope_in(&letters[0].body).items, [bad]);
    assert!(letters[0].reason.contains("account does not exist"), "{}", letters[0].reason);
}

#[tokio::test]
async fn an_outage_longer_than_all_receipts_makes_no_dead_letters() {
    let stage = Stage::new().await;
    let switch = Switch::default();
    switch.away.store(true, Ordering::SeqCst);
    for message in 0..40 {
        let work = stage.accept(account(1 + message % 3), message).await;
        stage.send(vec![work]).await;
    }
    // Each of these workers burns a receipt of its own before it notices, more often than allowed.
    for _ in 0..=(DEQUEUE_COUNT_MAX * 2) {
        let worker = stage.worker_over(|store| switch.put_before(store, None));
        until("the outage was noticed", async || worker.meter.transient_faults.get() > 0).await;
        worker.drain().await;
        let queue_of = stage.store.queue.clone();
        until("the messages are visible again", async || {
            queue_of.backlog(&queue()).await.unwrap().head_inserted_at.is_some()
        })
        .await;
    }
    switch.away.store(false, Ordering::SeqCst);
    let worker = stage.worker_over(|store| switch.put_before(store, None));
    stage.until_empty().await;
    worker.drain().await;
    assert_eq!(stage.letters().await, []);
    assert_eq!(
        [stage.balance(1).await, stage.balance(2).await, stage.balance(3).await],
        ["14.00", "13.00", "13.00"]
    );
}

#[tokio::test]
async fn work_resumes_by_itself_when_the_ledger_comes_back() {
    let stage = Stage::new().await;
    let switch = Switch::default();
    switch.away.store(true, Ordering::SeqCst);
    let work = stage.accept(account(1), 1).await;
    stage.send(vec![work]).await;
    let worker = stage.worker_over(|store| switch.put_before(store, None));
    until("the outage was noticed", async || worker.meter.transient_faults.get() > 0).await;
    let received = worker.meter.received.get();
    let later = stage.accept(account(2), 2).await;
    stage.send(vec![later]).await;
    // While the ledger is away nothing is received, so that no receipts are burnt.
    until("several probes were made", async || switch.probes.load(Ordering::SeqCst) >= 4).await;
    assert_eq!(worker.meter.received.get(), received);
    switch.away.store(false, Ordering::SeqCst);
    stage.until_empty().await;
    worker.drain().await;
    assert_eq!([stage.balance(1).await, stage.balance(2).await], ["1.00", "1.00"]);
}

#[tokio::test]
async fn work_that_takes_longer_than_its_lease_keeps_it() {
    let stage = Stage::new().await;
    let work = stage.accept(account(1), 1).await;
    stage.send(vec![work]).await;
    let slow = stage.worker_over(|store| Switch::default().put_before(store, Some(VISIBILITY * 4)));
    let other = stage.worker();
    stage.until_empty().await;
    assert_eq!(other.meter.received.get() + slow.meter.received.get(), 1, "nobody else received it");
    assert_eq!(slow.meter.leases_lost.get() + other.meter.leases_lost.get(), 0);
    slow.drain().await;
    other.drain().await;
    assert_eq!(stage.balance(1).await, "1.00");
}

#[tokio::test]
async fn a_message_that_ends_its_workers_is_set_aside() {
    let stage = Stage::new().await;
    let (one, two) = (stage.accept(account(1), 1).await, stage.accept(account(2), 2).await);
    stage.send(vec![one, two]).await;
    // Workers that died over it: received, never settled.
    let queue_port = stage.store.queue.clone();
    for _ in 0..DEQUEUE_COUNT_MAX {
        let received = queue_port.receive(&queue(), 32, Duration::ZERO).await.unwrap();
        assert_eq!(received.len(), 1);
    }
    let worker = stage.worker();
    stage.until_empty().await;
    assert_eq!(worker.meter.splits.get(), 1);
    worker.drain().await;
    // Alone, each of them was harmless.
    assert_eq!([stage.balance(1).await, stage.balance(2).await], ["1.00", "1.00"]);

    // Now one over whom the workers died although nothing else was in their hands.
    let alone = stage.accept(account(3), 3).await;
    let mut envelope = Envelope::of(vec![alone], None);
    envelope.suspect = DEQUEUE_COUNT_MAX;
    stage.send_body(&envelope.encode(&seal())).await;
    for _ in 0..DEQUEUE_COUNT_MAX {
        let _ = queue_port.receive(&queue(), 32, Duration::ZERO).await.unwrap();
    }
    let worker = stage.worker();
    stage.until_empty().await;
    worker.drain().await;
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("none ended"), "{}", letters[0].reason);
    assert_eq!(stage.balance(3).await, "0.00");
}

#[tokio::test]
async fn two_workers_share_a_backlog_and_post_everything_once() {
    let stage = Stage::new().await;
    let mut keys = BTreeSet::new();
    for message in 0..300 {
        let work = stage.accept(account(1 + message % 3), message).await;
        keys.insert(work.key.clone());
        stage.send(vec![work.clone()]).await;
        if message % 5 == 0 {
            stage.send(vec![work]).await;
        }
    }
    let (one, two) = (stage.worker(), stage.worker());
    stage.until_empty().await;
    one.drain().await;
    two.drain().await;
    assert_eq!(
        [stage.balance(1).await, stage.balance(2).await, stage.balance(3).await],
        ["100.00", "100.00", "100.00"]
    );
    assert_eq!(stage.letters().await, []);
}
