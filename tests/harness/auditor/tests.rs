//! The auditor accepts a consistent account, and detects each kind of damage.
#![expect(clippy::arithmetic_side_effects, reason = "small numbers")]

use postonce_shared::testing::prelude::*;
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

fn line(entry: &Entry) -> StatementLine {
    StatementLine::read(&json!({
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

fn rejected(number: u128, amount: &str, rejected_at: Timestamp) -> RejectedTransaction {
    RejectedTransaction::read(&json!({
        "message_id": id(number).to_string(),
        "type": "withdrawal",
        "amount": amount,
        "status": "rejected",
        "reason": "insufficient_funds",
        "rejected_at": rejected_at.to_string(),
    }))
}

/// The rejection of a withdrawal of 10.01 at time 2.
fn rejection() -> Decided {
    let amount = Amount::try_new(1001, Currency::parse("EUR").unwrap()).unwrap();
    let kind = TransactionKind::Withdrawal;
    Decided::Rejected(Rejection {
        partner: PartnerId::parse("shop").unwrap(),
        message: id(3),
        fingerprint: Instruction { kind, amount, details: Details::default() }.fingerprint(),
        accepted_at: time(0),
        reason: RejectReason::InsufficientFunds,
        rejected_at: time(2),
    })
}

/// A consistent account: two entries on two pages, and the rejection between them.
fn snapshot() -> AccountSnapshot {
    let nonce = Nonce::from_uuid(Uuid::from_u128(9));
    let [first, second] = entries().try_into().unwrap();
    let decisions = [(vec![first], Vec::new()), (Vec::new(), vec![rejection()]), (vec![second], Vec::new())];
    let euro = Currency::parse("EUR").unwrap();
    let mut after = Account::open(account(), euro, OverdraftLimit::none(euro), None, time(0));
    let mut pages = Vec::new();
    for (entries, decided) in decisions {
        after.sequence = entries.last().map_or(after.sequence, |entry: &Entry| entry.sequence);
        let page = JournalPage::seal(&after, entries, decided, (after.head, nonce));
        (after.head, after.version) = (page.hash, after.version + 1);
        pages.push(page);
    }
    let lines = entries().iter().map(line).collect();
    let rejections = vec![rejected(3, "10.01", time(2))];
    AccountSnapshot { account: account(), balance: 600, lines, rejections, open: 0, pages, head: after.head }
}

/// The records of the auditor that match [`snapshot`].
fn record() -> AccountRecord {
    let submitted = |kind, cents| SubmissionRecord { kind, cents, acknowledged: true, final_answer: None };
    let submissions = BTreeMap::from([
        (id(1), submitted(TransactionKind::Deposit, 1000)),
        (id(2), submitted(TransactionKind::Withdrawal, 400)),
        (id(3), submitted(TransactionKind::Withdrawal, 1001)),
    ]);
    AccountRecord { overdraft_cents: 0, submissions }
}

fn findings(snapshot: &AccountSnapshot, record: &AccountRecord) -> Vec<String> {
    let mut findings = Vec::new();
    snapshot.check(record, &mut BTreeSet::new(), &mut findings);
    findings
}

fn finds(expected: &str, snapshot: &AccountSnapshot, record: &AccountRecord) {
    let findings = findings(snapshot, record);
    assert!(
        findings.iter().any(|finding| finding.contains(expected)),
        "{expected} is not among {findings:?}"
    );
}

#[test]
fn a_consistent_account_has_no_findings() {
    assert_eq!(findings(&snapshot(), &record()), Vec::<String>::new());
}

#[test]
fn a_transaction_that_was_never_submitted_or_is_lost_is_found() {
    let mut record = record();
    record.submissions.remove(&id(1));
    finds("was never submitted", &snapshot(), &record);
    let lost =
        SubmissionRecord { kind: TransactionKind::Deposit, cents: 1, acknowledged: true, final_answer: None };
    drop(record.submissions.insert(id(4), lost));
    finds("was acknowledged and does not exist", &snapshot(), &record);
}

#[test]
fn a_rejection_that_the_journal_leaves_out_is_found() {
    let mut left_out = snapshot();
    drop(left_out.pages.remove(1));
    finds("is not in the journal", &left_out, &record());
}

#[test]
fn changed_content_and_a_changed_answer_are_found() {
    let mut record = record();
    record.submissions.get_mut(&id(1)).unwrap().cents = 999;
    record.submissions.get_mut(&id(2)).unwrap().final_answer = Some(json!({"status": "rejected"}));
    finds("submitted was", &snapshot(), &record);
    finds("was answered as", &snapshot(), &record);
}

#[test]
fn a_transaction_that_is_posted_and_rejected_is_found() {
    let mut snapshot = snapshot();
    snapshot.rejections.push(rejected(2, "4.00", time(2)));
    finds("final more than once", &snapshot, &record());
}

#[test]
fn gaps_and_sums_that_do_not_add_up_are_found() {
    let mut gap = snapshot();
    gap.lines[1].sequence = 3;
    finds("is at position 2", &gap, &record());
    let mut sum = snapshot();
    sum.lines[1].balance_after = 601;
    finds("after entry 2 the balance is 601", &sum, &record());
    let mut balance = snapshot();
    balance.balance = 601;
    finds("the entries give 600", &balance, &record());
    finds("overdraws the account", &snapshot(), &AccountRecord { overdraft_cents: -601, ..record() });
}

#[test]
fn a_rejection_of_a_payable_withdrawal_is_found() {
    let mut wrong = snapshot();
    wrong.rejections = vec![rejected(3, "10.00", time(2))];
    finds("could be paid", &wrong, &record());
    // At these times, a balance before the deposit or after the withdrawal is below 10.00.
    for right in [time(0), time(1), time(3), time(4)] {
        let mut snapshot = snapshot();
        snapshot.rejections = vec![rejected(3, "10.00", right)];
        assert!(
            !findings(&snapshot, &record()).iter().any(|finding| finding.contains("could be paid")),
            "{right}"
        );
    }
}

#[test]
fn a_broken_chain_is_found() {
    let mut missing = snapshot();
    missing.pages.remove(0);
    finds("does not continue the chain", &missing, &record());
    let mut cut = snapshot();
    cut.pages.pop();
    finds("does not reference the last page", &cut, &record());
    finds("the journal has 1 entries", &cut, &record());
    let mut forged = snapshot();
    forged.pages[0].entries[0].order_number = OrderNumber::from_counter(7);
    finds("does not match its hash", &forged, &record());
}

#[test]
fn an_order_number_that_was_issued_twice_is_found() {
    let mut numbers = BTreeSet::from([OrderNumber::from_counter(102)]);
    let mut findings = Vec::new();
    snapshot().check(&record(), &mut numbers, &mut findings);
    assert!(findings.iter().any(|finding| finding.contains("issued twice")), "{findings:?}");
}
