//! Large amounts of work travel in the payload store, and the sweep removes no payload too early.

use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use postonce_shared::messaging::claim_check::{ClaimCheck, Claimed};
use postonce_shared::messaging::dispatch::Dispatch;
use postonce_shared::messaging::sweep::{AGE_MIN, Sweep, Swept, TOMBSTONE_AGE_MIN};
use postonce_shared::protocol::dead_letters::ResolveOutcome;
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{Fixture, account, deposit, queue, submit};

/// The payload store is unavailable.
fn without_payloads(store: &mut Store) {
    faults::apply(store, |call| Effect::unavailable_if(call.starts_with("PayloadStore::")));
}

/// Accepts transactions, and loses their messages.
async fn accepted(fixture: &Fixture, count: u128) -> Vec<Work> {
    let bank = fixture.process();
    let mut instruction = deposit("1.00");
    instruction.details =
        Details::new(Some("r".repeat(140)), std::collections::BTreeMap::new(), &UnknownMembers::default());
    let mut work = Vec::new();
    for message in 1..=count {
        let _ = submit(&bank, message, instruction.clone()).await.unwrap();
        work.push(fixture.stored(message).await.work().unwrap());
        if message % 32 == 0 || message == count {
            fixture.lose_messages().await;
        }
    }
    assert_eq!(fixture.queued().await, 0);
    work
}

async fn messages(fixture: &Fixture) -> Vec<Message> {
    fixture.store.ports().queue.receive(&queue(), 32, Duration::from_secs(1)).await.unwrap()
}

async fn payloads(fixture: &Fixture) -> Vec<String> {
    let listed = fixture.store.ports().payloads.list("", None, 100).await.unwrap();
    listed.items.into_iter().map(|entry| entry.name).collect()
}

/// Sends work in one call. Returns whether that succeeded, and how many items were confirmed.
async fn send(
    fixture: &Fixture,
    work: &[Work],
    decorate: impl FnOnce(&mut postonce_shared::ports::Store),
) -> (bool, usize) {
    let mut store = fixture.store.ports();
    decorate(&mut store);
    let dispatch = Dispatch::new(&store, &seal(), Arc::clone(&fixture.world));
    let mut confirmed = 0_usize;
    let sent = dispatch
        .send(&queue(), work, |_| None, |sent| confirmed = confirmed.saturating_add(sent.items.len()))
        .await;
    (sent.is_ok(), confirmed)
}

#[tokio::test]
async fn a_large_amount_of_work_takes_one_message_and_one_payload() {
    let fixture = Fixture::new().await;
    let work = accepted(&fixture, 700).await;
    assert_eq!(send(&fixture, &work, |_| {}).await, (true, 700));
    let received = messages(&fixture).await;
    assert_eq!((received.len(), payloads(&fixture).await.len()), (1, 1));
    let Body::Claim(claim) = Body::decode(&received[0].body, &seal()).unwrap() else { panic!("not a claim") };
    let claims = ClaimCheck::new(&fixture.store.ports(), &seal(), Arc::clone(&fixture.world));
    let Claimed::Content(Ok(Content::Work(envelope))) = claims.get(&claim).await.unwrap() else {
        panic!("the payload is missing")
    };
    assert_eq!(envelope.items, work);
    claims.remove(&claim.name).await.unwrap();
    assert!(matches!(claims.get(&claim).await.unwrap(), Claimed::Settled));
}

#[tokio::test]
async fn without_a_payload_store_work_is_sent_in_messages() {
    let fixture = Fixture::new().await;
    let work = accepted(&fixture, 700).await;
    assert_eq!(send(&fixture, &work, without_payloads).await, (true, 700));
    let received = messages(&fixture).await;
    assert!(received.len() > 4, "{} messages", received.len());
    let items = received.iter().flat_map(|message| envelope_in(&message.body).items);
    assert_eq!(items.collect::<Vec<_>>(), work);
}

#[tokio::test]
async fn a_claim_that_could_not_be_sent_confirms_nothing() {
    let fixture = Fixture::new().await;
    let work = accepted(&fixture, 700).await;
    let sent = send(&fixture, &work, |store| lose(store, "WorkQueue::send", 1));
    assert_eq!(sent.await, (false, 0));
    assert_eq!(
        (messages(&fixture).await.len(), payloads(&fixture).await.len()),
        (0, 1),
        "an orphaned payload"
    );
}

