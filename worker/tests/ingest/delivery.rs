//! A message is deleted only after each of its orders is accepted or a dead letter, and a repeated delivery changes nothing.

use std::collections::BTreeSet;

use postonce_shared::testing::prelude::*;
use postonce_worker::ingest::intake::Received;
use postonce_worker::listening::handler::Health;

use crate::ingest::fixture::{TestWorker, body, orders_queue};
use crate::posting::fixture::{DEQUEUE_COUNT_MAX, account, queue};

/// Receipts after which a message is given up: those together with others, and those alone.
const RECEIPTS_MAX: u32 = DEQUEUE_COUNT_MAX + 3;

fn lines(orders: &[String]) -> String {
    orders.join("\n")
}

/// Returns the open dead letters by id.
async fn letters(worker: &TestWorker) -> Vec<DeadLetter> {
    let letters = worker.fixture.dead_letters().await;
    assert!(letters.iter().all(|letter| letter.queue == orders_queue().queue), "{letters:?}");
    letters
}

#[tokio::test]
async fn a_process_that_ends_at_any_step_neither_loses_nor_repeats_an_order() {
    // Before the insert, before the send, and before the message is deleted.
    for call in ["Ledger::accept", "WorkQueue::send", "WorkQueue::delete"] {
        let worker = TestWorker::with_partner().await;
        worker.send(&lines(&[body(1, 1, "2.00"), body(2, 2, "3.00")])).await;
        let worker = worker.killed_at(call).await;
        worker.pass();
        assert_eq!(worker.handle_next().await, Health::Healthy, "{call}");
        // What the first process sent, too.
        let _ = worker.handle_next().await;
        assert_eq!(worker.fixture.balance(1).await, "2.00", "{call}");
        assert_eq!(worker.fixture.balance(2).await, "3.00", "{call}");
        assert_eq!((worker.depth().await, worker.fixture.depth().await), (0, 0), "{call}");
        assert_eq!(worker.fixture.dead_letters().await, [], "{call}");
    }
}

#[tokio::test]
async fn a_process_that_ends_after_a_dead_letter_does_not_write_it_twice() {
    for call in ["DeadLetters::add", "WorkQueue::delete"] {
        let worker = TestWorker::with_partner().await;
        worker.send(&lines(&[body(9, 1, "2.00"), body(1, 2, "3.00"), body(9, 3, "4.00")])).await;
        let worker = worker.killed_at(call).await;
        let before = letters(&worker).await;
        worker.pass();
        let _ = worker.handle_next().await;
        let after = letters(&worker).await;
        assert_eq!(after.len(), 2, "{call}");
        assert!(before.iter().all(|letter| after.contains(letter)), "{call}");
        assert_eq!((worker.depth().await, worker.fixture.balance(1).await), (0, "3.00".to_owned()), "{call}");
    }
}

#[tokio::test]
async fn orders_of_one_message_are_posted_and_the_refused_ones_become_dead_letters_of_their_own() {
    let worker = TestWorker::with_partner().await;
    let invalid = body(1, 3, "1,00");
    let orders = [
        body(1, 1, "2.00"),
        body(9, 2, "5.00"),
        invalid.clone(),
        // Only after the first one.
        body(1, 4, "-2.00"),
        body(1, 1, "7.00"),
        body(2, 5, "1.00"),
    ];
    worker.send(&lines(&orders)).await;
    assert_eq!(worker.handle_next().await, Health::Healthy);
    assert_eq!(worker.depth().await, 0);
    assert_eq!([worker.fixture.balance(1).await, worker.fixture.balance(2).await], ["0.00", "1.00"]);
    let letters = letters(&worker).await;
    let expected = [
        (&orders[1], "-2", "partner shop is refused: the account"),
        (&invalid, "-3", "amount must use a point"),
        (&orders[4], "-5", "was used before with another content"),
    ];
    assert_eq!(letters.len(), expected.len(), "{letters:?}");
    for (letter, (body, id, reason)) in letters.iter().zip(expected) {
        assert_eq!(letter.body, body.as_bytes());
        assert!(letter.id.ends_with(id) && letter.reason.contains(reason), "{letter:?}");
    }
    let (accepted, refused) = (worker.meter.admitted.get(), worker.meter.dead_letters.get());
    assert_eq!((accepted, refused), (3, 3));
    let gauges = worker.meter.ingest_queues();
    let orders = &gauges.first().unwrap().1.orders;
    assert_eq!([orders.accepted.get(), orders.refused.get(), orders.postponed.get()], [3, 3, 0]);
}

