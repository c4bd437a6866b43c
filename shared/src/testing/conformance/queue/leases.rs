//! A lease ends, can be prolonged, and is lost to whoever receives the message next.

use std::time::Duration;

use super::{LONG, Line, SHORT};
use crate::ports::queue::{Held, Lease, Message};

pub(super) async fn contract(line: &impl AsyncFn() -> Line) {
    a_message_can_be_given_back_at_once(&line().await).await;
    an_older_receipt_of_ones_own_is_lost(&line().await).await;
    // Each of these waits for a lease to end: together they wait once.
    let lines = [line().await, line().await, line().await, line().await, line().await];
    let [ended, lost, delayed, prolonged, expired] = &lines;
    futures::join!(
        a_message_comes_back_when_its_lease_ends(ended),
        a_lease_is_lost_to_the_next_receiver(lost),
        a_delayed_message_comes_later(delayed),
        a_prolonged_lease_does_not_end(prolonged),
        an_expired_lease_holds_until_the_next_receipt(expired),
    );
}

fn ours(held: Held<Lease>) -> Lease {
    match held {
        Held::Ours(lease) => lease,
        Held::Lost => panic!("the lease was ours, but is called lost"),
    }
}

/// Asserts that nothing can be done with that lease any more.
async fn assert_lost(line: &Line, lease: &Lease) {
    let answer = line.extend(lease, b"{\"by\":\"a loser\"}", Duration::ZERO).await;
    assert_eq!(answer, Held::Lost, "a lost lease cannot be prolonged");
    assert_eq!(line.delete(lease).await, Held::Lost, "a lost lease deletes nothing");
}

/// Asserts that both are receipts of one message, the second one right after the first.
fn assert_next_receipt(first: &Message, second: &Message) {
    assert_eq!(second.lease.message_id, first.lease.message_id, "a message keeps its id");
    assert_ne!(second.lease.pop_receipt, first.lease.pop_receipt, "every receipt has its own lease");
    assert_eq!(second.dequeue_count, first.dequeue_count + 1, "every receipt is counted");
    assert_eq!(second.inserted_at, first.inserted_at, "it was sent once");
}

async fn a_message_can_be_given_back_at_once(line: &Line) {
    line.send(b"{\"given\":\"back\"}").await;
    let mut last = line.next(LONG).await;
    for count in 2..=4 {
        ours(line.extend(&last.lease, &last.body, Duration::ZERO).await);
        let next = line.next(LONG).await;
        assert_eq!(next.dequeue_count, count, "giving back and receiving again is counted");
        assert_next_receipt(&last, &next);
        assert_eq!(next.body, last.body, "the body was passed on");
        last = next;
    }
    assert_eq!(line.delete(&last.lease).await, Held::Ours(()), "the newest lease holds");
}

async fn an_older_receipt_of_ones_own_is_lost(line: &Line) {
    line.send(b"{\"body\":1}").await;
    let first = line.next(LONG).await.lease;
    let second = ours(line.extend(&first, b"{\"body\":2}", LONG).await);
    assert_ne!(second, first, "every renewal gives a new lease");
    assert_eq!(second.message_id, first.message_id, "on the same message");
    assert_lost(line, &first).await;
    let third = ours(line.extend(&second, b"{\"body\":3}", LONG).await);
    for old in [&first, &second] {
        assert_lost(line, old).await;
    }
    let fourth = ours(line.extend(&third, b"{\"body\":4}", Duration::ZERO).await);
    let message = line.next(LONG).await;
    assert_eq!(message.body, b"{\"body\":4}", "the newest lease replaced the body, the lost ones did not");
    assert_eq!(message.dequeue_count, 2, "renewing is not receiving");
    for old in [&first, &second, &third, &fourth] {
        assert_lost(line, old).await;
    }
    assert_eq!(line.delete(&message.lease).await, Held::Ours(()), "only the newest lease holds");
}

