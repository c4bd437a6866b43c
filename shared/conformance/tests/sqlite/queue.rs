//! The queue in the file of the ledger: messages are written together with transactions and received without the lock.

use std::sync::Arc;
use std::time::Duration;

use postonce_shared::adapters::sqlite::Enqueue;
use postonce_shared::ports::queue::{BODY_BYTES_MAX, Held};
use postonce_shared::testing::fresh_nonce;

use super::fixture::{Fixture, number, refused, within_deadline, work_queue};

#[test]
fn accepting_and_enqueueing_is_one_step() {
    within_deadline(async {
        let fixture = Fixture::new();
        let too_large: Enqueue = Arc::new(|_| vec![(work_queue(), vec![0; BODY_BYTES_MAX + 1])]);
        let broken: Enqueue = Arc::new(|_| panic!("on purpose"));
        for enqueue in [too_large, broken] {
            let store = fixture.open_with(enqueue);
            assert!(refused(&store.ledger.accept(&[fixture.deposit(1)], fresh_nonce()).await));
            assert!(store.ledger.transaction(&fixture.deposit(1).key).await.unwrap().is_none());
            assert_eq!(store.queue.backlog(&work_queue()).await.unwrap().depth, 0);
        }
    });
}

#[test]
fn an_empty_receive_takes_no_lock() {
    within_deadline(async {
        let fixture = Fixture::new();
        let (store, queue) = (fixture.open(), work_queue());
        store.queue.send(&queue, b"later", Duration::from_secs(3600)).await.unwrap();
        let other = fixture.sql();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let received = store.queue.receive(&queue, 32, Duration::from_secs(20));
        // Below the time that a writer waits for the lock.
        let received = tokio::time::timeout(Duration::from_secs(4), received).await;
        assert!(received.expect("an empty receive takes no lock").unwrap().is_empty());
        store.ledger.probe().await.unwrap();
    });
}

#[test]
fn message_ids_are_never_used_again() {
    within_deadline(async {
        let fixture = Fixture::new();
        let (queue, visibility) = (work_queue(), Duration::from_secs(20));
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3 {
            let store = fixture.open();
            store.queue.send(&queue, b"body", Duration::ZERO).await.unwrap();
            let message = store.queue.receive(&queue, 1, visibility).await.unwrap().remove(0);
            assert!(seen.insert(message.lease.message_id.clone()), "{seen:?}");
            assert_eq!(store.queue.delete(&queue, &message.lease).await.unwrap(), Held::Ours(()));
            assert_eq!(store.queue.delete(&queue, &message.lease).await.unwrap(), Held::Lost);
        }
        assert_eq!(
            number(&fixture.sql(), "SELECT count(*) FROM queue_bodies"),
            0,
            "the body is deleted with its message"
        );
    });
}

#[test]
fn only_the_newest_receipt_counts() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        let (queue, visibility) = (work_queue(), Duration::from_secs(20));
        store.queue.send(&queue, b"body", Duration::ZERO).await.unwrap();
        let first = store.queue.receive(&queue, 32, visibility).await.unwrap().remove(0);
        assert!(store.queue.receive(&queue, 32, visibility).await.unwrap().is_empty());
        fixture.move_clock(visibility);
        // The lease has expired, but no other receive took it, so it can be extended.
        let renewed = store.queue.extend(&queue, &first.lease, b"changed", visibility).await.unwrap();
        let Held::Ours(renewed) = renewed else { panic!("lost") };
        assert_eq!(store.queue.delete(&queue, &first.lease).await.unwrap(), Held::Lost);
        fixture.move_clock(visibility);
        let second = store.queue.receive(&queue, 32, visibility).await.unwrap().remove(0);
        assert_eq!((second.body.as_slice(), second.dequeue_count), (b"changed".as_slice(), 2));
        assert_eq!(second.lease.message_id, first.lease.message_id);
        assert_eq!(store.queue.extend(&queue, &renewed, b"body", visibility).await.unwrap(), Held::Lost);
        assert_eq!(store.queue.delete(&queue, &renewed).await.unwrap(), Held::Lost);
        assert_eq!(store.queue.delete(&queue, &second.lease).await.unwrap(), Held::Ours(()));
        let large = vec![0; BODY_BYTES_MAX + 1];
        assert!(refused(&store.queue.send(&queue, &large, Duration::ZERO).await));
    });
}

#[test]
fn a_large_message_of_another_program_can_be_extended() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        let (queue, visibility) = (work_queue(), Duration::from_secs(20));
        store.queue.send(&queue, b"body", Duration::ZERO).await.unwrap();
        fixture.sql().execute_batch("UPDATE queue_bodies SET body = zeroblob(65536)").unwrap();
        let message = store.queue.receive(&queue, 1, visibility).await.unwrap().remove(0);
        assert_eq!(message.body.len(), 65_536);
        let extended = store.queue.extend(&queue, &message.lease, &message.body, visibility).await;
        let Held::Ours(lease) = extended.unwrap() else { panic!("lost") };
        assert_eq!(store.queue.delete(&queue, &lease).await.unwrap(), Held::Ours(()));
    });
}

#[test]
fn a_clock_that_is_set_back_hides_messages_only_for_a_short_time() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        let (queue, visibility) = (work_queue(), Duration::from_secs(20));
        store.queue.send(&queue, b"waits", Duration::ZERO).await.unwrap();
        store.queue.send(&queue, b"leased", Duration::ZERO).await.unwrap();
        assert_eq!(store.queue.receive(&queue, 1, visibility).await.unwrap().len(), 1);
        // A small step back costs no lease.
        fixture.set_clock_back(Duration::from_secs(5));
        assert!(store.queue.receive(&queue, 32, visibility).await.unwrap().is_empty());
        fixture.set_clock_back(Duration::from_secs(7200));
        store.queue.send(&queue, b"new", Duration::ZERO).await.unwrap();
        let first = store.queue.receive(&queue, 32, visibility).await.unwrap();
        assert_eq!(first.len(), 1, "a new message is visible at once");
        assert_eq!(store.queue.receive(&queue, 32, visibility).await.unwrap().len(), 2);
        assert!(
            store.queue.receive(&queue, 32, visibility).await.unwrap().is_empty(),
            "each message is leased once"
        );
    });
}
