use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::protocol::dead_letters::{REASON_CHARS_MAX, ResolveOutcome};
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{Fixture, account, deposit, queue, submit};

/// A bank with one message in its dead letters, and the id of the dead letter.
async fn with_dead_letter(fixture: &Fixture) -> (Bank, String) {
    let bank = fixture.process();
    let message = bank.store.queue.receive(&queue(), 1, Duration::from_secs(60)).await.unwrap().remove(0);
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "cannot be posted")
        .await
        .unwrap();
    // Setting aside again changes nothing, as after a crash before the delete.
    bank.dead_letters.set_aside(&queue(), &message, &held_in(&message.body), "another reason").await.unwrap();
    let _ = bank.store.queue.delete(&queue(), &message.lease).await.unwrap();
    (bank, message.lease.message_id)
}

#[tokio::test]
async fn a_dead_letter_keeps_its_reason_and_its_transaction_is_marked() {
    let fixture = Fixture::new().await;
    let _ = submit(&fixture.process(), 7, deposit("1.00")).await.unwrap();
    let (bank, id) = with_dead_letter(&fixture).await;
    let letter = bank.store.dead_letters.find(&id).await.unwrap().unwrap();
    assert_eq!((letter.reason.as_str(), letter.resolution), ("cannot be posted", None));
    assert!(fixture.stored(7).await.marks.dead_letter);
    assert_eq!(bank.store.dead_letters.count_open().await.unwrap(), [(queue(), 1)]);
}

#[tokio::test]
async fn a_reason_is_truncated_to_what_every_store_can_keep() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    bank.store.queue.send(&queue(), b"<hostile/>", Duration::ZERO).await.unwrap();
    let message = bank.store.queue.receive(&queue(), 1, Duration::from_secs(60)).await.unwrap().remove(0);
    // A part of an Azure table row holds 32 Ki characters; a quoted body may be longer.
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), &"ü".repeat(100_000))
        .await
        .unwrap();
    let letter = bank.store.dead_letters.find(&message.lease.message_id).await.unwrap().unwrap();
    assert_eq!(letter.reason, "ü".repeat(REASON_CHARS_MAX));
}