async fn a_message_comes_back_when_its_lease_ends(line: &Line) {
    line.send(b"{\"comes\":\"back\"}").await;
    let lease_time = SHORT * 2;
    let start = line.case.world.uptime();
    let first = line.next(lease_time).await;
    // Looks at once, and then again and again. A store may count in whole seconds.
    let second = line.next(LONG).await;
    let waited = line.case.world.uptime().saturating_sub(start);
    assert!(waited >= SHORT, "a lease of {lease_time:?} ended after {waited:?}");
    assert_next_receipt(&first, &second);
    assert_eq!(second.body, first.body, "the body is as it was");
    assert_eq!(line.delete(&second.lease).await, Held::Ours(()), "the newest lease holds");
    line.depth(0).await;
}

async fn a_lease_is_lost_to_the_next_receiver(line: &Line) {
    line.send(b"{\"lost\":true}").await;
    let first = line.next(SHORT).await;
    let second = line.next(LONG).await;
    assert_lost(line, &first.lease).await;
    let third = ours(line.extend(&second.lease, &second.body, LONG).await);
    assert_eq!(second.body, b"{\"lost\":true}", "the loser changed nothing");
    assert_eq!(line.delete(&third).await, Held::Ours(()), "the loser deleted nothing");
    line.depth(0).await;
    assert_lost(line, &third).await;
}

async fn a_delayed_message_comes_later(line: &Line) {
    let start = line.case.world.uptime();
    line.port().send(&line.name, b"{\"late\":true}", SHORT * 2).await.unwrap();
    let message = line.next(LONG).await;
    let waited = line.case.world.uptime().saturating_sub(start);
    assert!(waited >= SHORT, "a delay of two seconds ended after {waited:?}");
    assert_eq!(message.body, b"{\"late\":true}", "the body is what was sent");
    assert_eq!(message.dequeue_count, 1, "being invisible is not being received");
    assert_eq!(line.delete(&message.lease).await, Held::Ours(()), "the lease holds");
}

async fn a_prolonged_lease_does_not_end(line: &Line) {
    line.send(b"{\"prolonged\":false}").await;
    let first = line.next(SHORT).await;
    // Received later for the same time: when it comes back, the first one would have as well.
    line.send(b"{\"control\":true}").await;
    let renewed = ours(line.extend(&first.lease, b"{\"prolonged\":true}", LONG).await);
    let control = line.next(SHORT).await;
    assert_eq!(control.body, b"{\"control\":true}", "the prolonged message is invisible");
    let look = async || Some(line.receive(2, LONG).await).filter(|messages| !messages.is_empty());
    for returned in line.case.eventually("the lease of the control ends", look).await {
        assert_eq!(returned.lease.message_id, control.lease.message_id, "only its lease ended");
    }
    ours(line.extend(&renewed, b"{\"prolonged\":true}", Duration::ZERO).await);
    let second = line.next(LONG).await;
    assert_eq!(second.body, b"{\"prolonged\":true}", "the body was replaced");
    assert_next_receipt(&first, &second);
}

async fn an_expired_lease_holds_until_the_next_receipt(line: &Line) {
    line.send(b"{\"expired\":1}").await;
    let slow = line.next(SHORT).await;
    let is_visible = async || line.port().backlog(&line.name).await.unwrap().head_inserted_at;
    line.case.eventually("the lease ends", is_visible).await;
    // Nobody else received it, so it is still ours: to prolong, and then to delete.
    let renewed = ours(line.extend(&slow.lease, b"{\"expired\":2}", LONG).await);
    assert!(line.receive(1, LONG).await.is_empty(), "it is leased again");
    let given_back = ours(line.extend(&renewed, b"{\"expired\":3}", Duration::ZERO).await);
    line.case.eventually("it is visible again", is_visible).await;
    assert_eq!(line.delete(&given_back).await, Held::Ours(()), "nobody else received it");
    line.depth(0).await;
}
