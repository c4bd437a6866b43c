use std::time::Duration;

use postonce_shared::bank::Bank;
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::ports::dead_letters::ResolutionKind;
use postonce_shared::protocol::dead_letters::{REASON_CHARS_MAX, ResolveOutcome};
use postonce_shared::testing::conformance::sealed::held_in;

use crate::stage::{Stage, account, deposit, queue, submit};

/// A bank with one message in its dead letters; the letter's id.
async fn with_letter(stage: &Stage) -> (Bank, String) {
    let bank = stage.process();
    let message = bank.store.queue.receive(&queue(), 1, Duration::from_secs(60)).await.unwrap().remove(0);
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "it could not be posted")
        .await
        .unwrap();
    // As after a crash before the delete: setting aside again changes nothing.
    bank.dead_letters.set_aside(&queue(), &message, &held_in(&message.body), "another reason").await.unwrap();
    let _ = bank.store.queue.delete(&queue(), &message.lease).await.unwrap();
    (bank, message.lease.message_id)
}

#[tokio::test]
async fn a_letter_keeps_its_reason_and_its_transaction_is_marked() {
    let stage = Stage::new().await;
    let _ = submit(&stage.process(), 7, deposit("1.00")).await.unwrap();
    let (bank, id) = with_letter(&stage).await;
    let letter = bank.store.dead_letters.find(&id).await.unwrap().unwrap();
    assert_eq!((letter.reason.as_str(), letter.resolution), ("it could not be posted", None));
    assert!(stage.stored(7).await.marks.dead_letter);
    assert_eq!(bank.store.dead_letters.count_open().await.unwrap(), [(queue(), 1)]);
}

#[tokio::test]
async fn a_reason_is_kept_as_far_as_every_store_can() {
    let stage = Stage::new().await;
    let bank = stage.process();
    bank.store.queue.send(&queue(), b"<hostile/>", Duration::ZERO).await.unwrap();
    let message = bank.store.queue.receive(&queue(), 1, Duration::from_secs(60)).await.unwrap().remove(0);
    // The parts of an Azure table row hold 32 Ki characters; what is quoted may be longer.
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), &"ü".repeat(100_000))
        .await
        .unwrap();
    let letter = bank.store.dead_letters.find(&message.lease.message_id).await.unwrap().unwrap();
    assert_eq!(letter.reason, "ü".repeat(REASON_CHARS_MAX));
}

#[tokio::test]
async fn a_replayed_letter_is_posted_and_stays_on_record() {
    let stage = Stage::new().await;
    let _ = submit(&stage.process(), 7, deposit("1.00")).await.unwrap();
    let (bank, id) = with_letter(&stage).await;
    assert_eq!(bank.dead_letters.replay(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    assert!(!stage.stored(7).await.marks.dead_letter);
    let settled = bank.poster.post(account(), stage.receive().await).await;
    assert!(settled.len() == 1 && settled[0].1.is_ok());
    assert_eq!(stage.account().await.balance.to_string(), "1.00");
    let resolution = bank.store.dead_letters.find(&id).await.unwrap().unwrap().resolution.unwrap();
    assert_eq!((resolution.kind, resolution.by.as_str()), (ResolutionKind::Replayed, "operator"));
    assert_eq!(bank.dead_letters.replay(&id, "operator").await.unwrap(), ResolveOutcome::AlreadyResolved);
    assert_eq!(bank.dead_letters.replay("none", "operator").await.unwrap(), ResolveOutcome::Unknown);
}

#[tokio::test]
async fn a_discarded_letter_rejects_what_is_not_final() {
    let stage = Stage::new().await;
    let _ = submit(&stage.process(), 7, deposit("1.00")).await.unwrap();
    let (bank, id) = with_letter(&stage).await;
    assert_eq!(bank.dead_letters.discard(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    let outcome = stage.outcome(7).await;
    assert!(
        matches!(outcome, Some(Outcome::Rejected { reason: RejectReason::Discarded, .. })),
        "{outcome:?}"
    );
    assert!(stage.account().await.balance.is_zero());
    assert_eq!(bank.dead_letters.discard(&id, "operator").await.unwrap(), ResolveOutcome::AlreadyResolved);
}

#[tokio::test]
async fn what_was_posted_meanwhile_is_not_discarded() {
    let stage = Stage::new().await;
    let _ = submit(&stage.process(), 7, deposit("1.00")).await.unwrap();
    let (bank, id) = with_letter(&stage).await;
    let work = stage.stored(7).await.work().unwrap();
    let _ = bank.poster.post(account(), vec![work]).await;
    assert_eq!(bank.dead_letters.discard(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    assert!(matches!(stage.outcome(7).await, Some(Outcome::Posted { .. })));
}

#[tokio::test]
async fn a_body_that_nobody_can_read_is_sent_again_as_it_was() {
    let stage = Stage::new().await;
    let ports = stage.store.ports();
    ports.queue.send(&queue(), b"not an envelope", Duration::ZERO).await.unwrap();
    let (bank, id) = with_letter(&stage).await;
    assert_eq!(bank.dead_letters.replay(&id, "operator").await.unwrap(), ResolveOutcome::Done);
    let again = ports.queue.receive(&queue(), 1, Duration::from_secs(1)).await.unwrap();
    assert_eq!(again[0].body, b"not an envelope");
    assert_ne!(again[0].lease.message_id, id, "should it fail again, it is another letter");
}