/// A fixture whose clock stands still until a test advances it.
async fn with_still_clock() -> (Fixture, Arc<TestWorld>) {
    let world = Arc::new(TestWorld::new(1));
    (Fixture::in_world(world.clone()).await, world)
}

async fn sweep(fixture: &Fixture) -> Swept {
    Sweep::new(&fixture.store.ports(), &seal(), Arc::clone(&fixture.world)).run().await.unwrap()
}

async fn put(fixture: &Fixture, items: Vec<Work>) -> String {
    let claims = ClaimCheck::new(&fixture.store.ports(), &seal(), Arc::clone(&fixture.world));
    claims.put(Envelope::of(items)).await.unwrap().payload.unwrap()
}

#[tokio::test]
async fn a_sweep_removes_only_old_payloads_whose_work_is_final() {
    let (fixture, world) = with_still_clock().await;
    let bank = fixture.process();
    let work = accepted(&fixture, 3).await;
    let settled = bank.poster.post(account(), vec![work[0].clone(), work[1].clone()]).await;
    assert!(settled.iter().all(|(_, result)| result.is_ok()));
    let done = put(&fixture, vec![work[0].clone(), work[1].clone()]).await;
    let open = put(&fixture, vec![work[0].clone(), work[2].clone()]).await;
    let mut never = work[0].clone();
    never.submission.key = crate::protocol::fixture::key(99);
    let unknown = put(&fixture, vec![never]).await;
    let store = fixture.store.ports().payloads;
    let damaged = format!("{PAYLOADS}damaged");
    store.put(&damaged, b"no gzip").await.unwrap();
    for other in ["letter-1", "workers", "a-work-1"] {
        store.put(other, b"not a payload of the bank").await.unwrap();
    }
    assert_eq!(sweep(&fixture).await, Swept { young: 4, ..Swept::default() });
    world.advance(AGE_MIN - Duration::from_millis(1));
    assert_eq!(sweep(&fixture).await, Swept { young: 4, ..Swept::default() }, "all payloads are too young");
    world.advance(Duration::from_millis(1));
    let young = put(&fixture, vec![work[0].clone()]).await;
    let swept = Swept { removed: 1, open: 2, unreadable: 1, young: 1 };
    assert_eq!(sweep(&fixture).await, swept);
    let mut kept = vec![open.clone(), unknown, damaged, young];
    kept.extend(["letter-1", "workers", "a-work-1"].map(str::to_owned));
    let tombstone = format!("settled-{done}");
    kept.push(tombstone.clone());
    kept.sort();
    assert_eq!(payloads(&fixture).await, kept, "all but {done}");
    // Once the rest is final, the next sweep removes it.
    assert!(bank.poster.post(account(), vec![work[2].clone()]).await[0].1.is_ok());
    assert_eq!(sweep(&fixture).await.removed, 1);
    assert!(!payloads(&fixture).await.contains(&open));
    world.advance(TOMBSTONE_AGE_MIN - Duration::from_millis(1));
    sweep(&fixture).await;
    assert!(payloads(&fixture).await.contains(&tombstone), "its claim may be received again");
    world.advance(Duration::from_millis(1));
    sweep(&fixture).await;
    assert!(!payloads(&fixture).await.contains(&tombstone));
}

/// Compresses content as a payload.
fn compressed(content: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut gzip, content).unwrap();
    gzip.finish().unwrap()
}

#[tokio::test]
async fn a_payload_that_was_replaced_counts_as_missing_and_is_swept_without_a_tombstone() {
    let (fixture, world) = with_still_clock().await;
    let work = accepted(&fixture, 2).await;
    let name = put(&fixture, work.clone()).await;
    let claims = ClaimCheck::new(&fixture.store.ports(), &seal(), Arc::clone(&fixture.world));
    let settled = fixture.process().poster.post(account(), vec![work[0].clone()]).await;
    assert!(settled[0].1.is_ok());
    // All transactions that it names are final.
    let others = Envelope::of(vec![work[0].clone()]).encode(&seal());
    fixture.store.ports().payloads.delete(&name).await.unwrap();
    fixture.store.ports().payloads.put(&name, &compressed(&unsealed(&others))).await.unwrap();
    let claim = Claim::on(name.clone());
    assert!(matches!(claims.get(&claim).await.unwrap(), Claimed::Missing));
    let unsealed = Claim { sealed: false, ..claim.clone() };
    assert!(matches!(claims.get(&unsealed).await.unwrap(), Claimed::Content(Ok(Content::Names(_)))));
    world.advance(AGE_MIN);
    assert_eq!(sweep(&fixture).await.removed, 1);
    assert!(matches!(claims.get(&claim).await.unwrap(), Claimed::Missing), "nothing proves the other work");
}