#[tokio::test]
async fn a_replayed_dead_letter_is_posted_and_stays_on_record() {
    let fixture = Fixture::new().await;
    let _ = submit(&fixture.process(), 7, deposit("1.00")).await.unwrap();
    let (bank, id) = with_dead_letter(&fixture).await;
    assert_eq!(bank.dead_letters.replay(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    assert!(!fixture.stored(7).await.marks.dead_letter);
    let settled = bank.poster.post(account(), fixture.receive().await).await;
    assert!(settled.len() == 1 && settled[0].1.is_ok());
    assert_eq!(fixture.account().await.balance.to_string(), "1.00");
    let resolution = bank.store.dead_letters.find(&id).await.unwrap().unwrap().resolution.unwrap();
    assert_eq!((resolution.kind, resolution.by.as_str()), (ResolutionKind::Replayed, "operator"));
    assert_eq!(bank.dead_letters.replay(&id, "operator").await.unwrap(), ResolveOutcome::AlreadyResolved);
    assert_eq!(bank.dead_letters.replay("none", "operator").await.unwrap(), ResolveOutcome::Unknown);
}

/// The first call to set the message aside ended after it wrote the dead letter, so the message is redelivered after
/// the operator replayed it.
#[tokio::test]
async fn a_message_that_is_redelivered_after_its_replay_holds_no_work_back() {
    let fixture = Fixture::new().await;
    let _ = submit(&fixture.process(), 7, deposit("1.00")).await.unwrap();
    let bank = fixture.process();
    let message = bank.store.queue.receive(&queue(), 1, Duration::from_secs(60)).await.unwrap().remove(0);
    let contained = held_in(&message.body);
    bank.dead_letters.set_aside(&queue(), &message, &contained, "cannot be posted").await.unwrap();
    let replayed = bank.dead_letters.replay(&message.lease.message_id, "operator").await.unwrap();
    assert_eq!(replayed, ResolveOutcome::Done);
    bank.dead_letters.set_aside(&queue(), &message, &contained, "cannot be posted").await.unwrap();
    let _ = bank.store.queue.delete(&queue(), &message.lease).await.unwrap();
    // The message of the replay, and that of the second call.
    for envelope in fixture.receive_envelopes().await {
        let settled = bank.poster.post(account(), envelope.items).await;
        assert!(settled.iter().all(|(_, result)| result.is_ok()));
    }
    assert!(matches!(fixture.outcome(7).await, Some(Outcome::Posted { .. })));
    assert_eq!(fixture.account().await.balance.to_string(), "1.00");
}

/// Dead letters in a process whose message is set aside once more, by the worker that received it again, before the
/// replay is recorded.
struct SetAsideAgain {
    inner: Arc<dyn DeadLetters>,
    worker: Bank,
    message: Message,
    contained: Vec<TransactionKey>,
}

#[async_trait]
impl DeadLetters for SetAsideAgain {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreFault> {
        self.inner.add(letter).await
    }

    async fn find(&self, id: &str) -> Result<Option<DeadLetter>, StoreFault> {
        self.inner.find(id).await
    }

    async fn list(
        &self,
        open_only: bool,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<DeadLetter>, StoreFault> {
        self.inner.list(open_only, cursor, limit).await
    }

    async fn resolve(&self, id: &str, resolution: &Resolution) -> Result<bool, StoreFault> {
        let Self { worker, message, contained, .. } = self;
        worker.dead_letters.set_aside(&queue(), message, contained, "cannot be posted").await?;
        let _ = worker.store.queue.delete(&queue(), &message.lease).await?;
        self.inner.resolve(id, resolution).await
    }

    async fn count_open(&self) -> Result<Vec<(QueueName, u64)>, StoreFault> {
        self.inner.count_open().await
    }
}

#[tokio::test]
async fn a_message_that_is_set_aside_again_during_its_replay_holds_no_work_back() {
    let fixture = Fixture::new().await;
    let _ = submit(&fixture.process(), 7, deposit("1.00")).await.unwrap();
    let worker = fixture.process();
    let message = worker.store.queue.receive(&queue(), 1, Duration::from_secs(60)).await.unwrap().remove(0);
    let contained = held_in(&message.body);
    worker.dead_letters.set_aside(&queue(), &message, &contained, "cannot be posted").await.unwrap();
    let id = message.lease.message_id.clone();
    let web = fixture.process_over(|store| {
        let inner = Arc::clone(&store.dead_letters);
        store.dead_letters = Arc::new(SetAsideAgain { inner, worker: worker.clone(), message, contained });
    });
    assert_eq!(web.dead_letters.replay(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    for envelope in fixture.receive_envelopes().await {
        let settled = worker.poster.post(account(), envelope.items).await;
        assert!(settled.iter().all(|(_, result)| result.is_ok()));
    }
    assert!(matches!(fixture.outcome(7).await, Some(Outcome::Posted { .. })));
    assert_eq!(fixture.account().await.balance.to_string(), "1.00");
}

#[tokio::test]
async fn a_discarded_dead_letter_rejects_its_open_work() {
    let fixture = Fixture::new().await;
    let _ = submit(&fixture.process(), 7, deposit("1.00")).await.unwrap();
    let (bank, id) = with_dead_letter(&fixture).await;
    assert_eq!(bank.dead_letters.discard(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    let outcome = fixture.outcome(7).await;
    assert!(
        matches!(outcome, Some(Outcome::Rejected { reason: RejectReason::Discarded, .. })),
        "{outcome:?}"
    );
    assert!(fixture.account().await.balance.is_zero());
    assert_eq!(bank.dead_letters.discard(&id, "operator").await.unwrap(), ResolveOutcome::AlreadyResolved);
}

#[tokio::test]
async fn work_that_was_posted_meanwhile_is_not_discarded() {
    let fixture = Fixture::new().await;
    let _ = submit(&fixture.process(), 7, deposit("1.00")).await.unwrap();
    let (bank, id) = with_dead_letter(&fixture).await;
    let work = fixture.stored(7).await.work().unwrap();
    let _ = bank.poster.post(account(), vec![work]).await;
    assert_eq!(bank.dead_letters.discard(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    assert!(matches!(fixture.outcome(7).await, Some(Outcome::Posted { .. })));
}

#[tokio::test]
async fn an_unreadable_body_is_replayed_unchanged() {
    let fixture = Fixture::new().await;
    let ports = fixture.store.ports();
    ports.queue.send(&queue(), b"not an envelope", Duration::ZERO).await.unwrap();
    let (bank, id) = with_dead_letter(&fixture).await;
    assert_eq!(bank.dead_letters.replay(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    let again = ports.queue.receive(&queue(), 1, Duration::from_secs(1)).await.unwrap();
    assert_eq!(again[0].body, b"not an envelope");
    assert_ne!(again[0].lease.message_id, id, "a second failure would be another dead letter");
}
