//! Work in the payload store, step by step: a payload is removed once its work is final, final work
//! delays no other, and dead letters hold the work itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::FutureExt as _;
use postonce_process::background_task::BackgroundTask as _;
use postonce_process::meter::Meter;
use postonce_shared::protocol::recover::RecoveryScope;
use postonce_shared::testing::prelude::*;
use postonce_worker::listening::delivery::{Delivery, DeliveryError};
use postonce_worker::listening::handler::Handler as _;
use postonce_worker::posting::posting_handler::PostingHandler;
use postonce_worker::upkeep::payload_sweep::PayloadSweep;

use crate::posting::fixture::{DEQUEUE_COUNT_MAX, Fixture, account, config, handle, instruction};

/// Enough items for a payload.
const MANY: u128 = 700;
const VISIBILITY: Duration = Duration::from_secs(20);

/// The calls that a payload store refuses during its outage.
const PAYLOAD_STORE: [&str; 2] = ["PayloadStore::get", "PayloadStore::delete"];

/// A worker that handles messages when a test calls it.
struct TestWorker {
    control: Arc<Control>,
    meter: Arc<Meter>,
    posting: PostingHandler,
}

impl TestWorker {
    async fn handle_next(&self, fixture: &Fixture<TestWorld>) {
        fixture.handle_next(&self.posting, VISIBILITY).await;
    }
}

async fn fixture() -> (Fixture<TestWorld>, TestWorker) {
    let control = Arc::<Control>::default();
    let controlled = Fixture::with_still_clock_over(|store| control.apply(store));
    let (fixture, meter) = (controlled.await, Arc::new(Meter::default()));
    let posting = PostingHandler::new(&fixture.bank(), Arc::clone(&meter), &config(VISIBILITY));
    (fixture, TestWorker { control, meter, posting })
}

/// Accepts deposits by message number and account.
async fn accepted(
    fixture: &Fixture<TestWorld>,
    messages: impl Iterator<Item = (u128, AccountKey)>,
) -> Vec<Work> {
    let details = Details::from_stored(Some("r".repeat(140)), BTreeMap::new(), String::new());
    let deposit = Instruction { details, ..instruction(TransactionKind::Deposit) };
    let mut work = Vec::new();
    for (message, account) in messages {
        work.push(fixture.accept_as(deposit.clone(), account, message).await);
    }
    work
}

async fn many(fixture: &Fixture<TestWorld>) -> Vec<Work> {
    accepted(fixture, (1..=MANY).map(|number| (number, account(1)))).await
}

/// Puts work in a payload, and a claim on it on the queue. Returns the name of the payload.
async fn send_claim(fixture: &Fixture<TestWorld>, work: Vec<Work>) -> String {
    let claims = ClaimCheck::new(&fixture.store, &seal(), fixture.world.clone());
    let envelope = claims.put(Envelope::of(work)).await.unwrap();
    fixture.send_body(&envelope.encode(&seal())).await;
    envelope.payload.unwrap()
}

async fn payload_count(fixture: &Fixture<TestWorld>) -> usize {
    fixture.store.payloads.list(PAYLOADS, None, 100).await.unwrap().items.len()
}

#[tokio::test]
async fn a_payload_is_removed_when_its_work_is_final_and_before_its_message() {
    let (fixture, worker) = fixture().await;
    let work = many(&fixture).await;
    send_claim(&fixture, work).await;
    worker.handle_next(&fixture).await;
    assert_eq!(fixture.balance(1).await, "700.00");
    assert_eq!((fixture.depth().await, payload_count(&fixture).await), (0, 0));
    let steps = ["PayloadStore::delete", "WorkQueue::delete"];
    assert_eq!(worker.control.calls(&steps), steps);
}

