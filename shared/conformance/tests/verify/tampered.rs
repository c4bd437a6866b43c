//! Each way to change the rows of an account, and its findings.

use postonce_shared::domain::journal::PageHash;
use postonce_shared::oversight::verify::FindingKind::{self, *};
use postonce_shared::oversight::verify::{AccountRow, DifferingGroups, OVERDUE_AFTER};
use postonce_shared::testing::prelude::*;

use super::account_rows::{AccountRows, NOW, euro};

/// The opening, and commits of 3, 1, 2 and 1 entries; a rejection in the second and in a commit of its own before the last.
fn rows() -> AccountRows {
    AccountRows::with(&[&[100, 200, -50], &[300, -9_999], &[-10, 20], &[-9_999], &[5]])
}

fn check(change: impl FnOnce(&mut AccountRows), expected: &[FindingKind]) {
    let mut rows = rows();
    change(&mut rows);
    let finding: Vec<String> = rows.audit().findings.iter().map(ToString::to_string).collect();
    assert_eq!(rows.kinds(), expected, "{finding:#?}");
}

fn amount(cents: i64) -> Amount {
    Amount::try_new(cents, euro()).unwrap()
}

fn balance(cents: i64) -> Balance {
    Balance::try_new(cents, euro()).unwrap()
}

/// The row of the transaction whose entry has that sequence.
fn row_of(rows: &mut AccountRows, wanted: u64) -> &mut Outcome {
    let outcomes = rows.transactions.iter_mut().filter_map(|stored| stored.outcome.as_mut());
    let is_wanted = |outcome: &&mut Outcome| match outcome {
        Outcome::Posted { sequence, .. } => *sequence == wanted,
        Outcome::Rejected { .. } => false,
    };
    outcomes.into_iter().find(is_wanted).unwrap()
}

#[test]
fn a_sound_account_gives_no_finding() {
    check(|_| (), &[]);
    assert_eq!(rows().audit().counts.entries, 7);
    assert_eq!(AccountRows::open().kinds(), []);
}

#[test]
fn a_changed_amount_is_found_with_old_and_new_hashes() {
    let change = |rows: &mut AccountRows| rows.pages[1].entries[1].amount = amount(201);
    check(change, &[PageHash, EntryBalance, ContentDiffers]);
    check(
        |rows| {
            change(rows);
            rows.rehash();
        },
        &[EntryBalance, ContentDiffers],
    );
}

/// All sums, all hashes and the account are made to fit, so only the log shows the change.
#[test]
fn an_amount_changed_with_all_later_balances_differs_from_the_log() {
    let change = |rows: &mut AccountRows| {
        rows.pages[1].entries[1].amount = amount(1_200);
        for entry in rows.pages.iter_mut().flat_map(|page| &mut page.entries).skip(1) {
            entry.balance_after = balance(entry.balance_after.minor_units() + 1_000);
        }
        rows.account.balance = balance(rows.account.balance.minor_units() + 1_000);
        rows.rehash();
    };
    check(change, &[ContentDiffers; 6]);
    let mut rows = rows();
    change(&mut rows);
    let finding = rows.audit().findings[0].to_string();
    assert!(
        finding.contains("entry 2")
            && finding.contains("amount 12.00 EUR")
            && finding.contains("amount 2.00 EUR"),
        "{finding}"
    );
}

#[test]
fn a_removed_page_is_found_wherever_it_was() {
    let remove = |page: usize| move |rows: &mut AccountRows| drop(rows.pages.remove(page));
    check(remove(1), &[EntriesMissing, DecisionsMissing]);
    // This page also has a rejection.
    check(remove(2), &[EntriesMissing, DecisionsMissing, RejectionsDiffer]);
    check(remove(5), &[EntriesMissing, DecisionsMissing]);
    let mut rows = rows();
    rows.pages.remove(3);
    let finding = rows.audit().findings[0].to_string();
    assert!(finding.contains("expected entries 5 to 6, found nothing"), "{finding}");
    // Also with recomputed hashes.
    check(
        |rows| {
            rows.pages.remove(2);
            rows.rehash();
        },
        &[EntriesMissing, DecisionsMissing, RejectionsDiffer],
    );
}