#[tokio::test]
async fn the_replay_of_a_refused_order_sends_only_this_one_and_shows_it_again_if_it_is_refused_again() {
    let worker = TestWorker::with_partner().await;
    worker.send(&lines(&[body(1, 1, "2.00"), body(9, 2, "5.00"), body(1, 3, "x")])).await;
    let _ = worker.handle_next().await;
    let first = letters(&worker).await;
    let _ = worker.bank.dead_letters.replay(&first[0].id, "test").await.unwrap();
    assert_eq!((worker.depth().await, worker.fixture.depth().await), (1, 0), "it returns to its queue");
    let _ = worker.handle_next().await;
    let second = letters(&worker).await;
    let ids: BTreeSet<&str> = [&first, &second].into_iter().flatten().map(|it| it.id.as_str()).collect();
    assert_eq!((second.len(), ids.len()), (2, 3), "a new letter: {second:?}");
    assert!(second.iter().any(|it| it.body == first[0].body && it.id != first[0].id));
    assert_eq!(worker.fixture.balance(1).await, "2.00");
}

#[tokio::test]
async fn a_sealed_message_in_an_ingest_queue_is_refused_and_none_of_its_work_is_replayed_or_discarded() {
    let worker = TestWorker::with_partner().await;
    let work = worker.fixture.submit(1, 1).await;
    let sealed = worker.fixture.receive(std::time::Duration::ZERO).await.remove(0).body;
    let ingest = orders_queue().queue;
    worker.fixture.store.queue.send(&ingest, &sealed, std::time::Duration::ZERO).await.unwrap();
    assert!(matches!(worker.receive().await, Received::Messages { .. }));
    let found = letters(&worker).await;
    assert!(found[0].reason.contains("is missing"), "{found:?}");
    let _ = worker.bank.dead_letters.replay(&found[0].id, "test").await.unwrap();
    assert_eq!((worker.depth().await, worker.fixture.depth().await), (1, 1));
    assert!(matches!(worker.receive().await, Received::Messages { .. }));
    let found = letters(&worker).await;
    let _ = worker.bank.dead_letters.discard(&found[0].id, "test").await.unwrap();
    let stored = worker.fixture.store.ledger.transaction(work.key()).await.unwrap().unwrap();
    assert_eq!((stored.outcome, stored.marks.dead_letter), (None, false));
}

#[tokio::test]
async fn a_foreign_body_in_a_work_queue_becomes_a_dead_letter_that_names_the_right_queue() {
    let worker = TestWorker::with_partner().await;
    for foreign in [body(1, 1, "2.00"), "<UserAccountTransaction/>".to_owned(), "anything".to_owned()] {
        worker.fixture.send_body(foreign.as_bytes()).await;
        let _ = worker.handle_next().await;
        let letter = worker.fixture.dead_letters().await.remove(0);
        assert_eq!((&letter.queue, letter.body.as_slice()), (&queue(), foreign.as_bytes()));
        assert!(letter.reason.contains("direct producers belong into an ingest queue"), "{}", letter.reason);
        let _ = worker.bank.dead_letters.discard(&letter.id, "test").await.unwrap();
    }
    assert_eq!(worker.fixture.balance(1).await, "0.00");
}

