#![expect(clippy::arithmetic_side_effects, reason = "test code")]

use super::*;
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
    Work { submission: Submission { key: TransactionKey {
            account: account(0, 0, AccountStatus::Open).value.key,
            partner: PartnerId::parse("shop").unwrap(),
            message: MessageId::from_uuid(Uuid::from_u128(id)),
        }, instruction: Instruction { kind, amount, details: Details::default() }, accepted_at: Timestamp::from_unix_ms(NOW), origin: Origin::default(), batch_line: None }, row: Revision::new(format!("t{id}")), delivered: None }
}

fn numbers(count: u64) -> Vec<OrderNumber> {
    (1..=count).map(OrderNumber::from_counter).collect()
}

fn commit(account: &Versioned<Account>, work: &[Work]) -> Result<AccountCommit, Undecidable> {
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
    let commit = commit(account, &[work]).unwrap();
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
    let commit = commit(&account, &batch).unwrap();
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
    let first = decide(&before, pending(&[work(1, Withdrawal, 1, "EUR")], &[]), &context).unwrap();
    let page = first.page;
    assert_eq!((page.check(), page.entries.len(), page.decided.len()), (Ok(()), 0, 1));
    assert_eq!((page.version, page.previous_hash), (before.value.version + 1, before.value.head));
    assert_eq!((first.after.head, first.after.version), (page.hash, page.version));
    let Outcome::Rejected { version, .. } = first.decided[0].outcome else { panic!("it is rejected") };
    assert_eq!(version, Some(page.version));
    let read = Versioned { value: first.after.clone(), revision: before.revision };
    let both = [work(2, Deposit, 5, "EUR"), work(3, Withdrawal, 9, "EUR")];
    let second = decide(&read, pending(&both, &[]), &context).unwrap();
    let page = &second.page;
    assert_eq!((page.check(), page.entries.len(), page.decided.len()), (Ok(()), 1, 1));
    assert_eq!((page.previous_hash, second.numbers_used()), (first.after.head, 1));
}

#[test]
fn invalid_batches_are_refused() {
    use TransactionKind::Deposit;
    let account = account(0, 0, AccountStatus::Open);
    let one = work(1, Deposit, 1, "EUR");
    assert_eq!(commit(&account, &[]), Err(Undecidable::Empty));
    let repeated = Err(Undecidable::RepeatedKey(one.key().clone()));
    assert_eq!(commit(&account, &[one.clone(), work(2, Deposit, 1, "EUR"), one.clone()]), repeated);
    let many: Vec<Work> = (0..99).map(|id| work(id, Deposit, 1, "EUR")).collect();
    assert_eq!(commit(&account, &many), Err(Undecidable::TooMany(99)));
    let mut foreign = one.clone();
    foreign.submission.key.account.account = AccountId::from_uuid(Uuid::from_u128(77));
    let other = Err(Undecidable::OtherAccount(foreign.key().clone(), account.value.key));
    assert_eq!(commit(&account, &[foreign]), other);
    let context = DecisionContext {
        nonce: Nonce::from_uuid(Uuid::nil()),
        now: Timestamp::from_unix_ms(NOW),
        numbers: &[],
    };
    let few = Err(Undecidable::TooFewNumbers { numbers: 0, work: 1 });
    assert_eq!(decide(&account, pending(std::slice::from_ref(&one), &[]), &context), few);
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
    let expected = decide(&account, pending(&all, &[]), &context).unwrap();
    for accepted in 0..=all.len() {
        let (accepted, new) = all.split_at(accepted);
        let new: Vec<Submission> = new.iter().map(|work| work.submission.clone()).collect();
        let commit = decide(&account, pending(accepted, &new), &context).unwrap();
        // The outcomes, the page and the account do not depend on whether there is a row.
        assert!(commit.outcomes().eq(expected.outcomes()), "{} accepted", accepted.len());
        assert_eq!((&commit.page, &commit.after), (&expected.page, &expected.after));
        assert_eq!((commit.stored().len(), commit.inserted().len()), (accepted.len(), new.len()));
        assert!(commit.inserted().iter().map(Decided::submission).eq(&new));
    }
}

#[test]
fn limits_of_a_batch_count_accepted_and_new_work() {
    let account = account(0, 0, AccountStatus::Open);
    let accepted: Vec<Work> = (1..=50).map(|id| work(id, TransactionKind::Deposit, 1, "EUR")).collect();
    let new = |ids: std::ops::RangeInclusive<u128>| -> Vec<Submission> {
        let new = |id| {
            work(id, TransactionKind::Deposit, 1, "EUR").submission
        };
        ids.map(new).collect()
    };
    let decide = |count: u64, new: &[Submission]| {
        let numbers = numbers(count);
        let nonce = Nonce::from_uuid(Uuid::from_u128(9));
        let context = DecisionContext { nonce, now: Timestamp::from_unix_ms(NOW), numbers: &numbers };
        super::decide(&account, pending(&accepted, new), &context)
    };
    assert!(decide(200, &new(51..=98)).is_ok());
    assert_eq!(decide(200, &new(51..=99)), Err(Undecidable::TooMany(99)));
    assert_eq!(decide(51, &new(51..=52)), Err(Undecidable::TooFewNumbers { numbers: 51, work: 52 }));
    let repeated = new(50..=51);
    assert_eq!(decide(200, &repeated), Err(Undecidable::RepeatedKey(repeated[0].key.clone())));
}

#[test]
fn discarding_rejects_work_that_the_account_could_pay() {
    let account = account(1000, 0, AccountStatus::Open);
    let context = DecisionContext {
        nonce: Nonce::from_uuid(Uuid::nil()),
        now: Timestamp::from_unix_ms(NOW),
        numbers: &[],
    };
    let commit = discard(&account, pending(&[work(1, TransactionKind::Deposit, 1, "EUR")], &[]), &context).unwrap();
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
    let one = commit(&first, &[work(1, Deposit, 100, "EUR"), work(2, Deposit, 50, "EUR")]).unwrap();
    let second = Versioned { value: one.after.clone(), revision: Revision::new("r8") };
    let two = commit(&second, &[work(3, Deposit, 1, "EUR")]).unwrap();
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
