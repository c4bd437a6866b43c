//! What becomes of a message, step by step: the order of the steps, and what each of them leaves.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::domain::decision::Work;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::messaging::envelope::Envelope;
use postonce_shared::messaging::envelope::seal::Purpose;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Ledger, StoredTransaction};
use postonce_shared::ports::queue::{Held, Lease, QueueName, WorkQueue};
use postonce_shared::testing::conformance::sealed::seal;
use postonce_shared::testing::decorators::{LedgerDecorator, WorkQueueDecorator};
use postonce_worker::drain::drain;
use postonce_worker::listening::delivery::Delivery;
use postonce_worker::meter::Meter;
use postonce_worker::posting::disposition::Disposition;
use postonce_worker::posting::settle::Settlement;
use postonce_worker::worker::Worker;

use crate::stage::{Stage, account, config, instruction, opened, outage, queue, settlement};

const VISIBILITY: Duration = Duration::from_secs(20);

/// A message with an accepted deposit, received.
async fn delivery(stage: &Stage<TestWorld>) -> (Delivery<Envelope>, Work) {
    let work = stage.submit(1, 7).await;
    (opened(stage.receive(VISIBILITY).await.remove(0)), work)
}

fn dead(item: &Work) -> Disposition {
    Disposition::DeadLetter { item: Box::new(item.clone()), reason: "too often".to_owned() }
}

/// A queue that refuses to send, and notes how many dead letters there are when it is asked to delete.
struct WatchedQueue {
    store: Store,
    inner: Arc<dyn WorkQueue>,
    letters_at_delete: Mutex<Vec<usize>>,
}

#[async_trait]
impl WorkQueueDecorator for WatchedQueue {
    fn inner(&self) -> &dyn WorkQueue {
        &*self.inner
    }

    async fn send(&self, _: &QueueName, _: &[u8], _: Duration) -> Result<(), StoreFault> {
        Err(outage())
    }

    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        let letters = self.store.dead_letters.list(true, None, 100).await?.items.len();
        self.letters_at_delete.lock().push(letters);
        self.inner.delete(queue, lease).await
    }
}

fn watched(stage: &Stage<TestWorld>) -> Arc<WatchedQueue> {
    let (store, inner) = (stage.store.clone(), Arc::clone(&stage.store.queue));
    Arc::new(WatchedQueue { store, inner, letters_at_delete: Mutex::default() })
}

#[tokio::test]
async fn a_letter_is_written_before_its_message_is_deleted() {
    let stage = Stage::still().await;
    let (delivery, work) = delivery(&stage).await;
    let watched = watched(&stage);
    let settlement = Settlement { queue: watched.clone(), ..settlement(&stage.bank()) };
    assert!(settlement.apply(&delivery, dead(&work)).await);
    assert_eq!(*watched.letters_at_delete.lock(), [1]);
    assert_eq!(stage.depth().await, 0);
}

#[tokio::test]
async fn an_envelope_that_could_not_be_taken_apart_stays_whole() {
    let stage = Stage::still().await;
    let (delivery, work) = delivery(&stage).await;
    let settlement = Settlement { queue: watched(&stage), ..settlement(&stage.bank()) };
    let split = Disposition::Split { rest: vec![work.clone(), work] };
    assert!(!settlement.apply(&delivery, split).await);
    assert_eq!(stage.depth().await, 1);
}

#[tokio::test]
async fn what_became_final_meanwhile_is_deleted_and_not_set_aside() {
    let stage = Stage::still().await;
    let (delivery, work) = delivery(&stage).await;
    assert!(stage.bank().poster.post(account(1), vec![work.clone()]).await[0].1.is_ok());
    assert!(settlement(&stage.bank()).apply(&delivery, dead(&work)).await);
    assert_eq!((stage.letters().await.len(), stage.depth().await), (0, 0));
}

/// A ledger that cannot be read now.
struct AwayLedger(Arc<dyn Ledger>);

#[async_trait]
impl LedgerDecorator for AwayLedger {
    fn inner(&self) -> &dyn Ledger {
        &*self.0
    }