#[tokio::test]
async fn a_message_that_is_never_handled_to_the_end_becomes_a_dead_letter_and_others_do_not() {
    let worker = TestWorker::with_partner().await;
    let crashing = body(2, 9, "1.00");
    worker.send(&crashing).await;
    worker.order(1, 1, "2.00").await;
    for receipt in 1..=RECEIPTS_MAX {
        worker.control.set_once("Ledger::account", || panic!("as an order that crashes the worker"));
        assert_eq!(worker.handle_next().await, Health::Healthy);
        assert_eq!((worker.depth().await, letters(&worker).await.len()), (1, 0), "after {receipt} receipts");
        worker.pass();
    }
    assert_eq!(worker.fixture.balance(1).await, "2.00", "together with it");
    worker.order(1, 2, "3.00").await;
    let _ = worker.handle_next().await;
    assert_eq!((worker.depth().await, worker.fixture.balance(1).await), (0, "5.00".to_owned()));
    let letters = letters(&worker).await;
    assert_eq!((letters.len(), letters[0].body.as_slice()), (1, crashing.as_bytes()));
    let words = format!("it was received {} times", RECEIPTS_MAX + 1);
    assert!(letters[0].reason.contains(&words), "{letters:?}");
}

#[tokio::test]
async fn an_outage_of_the_store_makes_no_dead_letter_however_often_a_message_is_received() {
    for call in ["Ledger::accept", "Ledger::account"] {
        let worker = TestWorker::with_partner().await;
        worker.send(&lines(&[body(1, 1, "2.00"), body(9, 2, "1.00")])).await;
        for _ in 0..3 * RECEIPTS_MAX {
            worker.control.fail(&[call]);
            assert_eq!(worker.handle_next().await, Health::Unavailable, "{call}");
            assert_eq!((letters(&worker).await.len(), worker.fixture.balance(1).await.as_str()), (0, "0.00"));
            // A message that was received often is replaced, which needs the queue.
            worker.control.heal();
            worker.pass();
        }
        let _ = worker.handle_next().await;
        let _ = worker.handle_next().await;
        assert_eq!((worker.depth().await, worker.fixture.balance(1).await.as_str()), (0, "2.00"), "{call}");
        assert_eq!(letters(&worker).await.len(), 1, "{call}");
    }
}

#[tokio::test]
async fn nothing_is_received_while_the_ledger_is_unavailable() {
    let worker = TestWorker::with_partner().await;
    worker.order(1, 1, "2.00").await;
    worker.control.fail(&["Ledger::accept", "Ledger::probe"]);
    assert_eq!(worker.handle_next().await, Health::Unavailable);
    worker.pass();
    let received = worker.control.count("WorkQueue::receive");
    assert!(matches!(worker.receive().await, Received::Unavailable));
    assert_eq!(worker.control.count("WorkQueue::receive"), received);
    worker.control.heal();
    let _ = worker.handle_next().await;
    assert_eq!(worker.fixture.balance(1).await, "2.00");
}

#[tokio::test]
async fn after_the_start_of_a_drain_no_order_is_accepted_and_the_message_is_visible_for_others() {
    let worker = TestWorker::with_partner().await.draining();
    worker.send(&lines(&[body(1, 1, "2.00"), body(9, 2, "1.00")])).await;
    assert_eq!(worker.handle_next().await, Health::Healthy);
    assert_eq!((worker.meter.admitted.get(), letters(&worker).await.len()), (0, 0));
    let worker = worker.restarted();
    let _ = worker.handle_next().await;
    assert_eq!((worker.depth().await, worker.fixture.balance(1).await), (0, "2.00".to_owned()));
}

#[tokio::test]
async fn the_transactions_of_orders_are_those_of_the_partner() {
    let worker = TestWorker::with_partner().await;
    worker.posts(1, 7, "2.00", "2.00").await;
    let key = TransactionKey {
        account: account(1),
        partner: PartnerId::parse("shop").unwrap(),
        message: MessageId::from_uuid(uuid::Uuid::from_u128(7)),
    };
    let stored = worker.fixture.store.ledger.transaction(&key).await.unwrap().unwrap();
    assert!(matches!(stored.outcome, Some(Outcome::Posted { .. })), "{stored:?}");
}