#[test]
fn swapped_entries_are_found() {
    let swap = |rows: &mut AccountRows| rows.pages[1].entries.swap(0, 1);
    check(swap, &[PageHash, EntrySequence, EntryBalance, EntrySequence, EntryBalance, EntryBalance]);
    check(
        |rows| {
            swap(rows);
            rows.rehash();
        },
        &[EntrySequence, EntryBalance, EntrySequence, EntryBalance, EntryBalance],
    );
    // With new sequences, balances and hashes, only the log shows it.
    check(
        |rows| {
            swap(rows);
            rows.pages[1].entries[0].sequence = 1;
            rows.pages[1].entries[0].balance_after = balance(200);
            rows.pages[1].entries[1].sequence = 2;
            rows.pages[1].entries[1].balance_after = balance(300);
            rows.rehash();
        },
        &[ContentDiffers, ContentDiffers],
    );
}

#[test]
fn swapped_pages_are_found() {
    check(
        |rows| {
            let (one, two) = (rows.pages[2].clone(), rows.pages[5].clone());
            rows.pages[2].entries = two.entries;
            rows.pages[5].entries = one.entries;
            rows.rehash();
        },
        &[EntrySequence, EntryBalance, EntryBalance, EntrySequence, EntryBalance, AccountBalance],
    );
}

#[test]
fn the_account_row_is_compared_with_its_journal() {
    check(|rows| rows.account.balance = balance(rows.account.balance.minor_units() + 1), &[AccountBalance]);
    check(|rows| rows.account.head = PageHash::from_bytes([7; 32]), &[DecisionsBroken]);
    check(|rows| rows.account.version = 0, &[DecisionsMissing]);
    check(|rows| rows.account.sequence += 1, &[EntriesMissing]);
    // No account state ends in the middle of a page.
    check(|rows| rows.account.sequence = 5, &[AccountSequence, DecisionsMissing]);
}

#[test]
fn a_broken_chain_is_found() {
    check(
        |rows| rows.pages[3].previous_hash = PageHash::from_bytes([7; 32]),
        &[ChainBroken, PageHash, DecisionsBroken],
    );
    check(
        |rows| {
            rows.pages[3].previous_hash = PageHash::from_bytes([7; 32]);
            rows.pages[3].hash = rows.pages[3].content_hash();
        },
        &[ChainBroken, DecisionsBroken],
    );
}

#[test]
fn a_changed_status_is_found() {
    let reject = |rows: &mut AccountRows| {
        let (reason, rejected_at) = (RejectReason::InsufficientFunds, Timestamp::from_unix_ms(NOW));
        *row_of(rows, 2) = Outcome::Rejected { reason, rejected_at, version: None };
    };
    check(reject, &[TransactionNotPosted, RejectionUnchained]);
    check(|rows| rows.transactions[0].outcome = None, &[TransactionNotPosted]);
    let posted = |rows: &mut AccountRows| {
        let outcome = row_of(rows, 2).clone();
        let rejected = |stored: &&mut postonce_shared::ports::ledger::StoredTransaction| {
            matches!(stored.outcome, Some(Outcome::Rejected { .. }))
        };
        rows.transactions.iter_mut().find(rejected).unwrap().outcome = Some(outcome);
    };
    check(posted, &[EntryMissing, RejectionsDiffer]);
}

#[test]
fn a_missing_transaction_is_found() {
    check(|rows| drop(rows.transactions.remove(1)), &[TransactionMissing]);
}

#[test]
fn a_transaction_posted_twice_is_found() {
    check(
        |rows| {
            let mut again = rows.pages[1].entries[0].clone();
            again.sequence = 8;
            again.balance_after = balance(rows.account.balance.minor_units() + 100);
            rows.pages[5].entries.push(again);
            rows.account.sequence = 8;
            rows.account.balance = balance(rows.account.balance.minor_units() + 100);
            rows.rehash();
        },
        &[PostedTwice],
    );
}

