//! How messages are settled when work, ledger or process fail.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postonce_shared::testing::prelude::*;

use crate::posting::fixture::{DEQUEUE_COUNT_MAX, Fixture, VISIBILITY, account, queue, until};

/// The calls of the ledger.
const LEDGER: [&str; 5] =
    ["Ledger::commit", "Ledger::account", "Ledger::transaction", "Ledger::mark", "Ledger::probe"];

#[tokio::test]
async fn the_same_key_in_one_receive_and_one_envelope_posts_once() {
    let fixture = Fixture::new().await;
    let (one, two) = (fixture.accept(account(1), 1).await, fixture.accept(account(1), 2).await);
    fixture.send(vec![one.clone(), two.clone(), one.clone()]).await;
    fixture.send(vec![one.clone()]).await;
    fixture.send(vec![one, two]).await;
    let worker = fixture.worker();
    fixture.until_empty().await;
    worker.drain().await;
    assert_eq!(fixture.balance(1).await, "2.00");
}

#[tokio::test]
async fn an_unreadable_message_is_set_aside_at_once_and_blocks_no_other() {
    let fixture = Fixture::new().await;
    fixture.send_body(b"garbage").await;
    let work = fixture.accept(account(1), 1).await;
    fixture.send(vec![work]).await;
    let worker = fixture.worker();
    fixture.until_empty().await;
    worker.drain().await;
    let letters = fixture.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].body.as_slice(), letters[0].dequeue_count), (&b"garbage"[..], 1));
    assert!(letters[0].reason.contains("not an envelope"), "{}", letters[0].reason);
    assert_eq!(fixture.balance(1).await, "1.00");
}

#[tokio::test]
async fn an_envelope_of_a_newer_version_waits_and_is_counted() {
    let fixture = Fixture::new().await;
    let newer = br#"{"v":3,"items":"of another shape"}"#.to_vec();
    fixture.send_body(&seal().seal(Purpose::Message, newer)).await;
    let worker = fixture.worker();
    until("the newer version was counted", async || worker.meter.newer_versions.get() > 0).await;
    worker.drain().await;
    assert_eq!((fixture.depth().await, fixture.dead_letters().await.len()), (1, 0));
}

#[tokio::test]
async fn only_the_bad_item_of_an_envelope_becomes_a_dead_letter() {
    let fixture = Fixture::new().await;
    let mut bad = fixture.accept(account(1), 1).await;
    bad.submission.key.account = account(99);
    let (one, two) = (fixture.accept(account(1), 2).await, fixture.accept(account(2), 3).await);
    fixture.send(vec![one, bad.clone(), two]).await;
    let worker = fixture.worker();
    fixture.until_empty().await;
    worker.drain().await;
    assert_eq!((fixture.balance(1).await, fixture.balance(2).await), ("1.00".to_owned(), "1.00".to_owned()));
    let letters = fixture.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(envelope_in(&letters[0].body).items, [bad]);
    assert!(letters[0].reason.contains("account does not exist"), "{}", letters[0].reason);
}

#[tokio::test]
async fn an_outage_longer_than_all_receipts_makes_no_dead_letters() {
    let fixture = Fixture::new().await;
    let control = Arc::<Control>::default();
    control.fail(&LEDGER);
    for message in 0..40 {
        let work = fixture.accept(account(1 + message % 3), message).await;
        fixture.send(vec![work]).await;
    }
    // Each of these workers uses up a receipt before it notices the outage; there are more of them than receipts.
    for _ in 0..=(DEQUEUE_COUNT_MAX * 2) {
        let worker = fixture.worker_over(|store| control.apply(store));
        until("the outage was noticed", async || worker.meter.transient_faults.get() > 0).await;
        worker.drain().await;
        let queue_port = fixture.store.queue.clone();
        until("the messages are visible again", async || {
            queue_port.backlog(&queue()).await.unwrap().head_inserted_at.is_some()
        })
        .await;
    }
    control.heal();
    let worker = fixture.worker_over(|store| control.apply(store));
    fixture.until_empty().await;
    worker.drain().await;
    assert_eq!(fixture.dead_letters().await, []);
    assert_eq!(
        [fixture.balance(1).await, fixture.balance(2).await, fixture.balance(3).await],
        ["14.00", "13.00", "13.00"]
    );
}