#[tokio::test]
async fn a_process_without_the_secret_neither_stores_nor_removes_payloads() {
    let fixture = Fixture::new().await;
    let work = accepted(&fixture, 1).await;
    let name = put(&fixture, work.clone()).await;
    let ignorant = Seal::new(&DoorbellSecret::new(None));
    let claims = ClaimCheck::new(&fixture.store.ports(), &ignorant, Arc::clone(&fixture.world));
    assert!(claims.put(Envelope::of(work)).await.is_err());
    assert!(claims.remove(&name).await.is_err());
    assert_eq!(payloads(&fixture).await, [name], "neither removed nor with a tombstone that proves nothing");
}

#[tokio::test]
async fn a_sweep_reports_an_outage_of_the_payload_store() {
    let fixture = Fixture::new().await;
    let mut store = fixture.store.ports();
    without_payloads(&mut store);
    assert!(Sweep::new(&store, &seal(), Arc::clone(&fixture.world)).run().await.is_err());
}

#[tokio::test]
async fn a_dead_letter_with_the_work_of_a_payload_is_replayed_in_several_messages() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let work = accepted(&fixture, 500).await;
    let body = Envelope::of(work.clone()).encode(&seal());
    assert!(body.len() > 3 * postonce_shared::ports::queue::BODY_BYTES_MAX);
    let id = set_aside(&fixture, body).await;
    assert!(fixture.stored(500).await.marks.dead_letter);
    assert_eq!(bank.dead_letters.replay(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    assert_eq!(fixture.queued().await, 500);
    assert!(!fixture.stored(500).await.marks.dead_letter);
}

#[tokio::test]
async fn a_dead_letter_with_many_unreadable_items_is_replayed_completely() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let work = accepted(&fixture, 500).await;
    let body = String::from_utf8(Envelope::of(work).encode(&seal())).unwrap().replace("deposit", "depot");
    let id = set_aside(&fixture, resealed(body.as_bytes())).await;
    assert_eq!(bank.dead_letters.replay(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    let sent: usize = messages(&fixture)
        .await
        .iter()
        .map(|message| String::from_utf8(message.body.clone()).unwrap().matches("depot").count())
        .sum();
    assert_eq!(sent, 500, "every message fits the queue");
}

/// Others may have changed the payload since the dead letter was written, so the letter is only the claim.
#[tokio::test]
async fn a_dead_letter_with_a_claim_is_replayed_unchanged_and_its_discard_rejects_nothing() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let work = accepted(&fixture, 2).await;
    let claim = Claim::on(put(&fixture, work).await).encode(&seal());
    let given_up = set_aside(&fixture, claim.clone()).await;
    assert_eq!(bank.dead_letters.discard(&given_up, "operator").await.unwrap(), ResolveOutcome::Done);
    for message in 1..=2 {
        assert!(fixture.outcome(message).await.is_none(), "repair will send the work again");
    }
    let replayed = set_aside(&fixture, claim.clone()).await;
    assert_eq!(bank.dead_letters.replay(&replayed, "operator").await.unwrap(), ResolveOutcome::Done);
    assert_eq!(messages(&fixture).await.remove(0).body, claim);
}

/// Sets a body aside as a worker does. Returns the id of the dead letter.
async fn set_aside(fixture: &Fixture, body: Vec<u8>) -> String {
    let ports = fixture.store.ports();
    ports.queue.send(&queue(), b"{}", Duration::ZERO).await.unwrap();
    let received = ports.queue.receive(&queue(), 1, Duration::from_secs(60)).await.unwrap().remove(0);
    let message = Message { body, ..received };
    fixture
        .process()
        .dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "a reason")
        .await
        .unwrap();
    let _ = ports.queue.delete(&queue(), &message.lease).await.unwrap();
    message.lease.message_id
}