#[test]
fn the_log_is_compared_with_the_journal() {
    check(
        |rows| with_posted(rows, 2, |number, _, _| *number = OrderNumber::from_counter(7)),
        &[ContentDiffers],
    );
    check(|rows| with_posted(rows, 2, |_, sequence, _| *sequence = 3), &[ContentDiffers]);
    check(|rows| with_posted(rows, 2, |_, _, after| *after = balance(301)), &[ContentDiffers]);
}

fn with_posted(
    rows: &mut AccountRows,
    wanted: u64,
    change: impl FnOnce(&mut OrderNumber, &mut u64, &mut Balance),
) {
    match row_of(rows, wanted) {
        Outcome::Posted { order_number, sequence, balance_after, .. } => {
            change(order_number, sequence, balance_after)
        }
        Outcome::Rejected { .. } => unreachable!("not posted"),
    }
}

#[test]
fn the_content_of_a_transaction_is_compared_with_its_fingerprint() {
    let other = || Details::from_stored(Some("other".to_owned()), [].into(), String::new());
    check(
        |rows| rows.transactions[1].submission.instruction.details = other(),
        &[Fingerprint, ContentDiffers],
    );
    // A rejected transaction has no entry to compare with.
    let rejected = |rows: &mut AccountRows| rows.transactions[4].submission.instruction.amount = amount(1);
    check(rejected, &[Fingerprint]);
    check(
        |rows| rows.transactions[1].submission.instruction.kind = TransactionKind::Withdrawal,
        &[Fingerprint, ContentDiffers],
    );
    let newer = |rows: &mut AccountRows| {
        let text = rows.transactions[1].fingerprint.to_string().replacen("1:", "2:", 1);
        rows.transactions[1].fingerprint =
            postonce_shared::domain::instruction::Fingerprint::parse(&text).unwrap();
    };
    check(newer, &[FingerprintUnknown]);
}

#[test]
fn an_entry_in_another_currency_is_found_and_the_rest_is_read() {
    let dollars = Currency::parse("USD").unwrap();
    check(
        |rows| {
            rows.pages[2].entries[0].amount = Amount::try_new(300, dollars).unwrap();
            rows.pages[2].entries[0].balance_after = Balance::try_new(550, dollars).unwrap();
        },
        &[PageHash, EntryCurrency, ContentDiffers],
    );
}

#[test]
fn an_overdraft_is_reported_only_if_the_limit_never_changed() {
    // Overdrawn by 4.00, within the limit of 5.00.
    let mut rows = AccountRows::with(&[&[100], &[-500]]);
    assert_eq!(rows.kinds(), []);
    rows.account.overdraft_limit = OverdraftLimit::try_new(399, euro()).unwrap();
    assert_eq!(rows.kinds(), [Overdrawn, AccountTerms], "only its two commits changed the account");
    let mut rows = AccountRows::with(&[&[100], &[-500]]);
    rows.change(399, AccountStatus::Open);
    assert_eq!(rows.kinds(), [], "its limit was different");
}

#[test]
fn an_order_number_that_was_never_reserved_is_found() {
    let change = |counter: u64| {
        move |rows: &mut AccountRows| {
            rows.pages[1].entries[1].order_number = OrderNumber::from_counter(counter);
            with_posted(rows, 2, |number, _, _| *number = OrderNumber::from_counter(counter));
            rows.rehash();
        }
    };
    check(change(FIRST_COUNTER + 10_000), &[OrderNumberUnreserved]);
    check(change(FIRST_COUNTER - 1), &[OrderNumberUnreserved]);
    check(change(FIRST_COUNTER + 9_999), &[]);
}

