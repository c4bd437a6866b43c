//! The auditor finds what it is there to find: sound books pass, and each kind of damage is noticed.
#![expect(clippy::arithmetic_side_effects, reason = "small numbers")]

use postonce_shared::domain::ids::{AccountId, Nonce, PartnerId, UserId};
use postonce_shared::domain::instruction::Details;
use postonce_shared::domain::journal::Entry;
use postonce_shared::domain::money::{Amount, Balance, Currency};
use postonce_shared::domain::time::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::*;

fn id(number: u128) -> MessageId {
    MessageId::from_uuid(Uuid::from_u128(number))
}

fn account() -> AccountKey {
    let (user, account) = (UserId::from_uuid(Uuid::from_u128(1)), AccountId::from_uuid(Uuid::from_u128(2)));
    AccountKey { user, account }
}

fn time(number: i64) -> Timestamp {
    Timestamp::from_unix_ms(1_795_248_000_000 + number * 1000)
}

/// Entry 1 is a deposit of 10.00 at time 1, entry 2 a withdrawal of 4.00 at time 3.
fn entries() -> Vec<Entry> {
    let euro = Currency::parse("EUR").unwrap();
    let entry = |sequence: u64, kind, cents, balance, posted_at| Entry {
        sequence,
        partner: PartnerId::parse("shop").unwrap(),
        message: id(u128::from(sequence)),
        kind,
        amount: Amount::try_new(cents, euro).unwrap(),
        details: Details::default(),
        order_number: OrderNumber::from_counter(100 + sequence),
        balance_after: Balance::try_new(balance, euro).unwrap(),
        accepted_at: time(0),
        posted_at,
    };
    vec![
        entry(1, TransactionKind::Deposit, 1000, 1000, time(1)),
        entry(2, TransactionKind::Withdrawal, 400, 600, time(3)),
    ]
}

fn line(entry: &Entry) -> Line {
    Line::read(&json!({
        "message_id": entry.message.to_string(),
        "type": entry.kind.code(),
        "amount": entry.amount.to_string(),
        "status": "posted",
        "sequence": entry.sequence,
        "balance_after": entry.balance_after.to_string(),
        "order_number": entry.order_number.to_string(),
        "posted_at": entry.posted_at.to_string(),
    }))
}

fn refusal(number: u128, amount: &str, rejected_at: Timestamp) -> Refusal {
    Refusal::read(&json!({
        "message_id": id(number).to_string(),
        "type": "withdrawal",
        "amount": amount,
        "status": "rejected",
        "reason": "insufficient_funds",
        "rejected_at": rejected_at.to_string(),
    }))
}

/// What the bank says, in order: two entries on two pages, and 10.01 refused at time 2.
fn book() -> Book {
    let nonce = Nonce::from_uuid(Uuid::from_u128(9));
    let mut previous = PageHash::GENESIS;
    let mut pages = Vec::new();
    for entry in entries() {
        let page = JournalPage::seal(account(), vec![entry], previous, nonce);
        previous = page.hash;
        pages.push(page);
    }
    let lines = entries().iter().map(line).collect();
    let refusals = vec![refusal(3, "10.01", time(2))];
    Book { account: account(), balance: 600, lines, refusals, open: 0, pages, head: previous }
}

/// What was asked for.
fn tally() -> Tally {
    let noted = |kind, cents| Noted { kind, cents, promised: true, told: None };
    let wishes = BTreeMap::from([
        (id(1), noted(TransactionKind::Deposit, 1000)),
        (id(2), noted(TransactionKind::Withdrawal, 400)),
        (id(3), noted(TransactionKind::Withdrawal, 1001)),
    ]);
    Tally { overdraft_cents: 0, wishes }
}

fn findings(book: &Book, tally: &Tally) -> Vec<String> {
    let mut findings = Vec::new();
    book.check(tally, &mut BTreeSet::new(), &mut findings);
    findings
}

fn finds(what: &str, book: &Book, tally: &Tally) {
    let findings = findings(book, tally);
    assert!(findings.iter().any(|finding| finding.contains(what)), "{what} is not among {findings:?}");
}

#[test]
fn sound_books_pass() {
    assert_eq!(findings(&book(), &tally()), Vec::<String>::new());
}

#[test]
fn a_transaction_that_was_never_asked_for_or_is_lost_is_found() {
    let mut tally = tally();
    tally.wishes.remove(&id(1));
    finds("nobody asked for", &book(), &tally);
    let noted = Noted { kind: TransactionKind::Deposit, cents: 1, promised: true, told: None };
    drop(tally.wishes.insert(id(4), noted));
    finds("was promised and is nowhere", &book(), &tally);
}

#[test]
fn other_content_and_another_answer_than_told_are_found() {
    let mut tally = tally();
    tally.wishes.get_mut(&id(1)).unwrap().cents = 999;
    tally.wishes.get_mut(&id(2)).unwrap().told = Some(json!({"status": "rejected"}));
    finds("asked for was", &book(), &tally);
    finds("was told as", &book(), &tally);
}

#[test]
fn a_transaction_that_is_posted_and_rejected_is_found() {
    let mut book = book();
    book.refusals.push(refusal(2, "4.00", time(2)));
    finds("final more than once", &book, &tally());
}

#[test]
fn gaps_and_sums_that_do_not_add_up_are_found() {
    let mut gap = book();
    gap.lines[1].sequence = 3;
    finds("stands at place 2", &gap, &tally());
    let mut sum = book();
    sum.lines[1].balance_after = 601;
    finds("after entry 2 the balance is 601", &sum, &tally());
    let mut balance = book();
    balance.balance = 601;
    finds("the entries make 600", &balance, &tally());
    finds("overdraws the account", &book(), &Tally { overdraft_cents: -601, ..tally() });
}

#[test]
fn a_refusal_of_what_could_be_paid_is_found() {
    let mut unjust = book();
    unjust.refusals = vec![refusal(3, "10.00", time(2))];
    finds("could be paid", &unjust, &tally());
    // Before the deposit, and after the withdrawal, 10.00 could not be paid.
    for just in [time(0), time(1), time(3), time(4)] {
        let mut book = book();
        book.refusals = vec![refusal(3, "10.00", just)];
        assert!(!findings(&book, &tally()).iter().any(|finding| finding.contains("could be paid")), "{just}");
    }
}

#[test]
fn a_broken_chain_is_found() {
    let mut missing = book();
    missing.pages.remove(0);
    finds("does not continue the chain", &missing, &tally());
    let mut cut = book();
    cut.pages.pop();
    finds("does not name the last page", &cut, &tally());
    finds("the journal has 1 entries", &cut, &tally());
    let mut forged = book();
    forged.pages[0].entries[0].order_number = OrderNumber::from_counter(7);
    finds("does not match its hash", &forged, &tally());
}

#[test]
fn an_order_number_that_was_issued_twice_is_found() {
    let mut numbers = BTreeSet::from([OrderNumber::from_counter(102)]);
    let mut findings = Vec::new();
    book().check(&tally(), &mut numbers, &mut findings);
    assert!(findings.iter().any(|finding| finding.contains("issued twice")), "{findings:?}");
}
