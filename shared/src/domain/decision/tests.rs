#![expect(clippy::arithmetic_side_effects, reason = "test code")]

use super::*;
use crate::panic_text::panic_text;
use crate::testing::prelude::*;
use uuid::Uuid;

const NOW: i64 = 1_795_248_000_000;

fn eur(minor_units: i64) -> Balance {
    Balance::try_new(minor_units, Currency::parse("EUR").unwrap()).unwrap()
}

fn account(balance: i64, overdraft: i64, status: AccountStatus) -> Versioned<Account> {
    let currency = Currency::parse("EUR").unwrap();
    let key = AccountKey {
        user: UserId::from_uuid(Uuid::from_u128(1)),
        account: AccountId::from_uuid(Uuid::from_u128(2)),
    };
    let limit = OverdraftLimit::try_new(overdraft, currency).unwrap();
    let holder = Some(Holder { given_name: "Ada".into(), family_name: "Byron".into() });
    let mut account = Account::open(key, currency, limit, holder, Timestamp::from_unix_ms(NOW));
    account.balance = eur(balance);
    account.status = status;
    Versioned { value: account, revision: Revision::new("r7") }
}

fn work(id: u128, kind: TransactionKind, minor_units: i64, code: &str) -> Work {
    let amount = Amount::try_new(minor_units, Currency::parse(code).unwrap()).unwrap();
    Work {
        submission: Submission {
            key: TransactionKey {
                account: account(0, 0, AccountStatus::Open).value.key,
                partner: PartnerId::parse("shop").unwrap(),
                message: MessageId::from_uuid(Uuid::from_u128(id)),
            },
            instruction: Instruction { kind, amount, details: Details::default() },
            accepted_at: Timestamp::from_unix_ms(NOW),
            origin: Origin::default(),
            batch_line: None,
        },
        row: Revision::new(format!("t{id}")),
        delivered: None,
    }
}

fn numbers(count: u64) -> Vec<OrderNumber> {
    (1..=count).map(OrderNumber::from_counter).collect()
}

fn commit(account: &Versioned<Account>, work: &[Work]) -> AccountCommit {
    let numbers = numbers(200);
    let context = DecisionContext {
        nonce: Nonce::from_uuid(Uuid::from_u128(9)),
        now: Timestamp::from_unix_ms(NOW),
        numbers: &numbers,
    };
    decide(account, pending(work, &[]), &context)
}

/// Decides one transaction against an account and compares the balance after it or the reject reason.
fn check(account: &Versioned<Account>, work: Work, expected: Result<i64, RejectReason>) {
    let commit = commit(account, &[work]);
    let outcome = match &commit.decided[0].outcome {
        Outcome::Posted { balance_after, .. } => Ok(balance_after.minor_units()),
        Outcome::Rejected { reason, .. } => Err(*reason),
    };
    assert_eq!(outcome, expected);
    let counts = (commit.page.entries.len(), commit.page.decided.len());
    assert_eq!(counts, if expected.is_ok() { (1, 0) } else { (0, 1) });
    assert_eq!(commit.after.balance.minor_units(), expected.unwrap_or(account.value.balance.minor_units()));
    assert_eq!(commit.after.version, account.value.version + 1, "every commit increments the version");
    assert_eq!(commit.guard, account.revision, "the account's revision guards a rejection too");
}

#[test]
fn each_rule_has_its_outcome() {
    use AccountStatus::{Closed, Open};
    use TransactionKind::{Deposit, Withdrawal};
    check(&account(0, 0, Open), work(1, Deposit, 1000, "EUR"), Ok(1000));
    check(&account(1000, 0, Open), work(1, Withdrawal, 1000, "EUR"), Ok(0));
    check(&account(1000, 0, Open), work(1, Withdrawal, 1001, "EUR"), Err(RejectReason::InsufficientFunds));
    check(&account(0, 500, Open), work(1, Withdrawal, 500, "EUR"), Ok(-500));
    check(&account(0, 500, Open), work(1, Withdrawal, 501, "EUR"), Err(RejectReason::InsufficientFunds));
    // The limit was lowered below the current debt: deposits are posted, withdrawals are rejected.
    check(&account(-900, 500, Open), work(1, Deposit, 100, "EUR"), Ok(-800));
    check(&account(-900, 500, Open), work(1, Withdrawal, 1, "EUR"), Err(RejectReason::InsufficientFunds));
    check(&account(0, 0, Closed), work(1, Deposit, 1, "EUR"), Err(RejectReason::AccountClosed));
    check(&account(0, 0, Closed), work(1, Deposit, 1, "USD"), Err(RejectReason::AccountClosed));
    check(&account(0, 0, Open), work(1, Deposit, 1, "USD"), Err(RejectReason::CurrencyMismatch));
    check(&account(0, 0, Open), work(1, Deposit, 1, "JPY"), Err(RejectReason::CurrencyMismatch));
    let full = account(BALANCE_MINOR_UNITS_MAX, 0, Open);
    check(&full, work(1, Deposit, 1, "EUR"), Err(RejectReason::AmountOutOfRange));
    let empty = account(-BALANCE_MINOR_UNITS_MAX, AMOUNT_MINOR_UNITS_MAX, Open);
    check(&empty, work(1, Withdrawal, 1, "EUR"), Err(RejectReason::AmountOutOfRange));
}