#[test]
fn an_unreadable_page_is_the_only_finding_about_its_entries() {
    use postonce_shared::oversight::verify::{AccountAudit, PassOptions, Subject};
    use postonce_shared::ports::archive::{Damaged, StoredDecisionPage, StoredPage};
    let rows = rows();
    for damaged in rows.postings() {
        let mut differing_groups = DifferingGroups::default();
        for round in 0..2 {
            let row = AccountRow::Read(Box::new(rows.account.clone()));
            let look = PassOptions {
                salt: postonce_shared::domain::ids::Nonce::from_uuid(uuid::Uuid::nil()),
                now: Timestamp::from_unix_ms(NOW),
                unreserved_from: None,
                differing_groups: std::mem::take(&mut differing_groups),
            };
            let subject = Subject { key: rows.account.key, row, listed: true, leaf: None };
            let mut audit = AccountAudit::new(subject, look);
            for (index, page) in rows.pages.iter().enumerate() {
                let cause = || Damaged { place: "here".to_owned(), cause: "not JSON".to_owned() };
                let content = if index == damaged { Err(cause()) } else { Ok(page.clone()) };
                if page.entries.is_empty() {
                    audit.decision_page(&StoredDecisionPage { version: Some(page.version), page: content });
                    continue;
                }
                audit.page(&StoredPage { first_sequence: Some(page.first_sequence), page: content });
            }
            audit.end_of_pages();
            rows.transactions.iter().for_each(|stored| audit.transaction(&Ok(stored.clone())));
            let report = audit.end();
            let kinds: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
            assert_eq!(kinds, [PageUnreadable], "page {damaged}, round {round}: {:#?}", report.findings);
            assert!(report.findings[0].to_string().contains("not JSON"));
            differing_groups = report.differing_groups;
        }
    }
}

#[test]
fn a_missing_or_unreadable_account_is_reported_and_its_journal_is_read() {
    let mut rows = rows();
    let kinds = |rows: &AccountRows, row: AccountRow| {
        let first = rows.audit_row(row.clone(), DifferingGroups::default());
        let kinds: Vec<FindingKind> =
            rows.audit_row(row, first.differing_groups).findings.iter().map(|finding| finding.kind).collect();
        kinds
    };
    assert_eq!(kinds(&rows, AccountRow::Missing), [AccountMissing]);
    assert_eq!(kinds(&rows, AccountRow::Unreadable("x".to_owned())), [AccountUnreadable]);
    rows.pages.remove(2);
    assert_eq!(kinds(&rows, AccountRow::Unreadable("x".to_owned())), [EntriesMissing, AccountUnreadable]);
    let unopened = AccountRows { pages: Vec::new(), ..AccountRows::open() };
    assert_eq!(kinds(&unopened, AccountRow::Missing), [NeverOpened], "a crash during the opening");
}

#[test]
fn overdue_work_is_a_notice() {
    let mut rows = rows();
    let index = rows.accept(1);
    assert_eq!(rows.kinds(), [], "the transaction was just accepted");
    let long_ago = NOW - i64::try_from(OVERDUE_AFTER.as_millis()).unwrap() - 1;
    rows.transactions[index].submission.accepted_at = Timestamp::from_unix_ms(long_ago);
    assert_eq!(rows.kinds(), [Overdue]);
    rows.transactions[index].marks.dead_letter = true;
    assert_eq!(rows.kinds(), [], "dead letters are not overdue");
    assert_eq!(rows.audit().marked, [rows.transactions[index].submission.key.clone()]);
}

#[test]
fn a_closed_account_gives_no_finding() {
    let mut rows = AccountRows::with(&[&[100], &[-100]]);
    rows.change(0, AccountStatus::Closed);
    assert_eq!(rows.kinds(), []);
}

#[test]
fn only_rejections_of_an_unknown_account_need_no_account() {
    let mut rows = AccountRows { pages: Vec::new(), ..AccountRows::open() };
    for _ in 0..2 {
        let index = rows.accept(100);
        let rejected_at = Timestamp::from_unix_ms(NOW);
        let outcome = Outcome::Rejected { reason: RejectReason::AccountUnknown, rejected_at, version: None };
        rows.transactions[index].outcome = Some(outcome);
    }
    let kinds = |rows: &AccountRows| -> Vec<FindingKind> {
        let report = rows.audit_row(AccountRow::Missing, DifferingGroups::default());
        report.findings.iter().map(|finding| finding.kind).collect()
    };
    let unopened = kinds(&rows);
    assert!(!unopened.contains(&FindingKind::AccountMissing), "{unopened:?}");
    rows.accept(100);
    assert!(kinds(&rows).contains(&FindingKind::AccountMissing));
}