#[tokio::test]
async fn work_resumes_by_itself_after_an_outage_of_the_ledger() {
    let fixture = Fixture::new().await;
    let control = Arc::<Control>::default();
    control.fail(&LEDGER);
    let work = fixture.accept(account(1), 1).await;
    fixture.send(vec![work]).await;
    let worker = fixture.worker_over(|store| control.apply(store));
    until("the outage was noticed", async || worker.meter.transient_faults.get() > 0).await;
    let received = worker.meter.received.get();
    let later = fixture.accept(account(2), 2).await;
    fixture.send(vec![later]).await;
    // During the outage nothing is received, so that no receipts are used up.
    until("several probes were made", async || control.count("Ledger::probe") >= 4).await;
    assert_eq!(worker.meter.received.get(), received);
    control.heal();
    fixture.until_empty().await;
    worker.drain().await;
    assert_eq!([fixture.balance(1).await, fixture.balance(2).await], ["1.00", "1.00"]);
}

#[tokio::test]
async fn work_that_takes_longer_than_its_lease_keeps_it() {
    let fixture = Fixture::new().await;
    let work = fixture.accept(account(1), 1).await;
    fixture.send(vec![work]).await;
    let slow = fixture.worker_over(|store| {
        faults::apply(store, |call| match call {
            "Ledger::commit" => Effect::Waits(Box::pin(tokio::time::sleep(VISIBILITY * 4))),
            _ => Effect::Passes,
        });
    });
    let other = fixture.worker();
    fixture.until_empty().await;
    assert_eq!(other.meter.received.get() + slow.meter.received.get(), 1, "the message was received once");
    assert_eq!(slow.meter.leases_lost.get() + other.meter.leases_lost.get(), 0);
    slow.drain().await;
    other.drain().await;
    assert_eq!(fixture.balance(1).await, "1.00");
}

#[tokio::test]
async fn a_message_that_kills_its_workers_is_set_aside() {
    let fixture = Fixture::new().await;
    let (one, two) = (fixture.accept(account(1), 1).await, fixture.accept(account(2), 2).await);
    fixture.send(vec![one, two]).await;
    // As after the death of its workers: received, never settled.
    let queue_port = fixture.store.queue.clone();
    for _ in 0..DEQUEUE_COUNT_MAX {
        let received = queue_port.receive(&queue(), 32, Duration::ZERO).await.unwrap();
        assert_eq!(received.len(), 1);
    }
    let worker = fixture.worker();
    fixture.until_empty().await;
    assert_eq!(worker.meter.splits.get(), 1);
    worker.drain().await;
    // Each item was harmless alone.
    assert_eq!([fixture.balance(1).await, fixture.balance(2).await], ["1.00", "1.00"]);

    // An item whose workers died while it was the only one in its message.
    let alone = fixture.accept(account(3), 3).await;
    let attempts = fixture.ended_attempts().await;
    let envelope = Envelope { attempts, ..Envelope::of(vec![alone]) };
    fixture.send_body(&envelope.encode(&seal())).await;
    for _ in 0..DEQUEUE_COUNT_MAX {
        let _ = queue_port.receive(&queue(), 32, Duration::ZERO).await.unwrap();
    }
    let worker = fixture.worker();
    fixture.until_empty().await;
    worker.drain().await;
    let letters = fixture.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("3 processes ended"), "{}", letters[0].reason);
    assert_eq!(fixture.balance(3).await, "0.00");
}

#[tokio::test]
async fn two_workers_share_a_backlog_and_post_each_transaction_once() {
    let fixture = Fixture::new().await;
    let mut keys = BTreeSet::new();
    for message in 0..300 {
        let work = fixture.accept(account(1 + message % 3), message).await;
        keys.insert(work.submission.key.clone());
        fixture.send(vec![work.clone()]).await;
        if message % 5 == 0 {
            fixture.send(vec![work]).await;
        }
    }
    let (one, two) = (fixture.worker(), fixture.worker());
    fixture.until_empty().await;
    one.drain().await;
    two.drain().await;
    assert_eq!(
        [fixture.balance(1).await, fixture.balance(2).await, fixture.balance(3).await],
        ["100.00", "100.00", "100.00"]
    );
    assert_eq!(fixture.dead_letters().await, []);
}