    async fn transaction(&self, _: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        Err(outage())
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_now_makes_no_dead_letter() {
    let stage = Stage::still().await;
    let (delivery, work) = delivery(&stage).await;
    let ledger = Arc::new(AwayLedger(Arc::clone(&stage.store.ledger)));
    let settlement = Settlement { ledger, ..settlement(&stage.bank()) };
    assert!(!settlement.apply(&delivery, dead(&work)).await);
    assert_eq!((stage.letters().await.len(), stage.depth().await), (0, 1));
    stage.world.advance(VISIBILITY);
    assert_eq!(opened(stage.receive(VISIBILITY).await.remove(0)).receipts(), 1, "that receipt was forgiven");
}

#[tokio::test]
async fn a_message_that_is_tried_again_waits_and_its_forgiven_receipts_add_up() {
    let stage = Stage::still().await;
    let (first, work) = delivery(&stage).await;
    let later = |rest: &Work| Disposition::RetryLater { rest: vec![rest.clone()], forgive: true };
    let _ = settlement(&stage.bank()).apply(&first, later(&work)).await;
    assert_eq!(stage.receive(VISIBILITY).await, [], "it waits");
    stage.world.advance(VISIBILITY);
    let second = opened(stage.receive(VISIBILITY).await.remove(0));
    // A renewal in between: only the newest lease counts.
    let renewed = second.renew(&*stage.store.queue, &queue(), VISIBILITY).await.unwrap();
    assert_eq!(renewed, Held::Ours(()));
    let _ = settlement(&stage.bank()).apply(&second, later(&work)).await;
    stage.world.advance(VISIBILITY);
    let third = opened(stage.receive(VISIBILITY).await.remove(0));
    assert_eq!((third.message.dequeue_count, third.receipts()), (3, 1));
    assert_eq!(third.items(), [work]);
}

#[tokio::test]
async fn a_renewal_and_the_wait_for_a_newer_worker_leave_the_body_as_it_was() {
    let stage = Stage::still().await;
    let body = seal().seal(Purpose::Message, br#"{"v":3,"items":"of another shape"}"#.to_vec());
    stage.send_body(&body).await;
    let delivery = opened(stage.receive(VISIBILITY).await.remove(0));
    let _ = delivery.renew(&*stage.store.queue, &queue(), VISIBILITY).await.unwrap();
    stage.world.advance(VISIBILITY);
    let delivery = opened(stage.receive(VISIBILITY).await.remove(0));
    assert_eq!(delivery.message.body, body);
    let why = delivery.content.as_ref().unwrap_err();
    assert!(settlement(&stage.bank()).settle_unopened(&delivery, why).await);
    stage.world.advance(Duration::from_secs(60));
    assert_eq!(stage.receive(VISIBILITY).await[0].body, body);
}

#[tokio::test]
async fn work_is_posted_in_the_order_in_which_it_came() {
    let stage = Stage::still().await;
    // The deposit came first, and its key is the later one.
    let (pay_in, pay_out) = (instruction(TransactionKind::Deposit), instruction(TransactionKind::Withdrawal));
    let first = stage.accept_as(pay_in, account(1), 9).await;
    let second = stage.accept_as(pay_out, account(1), 1).await;
    stage.send(vec![first]).await;
    stage.send(vec![second]).await;
    let (starter, drain) = drain();
    let (bank, meter) = (stage.bank(), Arc::new(Meter::default()));
    let posted = async {
        while stage.depth().await > 0 {
            tokio::task::yield_now().await;
        }
        starter.start();
    };
    let both = async { futures::join!(Worker::new(&bank, config(VISIBILITY), meter).run(&drain), posted) };
    tokio::time::timeout(VISIBILITY, both).await.unwrap();
    let account = stage.store.ledger.account(account(1)).await.unwrap().unwrap().value;
    assert_eq!((account.balance.is_zero(), account.sequence), (true, 2), "both are posted");
    let register = postonce_shared::protocol::order_numbers::OrderNumbers::new(
        stage.store.sync.clone(),
        stage.world.clone(),
    )
    .register()
    .await
    .unwrap();
    assert!(register.returned > 0, "unused numbers went back at the end of the drain");
}
