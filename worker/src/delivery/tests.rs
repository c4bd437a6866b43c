#![expect(clippy::arithmetic_side_effects, reason = "test code")]

use std::sync::Arc;

use super::*;
use postonce_shared::domain::account::Revision;
use postonce_shared::domain::ids::{AccountId, AccountKey, MessageId, PartnerId, TransactionKey, UserId};
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind};
use postonce_shared::domain::money::{Amount, Currency};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::order_numbers::OrderNumberFault;

const MAX: u32 = 5;

fn work(id: &str) -> Work {
    let uuid = |last: &str| format!("00000000-0000-0000-0000-{last:0>12}");
    let user: UserId = uuid("1").parse().unwrap();
    let account: AccountId = uuid("2").parse().unwrap();
    let message: MessageId = uuid(id).parse().unwrap();
    let amount = Amount::parse("1.00", Currency::parse("EUR").unwrap()).unwrap();
    Work {
        key: TransactionKey {
            account: AccountKey { user, account },
            partner: PartnerId::parse("shop").unwrap(),
            message,
        },
        instruction: Instruction { kind: TransactionKind::Deposit, amount, details: Details::default() },
        accepted_at: Timestamp::from_unix_ms(0),
        revision: Revision::new("1"),
    }
}

fn outage() -> Result<(), PostFault> {
    let source = "connection refused".into();
    Err(PostFault::Ledger(Arc::new(StoreFault::Unavailable { doing: "committing", source })))
}

fn unknown() -> Result<(), PostFault> {
    Err(PostFault::AccountUnknown)
}

/// The choice for the items `1`, `2`, … with these results, and which of them it leaves over.
fn check(results: &[Result<(), PostFault>], receipts: u32, expected: &str) {
    let items: Vec<Work> = (1..=results.len()).map(|id| work(&id.to_string())).collect();
    let results: Vec<_> = items.iter().zip(results.iter().cloned()).collect();
    let rest = |rest: &[Work]| {
        let place = |work: &Work| items.iter().position(|item| item == work).unwrap() + 1;
        rest.iter().map(|work| place(work).to_string()).collect::<Vec<_>>().join(",")
    };
    let chosen = match choose(&results, receipts, MAX) {
        Disposition::Delete => "delete".to_owned(),
        Disposition::RetryLater { rest: left, forgive } => {
            format!("retry {} {}", rest(&left), if forgive { "forgiven" } else { "counted" })
        }
        Disposition::Split { rest: left } => format!("split {}", rest(&left)),
        Disposition::DeadLetter { item, reason } => format!("dead {}: {reason}", rest(&[*item])),
    };
    assert_eq!(chosen, expected);
}

#[test]
fn what_becomes_of_a_message() {
    check(&[Ok(())], 1, "delete");
    check(&[Ok(()), Ok(())], 99, "delete");
    // An outage never counts, however long it lasts, and leaves only what is not final.
    check(&[outage()], 1, "retry 1 forgiven");
    check(&[outage()], 99, "retry 1 forgiven");
    check(&[Ok(()), outage(), Ok(())], 99, "retry 2 forgiven");
    check(&[unknown(), outage()], 99, "retry 1,2 forgiven");
    check(&[Err(PostFault::Contended)], 99, "retry 1 forgiven");
    check(&[Err(PostFault::OrderNumbers(OrderNumberFault::Contended))], 99, "retry 1 forgiven");
    // A damaged row does not mend itself.
    let damage = StoreFault::Corrupt { doing: "reading", source: "a flaw".into() };
    let told = "dead 1: the ledger could not be used: stored data cannot be understood while reading: a flaw";
    check(&[Err(PostFault::Ledger(Arc::new(damage)))], 5, told);
    // What cannot pass is counted, then stands alone, then is set aside.
    check(&[unknown()], 4, "retry 1 counted");
    check(&[unknown()], 5, "dead 1: the account does not exist");
    check(&[Ok(()), unknown(), Ok(())], 4, "retry 2 counted");
    check(&[Ok(()), unknown(), Ok(())], 5, "dead 2: the account does not exist");
    check(&[unknown(), Ok(()), unknown()], 5, "split 1,3");
}

#[test]
fn a_message_that_is_never_settled_stands_alone_and_is_then_set_aside() {
    let (one, two) = ([work("1")], [work("1"), work("2")]);
    assert_eq!(choose_before(&one, MAX, MAX), None);
    assert_eq!(choose_before(&[], 99, MAX), None);
    assert_eq!(choose_before(&two, 6, MAX), Some(Disposition::Split { rest: two.to_vec() }));
    let Some(Disposition::DeadLetter { item, reason }) = choose_before(&one, 6, MAX) else { panic!() };
    assert_eq!(*item, one[0]);
    assert!(reason.contains("6 times") && reason.contains("at most 5"), "{reason}");
}

#[test]
fn forgiven_receipts_do_not_count() {
    let mut envelope = Envelope::of(vec![work("1")], None);
    envelope.forgiven = 7;
    let lease = Lease { message_id: "m".into(), pop_receipt: "r".into() };
    let message =
        Message { lease, body: envelope.encode(), dequeue_count: 9, inserted_at: Timestamp::from_unix_ms(0) };
    assert_eq!(Delivery::new(message).receipts(), 2);
}
