//! Work by reference: much of it is claimed from the payload store, and nothing is swept too early.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::domain::decision::Work;
use postonce_shared::domain::instruction::{Details, UnknownMembers};
use postonce_shared::messaging::claim_check::{ClaimCheck, Claimed};
use postonce_shared::messaging::dispatch::Dispatch;
use postonce_shared::messaging::envelope::claim::PAYLOADS;
use postonce_shared::messaging::envelope::{Body, Claim, Content, Envelope};
use postonce_shared::messaging::sweep::{AGE_MIN, Sweep, Swept};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::Listing;
use postonce_shared::ports::payload_store::{PayloadEntry, PayloadStore};
use postonce_shared::ports::queue::Message;
use postonce_shared::protocol::dead_letters::ResolveOutcome;
use postonce_shared::testing::conformance::sealed::{envelope_in, held_in, resealed, seal};

use crate::stage::{Countdown, Stage, TroubledQueue, account, deposit, queue, submit};

/// A payload store that is away.
struct Away;

fn away() -> StoreFault {
    StoreFault::Unavailable { doing: "talking to the payload store", source: "switched off".into() }
}

#[async_trait]
impl PayloadStore for Away {
    async fn put(&self, _: &str, _: &[u8]) -> Result<(), StoreFault> {
        Err(away())
    }
    async fn get(&self, _: &str) -> Result<Option<Vec<u8>>, StoreFault> {
        Err(away())
    }
    async fn delete(&self, _: &str) -> Result<(), StoreFault> {
        Err(away())
    }
    async fn list(&self, _: &str, _: Option<&str>, _: usize) -> Result<Listing<PayloadEntry>, StoreFault> {
        Err(away())
    }
}

/// Work that is accepted and whose messages are lost.
async fn accepted(stage: &Stage, count: u128) -> Vec<Work> {
    let bank = stage.process();
    let mut instruction = deposit("1.00");
    instruction.details = Details::try_new(
        Some("r".repeat(140)),
        std::collections::BTreeMap::new(),
        &UnknownMembers::default(),
    )
    .unwrap();
    let mut work = Vec::new();
    for message in 1..=count {
        let _ = submit(&bank, message, instruction.clone()).await.unwrap();
        work.push(stage.stored(message).await.work().unwrap());
        if message % 32 == 0 || message == count {
            stage.lose_messages().await;
        }
    }
    assert_eq!(stage.queued().await, 0);
    work
}

async fn messages(stage: &Stage) -> Vec<Message> {
    stage.store.ports().queue.receive(&queue(), 32, Duration::from_secs(1)).await.unwrap()
}

async fn payloads(stage: &Stage) -> Vec<String> {
    let listed = stage.store.ports().payloads.list("", None, 100).await.unwrap();
    listed.items.into_iter().map(|entry| entry.name).collect()
}

/// Sends all of it at once, and tells how much was confirmed.
async fn send(
    stage: &Stage,
    work: &[Work],
    trouble: impl FnOnce(&mut postonce_shared::ports::Store),
) -> (bool, usize) {
    let mut store = stage.store.ports();
    trouble(&mut store);
    let dispatch = Dispatch::new(&store, &seal(), Arc::clone(&stage.world));
    let mut confirmed = 0_usize;
    let sent = dispatch
        .send(
            &queue(),
            work,
            Some("00-ab"),
            |_| None,
            |sent| confirmed = confirmed.saturating_add(sent.items.len()),
        )
        .await;
    (sent.is_ok(), confirmed)
}

#[tokio::test]
async fn much_work_takes_one_message_and_one_payload() {
    let stage = Stage::new().await;
    let work = accepted(&stage, 700).await;
    assert_eq!(send(&stage, &work, |_| {}).await, (true, 700));
    let received = messages(&stage).await;
    assert_eq!((received.len(), payloads(&stage).await.len()), (1, 1));
    let Body::Claim(claim) = Body::decode(&received[0].body, &seal()).unwrap() else {
        panic!("it is a claim")
    };
    assert_eq!(claim.traceparent.as_deref(), Some("00-ab"));
    let claims = ClaimCheck::new(&stage.store.ports(), &seal(), Arc::clone(&stage.world));
    let Claimed::Content(Ok(Content::Work(envelope))) = claims.get(&claim).await.unwrap() else {
        panic!("it is there")
    };
    assert_eq!(envelope.items, work);
    claims.remove(&claim.name).await.unwrap();
    assert!(matches!(claims.get(&claim).await.unwrap(), Claimed::Settled));
}

#[tokio::test]
async fn a_payload_store_that_is_away_stops_nobody() {
    let stage = Stage::new().await;
    let work = accepted(&stage, 700).await;
    assert_eq!(send(&stage, &work, |store| store.payloads = Arc::new(Away)).await, (true, 700));
    let received = messages(&stage).await;
    assert!(received.len() > 4, "{} messages", received.len());
    let items = received.iter().flat_map(|message| envelope_in(&message.body).items);
    assert_eq!(items.collect::<Vec<_>>(), work);
}

#[tokio::test]
async fn a_claim_that_could_not_be_sent_promises_nothing() {
    let stage = Stage::new().await;
    let work = accepted(&stage, 700).await;
    let sent = send(&stage, &work, |store| {
        store.queue =
            Arc::new(TroubledQueue { inner: Arc::clone(&store.queue), sends_lost: Countdown::of(1) });
    });
    assert_eq!(sent.await, (false, 0));
    assert_eq!((messages(&stage).await.len(), payloads(&stage).await.len()), (0, 1), "an orphan");
}

/// A world whose clock moves only when told, a day and more.
async fn stage_with_clock() -> (Stage, Arc<TestWorld>) {
    let world = Arc::new(TestWorld::new(1));
    (Stage::in_world(world.clone()).await, world)
}

