//! Settling a message, step by step: the order of the steps, and the state that each of them leaves.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_process::drain::drain;
use postonce_process::meter::Meter;
use postonce_shared::testing::prelude::*;
use postonce_worker::listening::delivery::Delivery;
use postonce_worker::posting::disposition::Disposition;
use postonce_worker::posting::posting_handler::PostingHandler;
use postonce_worker::worker::Worker;

use crate::posting::fixture::{
    Fixture, Settling, account, config, instruction, opened, outage, queue, read_and_handle,
};

const VISIBILITY: Duration = Duration::from_secs(20);

/// Submits a deposit and receives its message.
async fn delivery(fixture: &Fixture<TestWorld>) -> (Delivery<Envelope>, Work) {
    let work = fixture.submit(1, 7).await;
    (opened(fixture.receive(VISIBILITY).await.remove(0)), work)
}

fn dead(item: &Work) -> Disposition {
    Disposition::DeadLetter { item: Box::new(item.clone()), reason: "too often".to_owned() }
}

/// A queue that refuses to send, and records the number of dead letters at each delete.
struct RecordingQueue {
    store: Store,
    inner: Arc<dyn WorkQueue>,
    letters_at_delete: Mutex<Vec<usize>>,
}

#[async_trait]
impl WorkQueueDecorator for RecordingQueue {
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

fn recording_queue(fixture: &Fixture<TestWorld>) -> Arc<RecordingQueue> {
    let (store, inner) = (fixture.store.clone(), Arc::clone(&fixture.store.queue));
    Arc::new(RecordingQueue { store, inner, letters_at_delete: Mutex::default() })
}

#[tokio::test]
async fn a_dead_letter_is_written_before_its_message_is_deleted() {
    let fixture = Fixture::with_still_clock().await;
    let (delivery, work) = delivery(&fixture).await;
    let recording_queue = recording_queue(&fixture);
    let mut settling = Settling::of(&fixture.bank());
    settling.parts.queue = recording_queue.clone();
    let settlement = settling.settlement();
    assert!(settlement.apply(&delivery, dead(&work)).await);
    assert_eq!(*recording_queue.letters_at_delete.lock(), [1]);
    assert_eq!(fixture.depth().await, 0);
}

#[tokio::test]
async fn an_envelope_whose_split_failed_stays_whole() {
    let fixture = Fixture::with_still_clock().await;
    let (delivery, work) = delivery(&fixture).await;
    let mut settling = Settling::of(&fixture.bank());
    settling.parts.queue = recording_queue(&fixture);
    let settlement = settling.settlement();
    let split = Disposition::Split { rest: vec![work.clone(), work] };
    assert!(!settlement.apply(&delivery, split).await);
    assert_eq!(fixture.depth().await, 1);
}

#[tokio::test]
async fn a_message_that_became_final_meanwhile_is_deleted_and_not_set_aside() {
    let fixture = Fixture::with_still_clock().await;
    let (delivery, work) = delivery(&fixture).await;
    assert!(fixture.bank().poster.post(account(1), vec![work.clone()]).await[0].1.is_ok());
    assert!(Settling::of(&fixture.bank()).settlement().apply(&delivery, dead(&work)).await);
    assert_eq!((fixture.dead_letters().await.len(), fixture.depth().await), (0, 0));
}

#[tokio::test]
async fn an_outage_of_the_ledger_makes_no_dead_letter() {
    let fixture = Fixture::with_still_clock().await;
    let (delivery, work) = delivery(&fixture).await;
    let bank = fixture.bank_over(|store| {
        faults::apply(store, |call| Effect::unavailable_if(call == "Ledger::transaction"));
    });
    let mut settling = Settling::of(&fixture.bank());
    settling.ledger = Arc::clone(&bank.store.ledger);
    let settlement = settling.settlement();
    assert!(!settlement.apply(&delivery, dead(&work)).await);
    assert_eq!((fixture.dead_letters().await.len(), fixture.depth().await), (0, 1));
    fixture.world.advance(VISIBILITY);
    assert_eq!(
        opened(fixture.receive(VISIBILITY).await.remove(0)).receipts(),
        1,
        "the first receipt was forgiven"
    );
}

#[tokio::test]
async fn a_retried_message_waits_and_its_forgiven_receipts_add_up() {
    let fixture = Fixture::with_still_clock().await;
    let (first, work) = delivery(&fixture).await;
    let later = |rest: &Work| Disposition::RetryLater { rest: vec![rest.clone()], forgive: true };
    let _ = Settling::of(&fixture.bank()).settlement().apply(&first, later(&work)).await;
    assert_eq!(fixture.receive(VISIBILITY).await, [], "the message waits");
    fixture.world.advance(VISIBILITY);
    let second = opened(fixture.receive(VISIBILITY).await.remove(0));
    // After a renewal, only the newest lease counts.
    let renewed = second.renew(&*fixture.store.queue, &queue(), VISIBILITY).await.unwrap();
    assert_eq!(renewed, Held::Ours(()));
    let _ = Settling::of(&fixture.bank()).settlement().apply(&second, later(&work)).await;
    fixture.world.advance(VISIBILITY);
    let third = opened(fixture.receive(VISIBILITY).await.remove(0));
    assert_eq!((third.message.dequeue_count, third.receipts()), (3, 1));
    assert_eq!(third.items(), [work]);
}

#[tokio::test]
async fn neither_a_renewal_nor_the_wait_for_a_newer_worker_changes_the_body() {
    let fixture = Fixture::with_still_clock().await;
    let body = seal().seal(Purpose::Message, br#"{"v":3,"items":"of another shape"}"#.to_vec());
    fixture.send_body(&body).await;
    let delivery = opened(fixture.receive(VISIBILITY).await.remove(0));
    let _ = delivery.renew(&*fixture.store.queue, &queue(), VISIBILITY).await.unwrap();
    fixture.world.advance(VISIBILITY);
    let delivery = opened(fixture.receive(VISIBILITY).await.remove(0));
    assert_eq!(delivery.message.body, body);
    let why = delivery.content.as_ref().unwrap_err();
    assert!(Settling::of(&fixture.bank()).settlement().settle_without_work(&delivery, why).await);
    fixture.world.advance(Duration::from_secs(60));
    assert_eq!(fixture.receive(VISIBILITY).await[0].body, body);
}

#[tokio::test]
async fn work_is_posted_in_the_order_of_its_arrival() {
    let fixture = Fixture::with_still_clock().await;
    // The deposit came first, although its key sorts after that of the withdrawal.
    let (pay_in, pay_out) = (instruction(TransactionKind::Deposit), instruction(TransactionKind::Withdrawal));
    let first = fixture.accept_as(pay_in, account(1), 9).await;
    let second = fixture.accept_as(pay_out, account(1), 1).await;
    fixture.send(vec![first]).await;
    fixture.send(vec![second]).await;
    let (starter, drain) = drain();
    let (bank, meter) = (fixture.bank(), Arc::new(Meter::default()));
    let posted = async {
        while fixture.depth().await > 0 {
            tokio::task::yield_now().await;
        }
        starter.start();
    };
    let both = async { futures::join!(Worker::new(&bank, config(VISIBILITY), meter).run(&drain), posted) };
    tokio::time::timeout(VISIBILITY, both).await.unwrap();
    let account = fixture.store.ledger.account(account(1)).await.unwrap().unwrap().value;
    assert_eq!((account.balance.is_zero(), account.sequence), (true, 2), "deposit and withdrawal are posted");
}

#[tokio::test]
async fn received_work_waits_in_its_queue_while_the_gate_is_held() {
    let fixture = Fixture::with_still_clock().await;
    let bank = fixture.bank();
    let posting = PostingHandler::new(&bank, Arc::default(), &config(VISIBILITY));
    let work = fixture.submit(1, 7).await;
    let gate = |epoch, state| {
        let value = GateValue { epoch, state };
        bank.gate_permits.apply(&bank.gate_permits.begin_read(), &GateRecord { value, ..GateRecord::UNSET });
    };
    for epoch in 1..=20 {
        // Received before the hold.
        gate(epoch, GateState::Held { release_at: None });
        let messages = fixture.receive(VISIBILITY).await;
        assert_eq!(messages.len(), 1, "it is visible at once, so that a release finds it");
        let _ = read_and_handle(&posting, messages).await;
        assert_eq!(fixture.balance(1).await, "0.00");
    }
    let message = opened(fixture.receive(Duration::ZERO).await.remove(0));
    assert_eq!(message.receipts(), 1, "receipts while the gate is held do not count");
    gate(21, GateState::Released);
    fixture.handle_next(&posting, VISIBILITY).await;
    let row = fixture.store.ledger.transaction(&work.submission.key).await.unwrap().unwrap();
    assert!(matches!(row.outcome, Some(Outcome::Posted { .. })), "{row:?}");
    assert!(fixture.dead_letters().await.is_empty());
}

#[tokio::test]
async fn work_that_fails_delays_no_other_work_of_its_envelope() {
    let fixture = Fixture::with_still_clock().await;
    let mut failing = [fixture.accept(account(1), 1).await, fixture.accept(account(1), 2).await];
    failing.iter_mut().for_each(|work| work.submission.key.account = account(99));
    let [first, second] = failing;
    let (one, two) = (fixture.accept(account(1), 3).await, fixture.accept(account(2), 4).await);
    fixture.send(vec![first, one, second, two]).await;
    let posting = PostingHandler::new(&fixture.bank(), Arc::default(), &config(VISIBILITY));
    fixture.handle_next(&posting, VISIBILITY).await;
    // At the first receipt, without the wait for the next one.
    assert_eq!([fixture.balance(1).await, fixture.balance(2).await], ["1.00", "1.00"]);
    assert_eq!((fixture.depth().await, fixture.dead_letters().await.len()), (1, 0));
}
