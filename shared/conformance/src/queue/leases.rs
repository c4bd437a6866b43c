//! Tests that a lease ends, can be extended, and is lost when the message is received again.

use std::time::Duration;

use super::{LONG, SHORT, TestQueue};
use postonce_shared::ports::queue::{Held, Lease, Message};

pub(super) async fn contract(queue: &impl AsyncFn() -> TestQueue) {
    a_message_can_be_released_at_once(&queue().await).await;
    an_earlier_receipt_of_the_same_holder_is_lost(&queue().await).await;
    // Each of these waits until a lease ends; they run concurrently to wait only once.
    let queues = [queue().await, queue().await, queue().await, queue().await, queue().await];
    let [ended, lost, delayed, prolonged, expired] = &queues;
    futures::join!(
        a_message_is_visible_again_when_its_lease_ends(ended),
        a_lease_is_lost_when_the_message_is_received_again(lost),
        a_delayed_message_becomes_visible_later(delayed),
        an_extended_lease_does_not_end(prolonged),
        an_expired_lease_is_valid_until_the_next_receipt(expired),
    );
}

fn ours(held: Held<Lease>) -> Lease {
    match held {
        Held::Ours(lease) => lease,
        Held::Lost => panic!("the lease is valid, but was reported as lost"),
    }
}

/// Asserts that a lease is lost: no operation succeeds with it.
async fn assert_lost(queue: &TestQueue, lease: &Lease) {
    let answer = queue.extend(lease, b"{\"by\":\"a loser\"}", Duration::ZERO).await;
    assert_eq!(answer, Held::Lost, "a lost lease cannot be extended");
    assert_eq!(queue.delete(lease).await, Held::Lost, "a lost lease deletes nothing");
}

/// Asserts that both are receipts of one message, the second one directly after the first.
fn assert_next_receipt(first: &Message, second: &Message) {
    assert_eq!(second.lease.message_id, first.lease.message_id, "a message keeps its id");
    assert_ne!(second.lease.pop_receipt, first.lease.pop_receipt, "every receipt has a new pop receipt");
    assert_eq!(second.dequeue_count, first.dequeue_count + 1, "every receipt is counted");
    assert_eq!(second.inserted_at, first.inserted_at, "the insertion time is kept");
}

async fn a_message_can_be_released_at_once(queue: &TestQueue) {
    queue.send(b"{\"given\":\"back\"}").await;
    let mut last = queue.next(LONG).await;
    for count in 2..=4 {
        ours(queue.extend(&last.lease, &last.body, Duration::ZERO).await);
        let next = queue.next(LONG).await;
        assert_eq!(next.dequeue_count, count, "a released message that is received again is counted");
        assert_next_receipt(&last, &next);
        assert_eq!(next.body, last.body, "the body is unchanged");
        last = next;
    }
    assert_eq!(queue.delete(&last.lease).await, Held::Ours(()), "the newest lease is valid");
}

async fn an_earlier_receipt_of_the_same_holder_is_lost(queue: &TestQueue) {
    queue.send(b"{\"body\":1}").await;
    let first = queue.next(LONG).await.lease;
    let second = ours(queue.extend(&first, b"{\"body\":2}", LONG).await);
    assert_ne!(second, first, "every extension returns a new lease");
    assert_eq!(second.message_id, first.message_id, "the message id is unchanged");
    assert_lost(queue, &first).await;
    let third = ours(queue.extend(&second, b"{\"body\":3}", LONG).await);
    for old in [&first, &second] {
        assert_lost(queue, old).await;
    }
    let fourth = ours(queue.extend(&third, b"{\"body\":4}", Duration::ZERO).await);
    let message = queue.next(LONG).await;
    assert_eq!(message.body, b"{\"body\":4}", "only the newest lease replaces the body");
    assert_eq!(message.dequeue_count, 2, "an extension does not count as a receipt");
    for old in [&first, &second, &third, &fourth] {
        assert_lost(queue, old).await;
    }
    assert_eq!(queue.delete(&message.lease).await, Held::Ours(()), "only the newest lease is valid");
}

