#![expect(clippy::arithmetic_side_effects, reason = "test code")]

use std::sync::Arc;

use super::*;
use crate::listening::delivery::Delivery;
use postonce_shared::domain::decision::Submission;
use postonce_shared::posting::order_numbers::OrderNumberFault;
use postonce_shared::testing::prelude::*;

const MAX: u32 = 5;

fn work(id: &str) -> Work {
    let uuid = |last: &str| format!("00000000-0000-0000-0000-{last:0>12}");
    let user: UserId = uuid("1").parse().unwrap();
    let account: AccountId = uuid("2").parse().unwrap();
    let message: MessageId = uuid(id).parse().unwrap();
    let amount = Amount::parse("1.00", Currency::parse("EUR").unwrap()).unwrap();
    Work {
        submission: Submission {
            key: TransactionKey {
                account: AccountKey { user, account },
                partner: PartnerId::parse("shop").unwrap(),
                message,
            },
            instruction: Instruction { kind: TransactionKind::Deposit, amount, details: Details::default() },
            accepted_at: Timestamp::from_unix_ms(0),
            origin: Origin::default(),
            batch_line: None,
        },
        row: Revision::new("1"),
        delivered: None,
    }
}

fn outage() -> Result<(), PostFault> {
    let source = "connection refused".into();
    Err(PostFault::Ledger(Arc::new(StoreFault::Unavailable { doing: "committing", source })))
}

fn unknown() -> Result<(), PostFault> {
    Err(PostFault::AccountUnknown)
}

/// Checks the disposition for items `1`, `2`, … with these results, and which items remain.
fn check(results: &[Result<(), PostFault>], receipts: u32, expected: &str) {
    check_as(false, results, receipts, expected);
}

/// The same for an item that is tried alone.
fn check_alone(results: &[Result<(), PostFault>], receipts: u32, expected: &str) {
    check_as(true, results, receipts, expected);
}

fn check_as(alone: bool, results: &[Result<(), PostFault>], receipts: u32, expected: &str) {
    let items: Vec<Work> = (1..=results.len()).map(|id| work(&id.to_string())).collect();
    let results: Vec<_> = items.iter().zip(results.iter().cloned()).collect();
    let rest = |rest: &[Work]| {
        let place = |work: &Work| items.iter().position(|item| item == work).unwrap() + 1;
        rest.iter().map(|work| place(work).to_string()).collect::<Vec<_>>().join(",")
    };
    let chosen = match choose(&results, receipts, alone, MAX) {
        Disposition::Delete => "delete".to_owned(),
        Disposition::RetryLater { rest: left, forgive } => {
            format!("retry {} {}", rest(&left), if forgive { "forgiven" } else { "counted" })
        }
        Disposition::AwaitRelease { rest: left } => format!("await {}", rest(&left)),
        Disposition::Split { rest: left } => format!("split {}", rest(&left)),
        Disposition::DeadLetter { item, reason } => format!("dead {}: {reason}", rest(&[*item])),
    };
    assert_eq!(chosen, expected);
}

#[test]
fn disposition_of_a_message() {
    check(&[Ok(())], 1, "delete");
    check(&[Ok(()), Ok(())], 99, "delete");
    // An outage never counts, and only unfinished items remain.
    check(&[outage()], 1, "retry 1 forgiven");
    check(&[outage()], 99, "retry 1 forgiven");
    check(&[Ok(()), outage(), Ok(())], 99, "retry 2 forgiven");
    check(&[unknown(), outage()], 99, "retry 1,2 forgiven");
    check(&[Err(PostFault::Contended)], 99, "retry 1 forgiven");
    check(&[Err(PostFault::OrderNumbers(OrderNumberFault::Contended))], 99, "retry 1 forgiven");
    check_alone(&[outage()], 99, "retry 1 forgiven");
    // The work waits until the gate is released, and can be received immediately then.
    check(&[Err(PostFault::GateHeld)], 1, "await 1");
    check(&[Ok(()), Err(PostFault::GateHeld), unknown()], 99, "await 2,3");
    check(&[Err(PostFault::GateHeld), outage()], 99, "retry 1,2 forgiven");
    check_alone(&[Err(PostFault::GateHeld)], 99, "await 1");
    // A permanent fault counts. Its item is then tried alone, and finally becomes a dead letter.
    check(&[unknown()], 4, "retry 1 counted");
    check(&[unknown()], 99, "retry 1 counted");
    check_alone(&[unknown()], 6, "dead 1: the account does not exist");
    check_alone(&[Ok(())], 6, "delete");
    check(&[Ok(()), unknown(), Ok(())], 4, "retry 2 counted");
    check(&[Ok(()), unknown(), Ok(())], 5, "retry 2 counted");
    check(&[unknown(), Ok(()), unknown()], 4, "retry 1,3 counted");
    check(&[unknown(), Ok(()), unknown()], 5, "split 1,3");
    // A damaged row is a permanent fault, and so is a refusal by an available ledger.
    let damage = StoreFault::Corrupt { doing: "reading", source: "a flaw".into() };
    let expected = "dead 1: the ledger could not be used: stored data is invalid while reading: a flaw";
    check_alone(&[Err(PostFault::Ledger(Arc::new(damage)))], 6, expected);
    let refusal = StoreFault::Refused { doing: "committing", source: "too large".into() };
    let expected =
        "dead 1: the ledger could not be used: the store refused the request while committing: too large";
    check_alone(&[Err(PostFault::Ledger(Arc::new(refusal)))], 6, expected);
}

#[test]
fn a_message_that_was_received_too_often_is_split_and_tried_alone() {
    let check = |items, receipts, expected| assert_eq!(treat(items, receipts, MAX), expected);
    check(1, MAX, Treatment::Together);
    check(2, MAX, Treatment::Together);
    check(0, 99, Treatment::Together);
    check(2, MAX + 1, Treatment::Split);
    check(1, MAX + 1, Treatment::Alone);
    check(1, 99, Treatment::Alone);
}

#[test]
fn forgiven_receipts_do_not_count() {
    let mut envelope = Envelope::of(vec![work("1")]);
    envelope.forgiven = 7;
    let lease = Lease { message_id: "m".into(), pop_receipt: "r".into() };
    let message = Message {
        lease,
        body: envelope.encode(&seal()),
        dequeue_count: 9,
        inserted_at: Timestamp::from_unix_ms(0),
    };
    let content = Ok(envelope_in(&message.body));
    assert_eq!(Delivery::new(message, content).receipts(), 2);
}