#[tokio::test]
async fn a_claim_on_a_payload_that_was_removed_is_settled() {
    let (fixture, worker) = fixture().await;
    let work = many(&fixture).await;
    send_claim(&fixture, work).await;
    // The worker dies after it removed the payload, so its message is received again.
    worker.control.fail(&["WorkQueue::delete"]);
    worker.handle_next(&fixture).await;
    assert_eq!((fixture.depth().await, payload_count(&fixture).await), (1, 0));
    worker.control.heal();
    worker.handle_next(&fixture).await;
    assert_eq!((fixture.depth().await, worker.meter.settled_before.get()), (0, 1));
    assert_eq!((fixture.balance(1).await.as_str(), fixture.dead_letters().await.len()), ("700.00", 0));
}

/// Handles messages until the queue is empty, or a number of rounds has passed.
async fn handle_all(fixture: &Fixture<TestWorld>, worker: &TestWorker, rounds: usize) {
    for _ in 0..rounds {
        if fixture.depth().await == 0 {
            return;
        }
        worker.handle_next(fixture).await;
    }
}

#[tokio::test]
async fn a_claim_whose_payload_was_lost_waits_until_a_recovery_has_found_its_work() {
    let (fixture, worker) = fixture().await;
    let work = many(&fixture).await;
    let name = send_claim(&fixture, work).await;
    fixture.store.payloads.delete(&name).await.unwrap();
    // Anybody may write a tombstone, but not seal it.
    fixture.store.payloads.put(&format!("settled-{name}"), br#"{"v":1}"#).await.unwrap();
    let repair = fixture.bank().repair;
    // No transaction is due yet.
    for minutes in [1, 4, 10] {
        worker.handle_next(&fixture).await;
        let recovered = repair.recover(RecoveryScope::Old).await.unwrap();
        worker.handle_next(&fixture).await;
        assert_eq!((fixture.depth().await, recovered.enqueued), (1, 0), "{minutes}");
        fixture.world.advance(Duration::from_secs(minutes * 60));
    }
    assert!(worker.meter.payloads_missing.get() > 2, "it was received again and again");
    assert_eq!(worker.meter.settled_before.get(), 0);
    worker.handle_next(&fixture).await;
    assert_eq!(repair.recover(RecoveryScope::Old).await.unwrap().enqueued, u64::try_from(MANY).unwrap());
    handle_all(&fixture, &worker, 60).await;
    assert_eq!((fixture.depth().await, worker.meter.settled_before.get()), (0, 1));
    assert_eq!((fixture.balance(1).await.as_str(), fixture.dead_letters().await.len()), ("700.00", 0));
}

#[tokio::test]
async fn a_claim_without_a_seal_on_a_payload_that_does_not_exist_becomes_a_dead_letter() {
    let (fixture, worker) = fixture().await;
    fixture.send_body(&unsealed(&Claim::on("work-7".to_owned()).encode(&seal()))).await;
    worker.handle_next(&fixture).await;
    let letters = fixture.dead_letters().await;
    assert_eq!((letters.len(), fixture.depth().await, worker.meter.payloads_missing.get()), (1, 0, 0));
    assert!(letters[0].reason.contains("work-7 does not exist"), "{}", letters[0].reason);
}

#[tokio::test]
async fn the_reads_of_one_message_have_one_time_limit() {
    let fixture = Fixture::with_still_clock().await;
    let world = fixture.world.clone();
    let bank = fixture.bank_over(|store| {
        faults::apply(store, move |call| match call {
            "PayloadStore::get" => {
                let world = world.clone();
                Effect::Waits(async move { world.sleep(Duration::from_millis(750)).await }.boxed())
            }
            "SyncStore::get" => Effect::Hangs,
            _ => Effect::Passes,
        });
    });
    let posting = PostingHandler::new(&bank, Arc::default(), &config(Duration::from_secs(4)));
    fixture.send_body(&Claim::on("work-7".to_owned()).encode(&seal())).await;
    let message = fixture.receive(VISIBILITY).await.remove(0);
    let mut read = Box::pin(posting.read(&message));
    // The payload store answers twice within a second and a half; the limit is two seconds.
    for _ in 0..8 {
        assert!(read.as_mut().now_or_never().is_none());
        fixture.world.advance(Duration::from_millis(250));
    }
    assert!(matches!(read.now_or_never(), Some(Err(DeliveryError::PayloadUnavailable { .. }))));
}

#[tokio::test]
async fn a_claim_that_was_sent_twice_posts_once() {
    let (fixture, worker) = fixture().await;
    let work = many(&fixture).await;
    let name = send_claim(&fixture, work).await;
    fixture.send_body(&Claim::on(name).encode(&seal())).await;
    worker.handle_next(&fixture).await;
    worker.handle_next(&fixture).await;
    assert_eq!(fixture.balance(1).await, "700.00");
    assert_eq!((fixture.depth().await, fixture.dead_letters().await.len()), (0, 0));
}

#[tokio::test]
async fn an_outage_of_the_payload_store_costs_no_receipt_and_delays_no_other_work() {
    let (fixture, worker) = fixture().await;
    let work = many(&fixture).await;
    send_claim(&fixture, work).await;
    worker.control.fail(&PAYLOAD_STORE);
    for round in 1..=3 * DEQUEUE_COUNT_MAX {
        let plain = accepted(&fixture, std::iter::once((10_000 + u128::from(round), account(1)))).await;
        fixture.send_body(&Envelope::of(plain).encode(&seal())).await;
        worker.handle_next(&fixture).await;
        assert_eq!(fixture.balance(1).await, format!("{round}.00"), "work inside a message is posted");
    }
    assert_eq!((fixture.depth().await, fixture.dead_letters().await.len()), (1, 0));
    worker.control.heal();
    let message = fixture.receive(VISIBILITY).await.remove(0);
    let Ok(Body::Claim(claim)) = Body::decode(&message.body, &seal()) else { panic!("not a claim any more") };
    assert_eq!((message.dequeue_count, claim.forgiven), (7, 6));
    fixture.world.advance(VISIBILITY * 2);
    worker.handle_next(&fixture).await;
    assert_eq!(fixture.balance(1).await, "706.00");
    assert_eq!((fixture.depth().await, payload_count(&fixture).await), (0, 0));
}

#[tokio::test]
async fn a_payload_that_cannot_be_removed_is_left_to_the_sweep() {
    let (fixture, worker) = fixture().await;
    let work = many(&fixture).await;
    send_claim(&fixture, work).await;
    let message = fixture.receive(VISIBILITY).await.remove(0);
    let content = worker.posting.read(&message).await;
    worker.control.fail(&PAYLOAD_STORE);
    let _ = handle(&worker.posting, vec![Delivery::new(message, content)]).await;
    assert_eq!(fixture.balance(1).await, "700.00");
    assert_eq!((fixture.depth().await, payload_count(&fixture).await), (0, 1));
}

#[tokio::test]
async fn a_damaged_payload_becomes_a_dead_letter() {
    let (fixture, worker) = fixture().await;
    fixture.store.payloads.put("work-7", b"neither gzip nor work").await.unwrap();
    let body = Claim::on("work-7".to_owned()).encode(&seal());
    fixture.send_body(&body).await;
    worker.handle_next(&fixture).await;
    let letters = fixture.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("the payload work-7 is damaged"), "{}", letters[0].reason);
    assert_eq!(
        (letters[0].body.as_slice(), payload_count(&fixture).await),
        (body.as_slice(), 1),
        "the payload is kept"
    );
    assert_eq!(fixture.depth().await, 0);
}