async fn a_message_is_visible_again_when_its_lease_ends(queue: &TestQueue) {
    queue.send(b"{\"comes\":\"back\"}").await;
    let lease_time = SHORT * 2;
    let start = queue.case.world.uptime();
    let first = queue.next(lease_time).await;
    // Polls at once, and then repeatedly. A store may count in whole seconds.
    let second = queue.next(LONG).await;
    let waited = queue.case.world.uptime().saturating_sub(start);
    assert!(waited >= SHORT, "a lease of {lease_time:?} ended after {waited:?}");
    assert_next_receipt(&first, &second);
    assert_eq!(second.body, first.body, "the body is unchanged");
    assert_eq!(queue.delete(&second.lease).await, Held::Ours(()), "the newest lease is valid");
    queue.depth(0).await;
}

async fn a_lease_is_lost_when_the_message_is_received_again(queue: &TestQueue) {
    queue.send(b"{\"lost\":true}").await;
    let first = queue.next(SHORT).await;
    let second = queue.next(LONG).await;
    assert_lost(queue, &first.lease).await;
    let third = ours(queue.extend(&second.lease, &second.body, LONG).await);
    assert_eq!(second.body, b"{\"lost\":true}", "a lost lease does not change the body");
    assert_eq!(queue.delete(&third).await, Held::Ours(()), "a lost lease does not delete the message");
    queue.depth(0).await;
    assert_lost(queue, &third).await;
}

async fn a_delayed_message_becomes_visible_later(queue: &TestQueue) {
    let start = queue.case.world.uptime();
    queue.port().send(&queue.name, b"{\"late\":true}", SHORT * 2).await.unwrap();
    let message = queue.next(LONG).await;
    let waited = queue.case.world.uptime().saturating_sub(start);
    assert!(waited >= SHORT, "a delay of two seconds ended after {waited:?}");
    assert_eq!(message.body, b"{\"late\":true}", "the body is unchanged");
    assert_eq!(message.dequeue_count, 1, "a delayed message was not received");
    assert_eq!(queue.delete(&message.lease).await, Held::Ours(()), "the lease is valid");
}

async fn an_extended_lease_does_not_end(queue: &TestQueue) {
    queue.send(b"{\"prolonged\":false}").await;
    let first = queue.next(SHORT).await;
    // Received later for the same time: when it is visible again, the first lease would have ended, too.
    queue.send(b"{\"control\":true}").await;
    let renewed = ours(queue.extend(&first.lease, b"{\"prolonged\":true}", LONG).await);
    let control = queue.next(SHORT).await;
    assert_eq!(control.body, b"{\"control\":true}", "the message with the extended lease is invisible");
    let check = async || Some(queue.receive(2, LONG).await).filter(|messages| !messages.is_empty());
    for returned in queue.case.eventually("the lease of the control message ends", check).await {
        assert_eq!(
            returned.lease.message_id, control.lease.message_id,
            "only the lease of the control message has ended"
        );
    }
    ours(queue.extend(&renewed, b"{\"prolonged\":true}", Duration::ZERO).await);
    let second = queue.next(LONG).await;
    assert_eq!(second.body, b"{\"prolonged\":true}", "the body was replaced");
    assert_next_receipt(&first, &second);
}

async fn an_expired_lease_is_valid_until_the_next_receipt(queue: &TestQueue) {
    queue.send(b"{\"expired\":1}").await;
    let slow = queue.next(SHORT).await;
    let is_visible = async || queue.port().backlog(&queue.name).await.unwrap().head_inserted_at;
    queue.case.eventually("the lease ends", is_visible).await;
    // The message was not received again, so the lease is still valid: it can be extended, and then deleted.
    let renewed = ours(queue.extend(&slow.lease, b"{\"expired\":2}", LONG).await);
    assert!(queue.receive(1, LONG).await.is_empty(), "the message is leased again");
    let given_back = ours(queue.extend(&renewed, b"{\"expired\":3}", Duration::ZERO).await);
    queue.case.eventually("the message is visible again", is_visible).await;
    assert_eq!(queue.delete(&given_back).await, Held::Ours(()), "the message was not received again");
    queue.depth(0).await;
}