#[test]
fn a_batch_is_decided_in_its_order() {
    use TransactionKind::{Deposit, Withdrawal};
    let batch = [
        work(1, Withdrawal, 300, "EUR"),
        work(2, Deposit, 500, "EUR"),
        work(3, Withdrawal, 300, "EUR"),
        work(4, Withdrawal, 300, "EUR"),
    ];
    let account = account(0, 0, AccountStatus::Open);
    let commit = commit(&account, &batch);
    let statuses: Vec<&str> = commit.stored().iter().map(|f| f.outcome.status().code()).collect();
    assert_eq!(statuses, ["rejected", "posted", "posted", "rejected"]);
    let page = &commit.page;
    assert_eq!(page.check(), Ok(()));
    assert_eq!((page.first_sequence, page.last_sequence()), (1, 2));
    assert_eq!(page.previous_hash, account.value.head);
    assert_eq!(commit.after.head, page.hash);
    assert_eq!(commit.after.balance, eur(200));
    // Rejected work uses no number, so the numbers of a page have no gaps.
    assert_eq!(commit.numbers_used(), 2);
    assert_eq!(page.entries[1].order_number, OrderNumber::from_counter(2));
}

#[test]
fn a_journal_contains_every_decision() {
    use TransactionKind::{Deposit, Withdrawal};
    let numbers = numbers(9);
    let context = DecisionContext {
        nonce: Nonce::from_uuid(Uuid::from_u128(9)),
        now: Timestamp::from_unix_ms(NOW),
        numbers: &numbers,
    };
    let before = account(0, 0, AccountStatus::Open);
    let first = decide(&before, pending(&[work(1, Withdrawal, 1, "EUR")], &[]), &context);
    let page = first.page;
    assert_eq!((page.check(), page.entries.len(), page.decided.len()), (Ok(()), 0, 1));
    assert_eq!((page.version, page.previous_hash), (before.value.version + 1, before.value.head));
    assert_eq!((first.after.head, first.after.version), (page.hash, page.version));
    let Outcome::Rejected { version, .. } = first.decided[0].outcome else { panic!("it is rejected") };
    assert_eq!(version, Some(page.version));
    let read = Versioned { value: first.after.clone(), revision: before.revision };
    let both = [work(2, Deposit, 5, "EUR"), work(3, Withdrawal, 9, "EUR")];
    let second = decide(&read, pending(&both, &[]), &context);
    let page = &second.page;
    assert_eq!((page.check(), page.entries.len(), page.decided.len()), (Ok(()), 1, 1));
    assert_eq!((page.previous_hash, second.numbers_used()), (first.after.head, 1));
}

/// Returns the message with which a decision panics.
fn refusal(account: &Versioned<Account>, pending: Vec<Pending>, numbers: &[OrderNumber]) -> String {
    let nonce = Nonce::from_uuid(Uuid::nil());
    let context = DecisionContext { nonce, now: Timestamp::from_unix_ms(NOW), numbers };
    let panic = std::panic::catch_unwind(|| decide(account, pending, &context)).unwrap_err();
    panic_text(&*panic).unwrap().to_owned()
}