#[tokio::test]
async fn unreadable_items_do_not_stop_the_others_of_their_payload() {
    let (fixture, worker) = fixture().await;
    let work = many(&fixture).await;
    let body = String::from_utf8(unsealed(&Envelope::of(work).encode(&seal()))).unwrap();
    let strange = body.replacen("deposit", "depot", 300).into_bytes();
    let strange = seal().seal(Purpose::Payload("work-7"), strange);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut gzip, &strange).unwrap();
    fixture.store.payloads.put("work-7", &gzip.finish().unwrap()).await.unwrap();
    fixture.send_body(&Claim::on("work-7".to_owned()).encode(&seal())).await;
    worker.handle_next(&fixture).await;
    worker.handle_next(&fixture).await;
    assert_eq!(fixture.balance(1).await, "400.00");
    let letters = fixture.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(String::from_utf8(letters[0].body.clone()).unwrap().matches("depot").count(), 300);
    assert_eq!(
        (fixture.depth().await, payload_count(&fixture).await),
        (0, 0),
        "nothing is left of the claim"
    );
}

#[tokio::test]
async fn a_small_rest_moves_into_the_message_and_becomes_a_dead_letter_with_its_work() {
    let (fixture, worker) = fixture().await;
    let mut work = many(&fixture).await;
    let bad = accepted(&fixture, std::iter::once((9999, account(99)))).await.remove(0);
    work.insert(350, bad.clone());
    send_claim(&fixture, work).await;
    worker.handle_next(&fixture).await;
    assert_eq!((fixture.balance(1).await.as_str(), payload_count(&fixture).await), ("700.00", 1));
    let message = fixture.receive(VISIBILITY).await.remove(0);
    assert_eq!(envelope_in(&message.body).items, std::slice::from_ref(&bad));
    for _ in 0..2 * DEQUEUE_COUNT_MAX {
        fixture.world.advance(VISIBILITY * 2);
        worker.handle_next(&fixture).await;
    }
    let letters = fixture.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(envelope_in(&letters[0].body).items, [bad]);
}