async fn sweep(stage: &Stage) -> Swept {
    Sweep::new(&stage.store.ports(), Arc::clone(&stage.world)).run().await.unwrap()
}

async fn put(stage: &Stage, items: Vec<Work>) -> String {
    let claims = ClaimCheck::new(&stage.store.ports(), &seal(), Arc::clone(&stage.world));
    claims.put(Envelope::of(items, None)).await.unwrap().payload.unwrap()
}

#[tokio::test]
async fn a_sweep_removes_what_is_old_and_final_and_nothing_else() {
    let (stage, world) = stage_with_clock().await;
    let bank = stage.process();
    let work = accepted(&stage, 3).await;
    let settled = bank.poster.post(account(), vec![work[0].clone(), work[1].clone()]).await;
    assert!(settled.iter().all(|(_, result)| result.is_ok()));
    let done = put(&stage, vec![work[0].clone(), work[1].clone()]).await;
    let open = put(&stage, vec![work[0].clone(), work[2].clone()]).await;
    let mut never = work[0].clone();
    never.key = crate::stage::key(99);
    let unknown = put(&stage, vec![never]).await;
    let store = stage.store.ports().payloads;
    let damaged = format!("{PAYLOADS}damaged");
    store.put(&damaged, b"no gzip").await.unwrap();
    for other in ["letter-1", "workers", "a-work-1"] {
        store.put(other, b"somebody else's").await.unwrap();
    }
    assert_eq!(sweep(&stage).await, Swept { young: 4, ..Swept::default() });
    world.advance(AGE_MIN - Duration::from_millis(1));
    assert_eq!(sweep(&stage).await, Swept { young: 4, ..Swept::default() }, "not a moment too early");
    world.advance(Duration::from_millis(1));
    let young = put(&stage, vec![work[0].clone()]).await;
    let swept = Swept { removed: 1, open: 2, unreadable: 1, young: 1 };
    assert_eq!(sweep(&stage).await, swept);
    let mut kept = vec![open.clone(), unknown, damaged, young];
    kept.extend(["letter-1", "workers", "a-work-1"].map(str::to_owned));
    kept.sort();
    assert_eq!(payloads(&stage).await, kept, "all but {done}");
    // When the rest is final, too, the next sweep takes it.
    assert!(bank.poster.post(account(), vec![work[2].clone()]).await[0].1.is_ok());
    assert_eq!(sweep(&stage).await.removed, 1);
    assert!(!payloads(&stage).await.contains(&open));
}

#[tokio::test]
async fn a_sweep_of_a_store_that_is_away_says_so() {
    let stage = Stage::new().await;
    let mut store = stage.store.ports();
    store.payloads = Arc::new(Away);
    assert!(Sweep::new(&store, Arc::clone(&stage.world)).run().await.is_err());
}

#[tokio::test]
async fn a_letter_with_the_work_of_a_payload_is_replayed_in_messages_of_its_own() {
    let stage = Stage::new().await;
    let bank = stage.process();
    let work = accepted(&stage, 500).await;
    let body = Envelope::of(work.clone(), None).encode(&seal());
    assert!(body.len() > 3 * postonce_shared::ports::queue::BODY_BYTES_MAX);
    let id = set_aside(&stage, body).await;
    assert!(stage.stored(500).await.marks.dead_letter);
    assert_eq!(bank.dead_letters.replay(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    assert_eq!(stage.queued().await, 500);
    assert!(!stage.stored(500).await.marks.dead_letter);
}

#[tokio::test]
async fn a_letter_with_many_items_that_nobody_can_read_is_replayed_whole() {
    let stage = Stage::new().await;
    let bank = stage.process();
    let work = accepted(&stage, 500).await;
    let body =
        String::from_utf8(Envelope::of(work, None).encode(&seal())).unwrap().replace("deposit", "depot");
    let id = set_aside(&stage, resealed(body.as_bytes())).await;
    assert_eq!(bank.dead_letters.replay(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    let sent: usize = messages(&stage)
        .await
        .iter()
        .map(|message| String::from_utf8(message.body.clone()).unwrap().matches("depot").count())
        .sum();
    assert_eq!(sent, 500, "in messages that the queue takes");
}

/// Others may have changed the payload since the letter was written, so the letter is only the claim.
#[tokio::test]
async fn a_letter_with_a_claim_is_replayed_as_it_is_and_gives_up_nothing() {
    let stage = Stage::new().await;
    let bank = stage.process();
    let work = accepted(&stage, 2).await;
    let claim = Claim::on(put(&stage, work).await).encode(&seal());
    let given_up = set_aside(&stage, claim.clone()).await;
    assert_eq!(bank.dead_letters.discard(&given_up, "operator").await.unwrap(), ResolveOutcome::Done);
    for message in 1..=2 {
        assert!(stage.outcome(message).await.is_none(), "repair sends it again");
    }
    let replayed = set_aside(&stage, claim.clone()).await;
    assert_eq!(bank.dead_letters.replay(&replayed, "operator").await.unwrap(), ResolveOutcome::Done);
    assert_eq!(messages(&stage).await.remove(0).body, claim);
}

/// Sets a body aside as a worker does; the letter's id.
async fn set_aside(stage: &Stage, body: Vec<u8>) -> String {
    let ports = stage.store.ports();
    ports.queue.send(&queue(), b"{}", Duration::ZERO).await.unwrap();
    let received = ports.queue.receive(&queue(), 1, Duration::from_secs(60)).await.unwrap().remove(0);
    let message = Message { body, ..received };
    stage
        .process()
        .dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "a reason")
        .await
        .unwrap();
    let _ = ports.queue.delete(&queue(), &message.lease).await.unwrap();
    message.lease.message_id
}