#[test]
fn a_decision_that_is_a_mistake_of_the_caller_panics() {
    use TransactionKind::Deposit;
    let account = account(0, 0, AccountStatus::Open);
    let of = |work: &[Work], count| refusal(&account, pending(work, &[]), &numbers(count));
    let work = |id| work(id, Deposit, 1, "EUR");
    assert_eq!(of(&[], 0), "a commit changes something");
    assert!(of(&[work(1), work(2), work(1)], 3).contains("would be posted twice"));
    let many: Vec<Work> = (0..99).map(work).collect();
    assert_eq!(of(&many, 99), "a commit holds at most 98 transactions");
    let new: Vec<Submission> = many.iter().skip(50).map(|work| work.submission.clone()).collect();
    let both = pending(&many[..50], &new);
    assert_eq!(refusal(&account, both.clone(), &numbers(99)), "a commit holds at most 98 transactions");
    let mut turned = both[..98].to_vec();
    turned.reverse();
    assert_eq!(refusal(&account, turned, &numbers(98)), "transactions with rows are decided first");
    let mut foreign = work(1);
    foreign.submission.key.account.account = AccountId::from_uuid(Uuid::from_u128(77));
    assert!(of(&[foreign], 1).contains("all are of one account"));
    assert_eq!(of(&[work(1), work(2)], 1), "there is an order number for each transaction");
}

#[test]
fn new_work_is_decided_after_accepted_work() {
    use TransactionKind::{Deposit, Withdrawal};
    let account = account(100, 50, AccountStatus::Open);
    let all: Vec<Work> =
        [(Deposit, 70), (Withdrawal, 200), (Withdrawal, 30), (Deposit, 1), (Withdrawal, 999)]
            .into_iter()
            .zip(1..)
            .map(|((kind, cents), id)| work(id, kind, cents, "EUR"))
            .collect();
    let numbers = numbers(5);
    let nonce = Nonce::from_uuid(Uuid::from_u128(9));
    let context = DecisionContext { nonce, now: Timestamp::from_unix_ms(NOW), numbers: &numbers };
    let expected = decide(&account, pending(&all, &[]), &context);
    for accepted in 0..=all.len() {
        let (accepted, new) = all.split_at(accepted);
        let new: Vec<Submission> = new.iter().map(|work| work.submission.clone()).collect();
        let commit = decide(&account, pending(accepted, &new), &context);
        // The outcomes, the page and the account are the same with and without rows.
        assert!(commit.outcomes().eq(expected.outcomes()), "{} accepted", accepted.len());
        assert_eq!((&commit.page, &commit.after), (&expected.page, &expected.after));
        assert_eq!((commit.stored().len(), commit.inserted().len()), (accepted.len(), new.len()));
        assert!(commit.inserted().iter().map(super::Decided::submission).eq(&new));
    }
}

#[test]
fn discarding_rejects_work_that_the_account_could_pay() {
    let account = account(1000, 0, AccountStatus::Open);
    let context = DecisionContext {
        nonce: Nonce::from_uuid(Uuid::nil()),
        now: Timestamp::from_unix_ms(NOW),
        numbers: &[],
    };
    let commit = discard(&account, pending(&[work(1, TransactionKind::Deposit, 1, "EUR")], &[]), &context);
    let version = Some(account.value.version + 1);
    let rejected = Outcome::Rejected { reason: RejectReason::Discarded, rejected_at: context.now, version };
    assert_eq!(commit.decided[0].outcome, rejected);
    assert_eq!((commit.page.entries.len(), commit.page.decided.len()), (0, 1));
    assert_eq!(commit.after.balance, eur(1000));
}

#[test]
fn pages_form_a_chain_and_every_damage_is_found() {
    use TransactionKind::Deposit;
    let first = account(0, 0, AccountStatus::Open);
    let one = commit(&first, &[work(1, Deposit, 100, "EUR"), work(2, Deposit, 50, "EUR")]);
    let second = Versioned { value: one.after.clone(), revision: Revision::new("r8") };
    let two = commit(&second, &[work(3, Deposit, 1, "EUR")]);
    let (one, two) = (one.page, two.page);
    assert_eq!(two.previous_hash, one.hash);
    assert_eq!(two.first_sequence, 3);

    let damaged = |change: &dyn Fn(&mut JournalPage)| {
        let mut page = one.clone();
        change(&mut page);
        page.check().is_err()
    };
    assert!(!damaged(&|_| {}));
    assert!(damaged(&|page| page.entries.swap(0, 1)));
    assert!(damaged(&|page| drop(page.entries.pop())));
    assert!(damaged(&|page| page.entries[0].amount = Amount::try_new(101, eur(0).currency()).unwrap()));
    assert!(damaged(&|page| page.entries[1].balance_after = eur(151)));
    assert!(damaged(&|page| page.entries[0].order_number = OrderNumber::from_counter(7)));
    assert!(damaged(&|page| page.entries[0].details =
        Details::from_stored(Some("x".into()), Default::default(), String::new())));
    assert!(damaged(&|page| page.previous_hash = two.hash));
}