#[tokio::test]
async fn a_large_rest_stays_in_its_payload() {
    let (fixture, worker) = fixture().await;
    let mut work = many(&fixture).await;
    let bad = accepted(&fixture, (20_000..20_300).map(|number| (number, account(99)))).await;
    work.extend(bad);
    let name = send_claim(&fixture, work).await;
    worker.handle_next(&fixture).await;
    assert_eq!((fixture.balance(1).await.as_str(), payload_count(&fixture).await), ("700.00", 1));
    let message = fixture.receive(VISIBILITY).await.remove(0);
    let Ok(Body::Claim(claim)) = Body::decode(&message.body, &seal()) else { panic!("not a claim any more") };
    assert_eq!(claim, Claim::on(name));
    // After its last receipt, unfinished work is sent in messages of its own; the sweep removes the payload.
    fixture.world.advance(VISIBILITY * 2);
    worker.handle_next(&fixture).await;
    assert_eq!((fixture.depth().await, payload_count(&fixture).await), (1000, 1));
    assert_eq!(fixture.balance(1).await, "700.00");
}

#[tokio::test]
async fn a_worker_sweeps_once_a_day() {
    let (fixture, worker) = fixture().await;
    let work = many(&fixture).await;
    send_claim(&fixture, work.clone()).await;
    worker.handle_next(&fixture).await;
    let sweeping = PayloadSweep::new(&fixture.bank());
    let orphan = ClaimCheck::new(&fixture.store, &seal(), fixture.world.clone())
        .put(Envelope::of(work))
        .await
        .unwrap();
    assert!(orphan.payload.is_some() && payload_count(&fixture).await == 1);
    fixture.world.advance(Duration::from_secs(3600));
    assert!(sweeping.is_due(), "within the first hour");
    sweeping.run().await;
    assert_eq!((sweeping.is_due(), payload_count(&fixture).await), (false, 1), "the payload is too young");
    fixture.world.advance(Duration::from_secs(24 * 3600 - 1));
    assert!(!sweeping.is_due());
    fixture.world.advance(Duration::from_secs(1));
    assert!(sweeping.is_due());
    sweeping.run().await;
    assert_eq!(payload_count(&fixture).await, 0);
}
