//! Each way to change the rows of an account, and what is told about it.

use postonce_shared::domain::account::AccountStatus;
use postonce_shared::domain::ids::OrderNumber;
use postonce_shared::domain::instruction::{Details, TransactionKind};
use postonce_shared::domain::journal::PageHash;
use postonce_shared::domain::money::{Amount, Balance, Currency, OverdraftLimit};
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::oversight::verify::FindingKind::{self, *};
use postonce_shared::oversight::verify::{AccountRow, DifferingGroups, OVERDUE_AFTER};
use postonce_shared::protocol::order_numbers::FIRST_COUNTER;

use super::books::{Books, NOW, euro};

/// Commits of 3, 1, 2 and 1 entries; a rejection in the second and in a commit of its own.
fn books() -> Books {
    Books::with(&[&[100, 200, -50], &[300, -9_999], &[-10, 20], &[-9_999], &[5]])
}

fn check(change: impl FnOnce(&mut Books), expected: &[FindingKind]) {
    let mut books = books();
    change(&mut books);
    let told: Vec<String> = books.audit().findings.iter().map(ToString::to_string).collect();
    assert_eq!(books.kinds(), expected, "{told:#?}");
}

fn amount(cents: i64) -> Amount {
    Amount::try_new(cents, euro()).unwrap()
}

fn balance(cents: i64) -> Balance {
    Balance::try_new(cents, euro()).unwrap()
}

/// The row of the transaction whose entry has that sequence.
fn row_of(books: &mut Books, wanted: u64) -> &mut Outcome {
    let outcomes = books.transactions.iter_mut().filter_map(|stored| stored.transaction.outcome.as_mut());
    let is_wanted = |outcome: &&mut Outcome| match outcome {
        Outcome::Posted { sequence, .. } => *sequence == wanted,
        Outcome::Rejected { .. } => false,
    };
    outcomes.into_iter().find(is_wanted).unwrap()
}

#[test]
fn a_sound_account_gives_no_finding() {
    check(|_| (), &[]);
    assert_eq!(books().audit().counts.entries, 7);
    assert_eq!(Books::open().kinds(), []);
}

#[test]
fn a_changed_amount_is_found_with_and_without_its_hashes() {
    let change = |books: &mut Books| books.pages[0].entries[1].amount = amount(201);
    check(change, &[PageHash, EntryBalance, ContentDiffers]);
    check(
        |books| {
            change(books);
            books.reseal();
        },
        &[EntryBalance, ContentDiffers],
    );
}

/// All sums, all hashes and the account itself made to fit: only the log knows better.
#[test]
fn an_amount_that_was_changed_with_everything_behind_it_differs_from_the_log() {
    let change = |books: &mut Books| {
        books.pages[0].entries[1].amount = amount(1_200);
        for entry in books.pages.iter_mut().flat_map(|page| &mut page.entries).skip(1) {
            entry.balance_after = balance(entry.balance_after.minor_units() + 1_000);
        }
        books.account.balance = balance(books.account.balance.minor_units() + 1_000);
        books.reseal();
    };
    check(change, &[ContentDiffers; 6]);
    let mut books = books();
    change(&mut books);
    let told = books.audit().findings[0].to_string();
    assert!(
        told.contains("entry 2") && told.contains("amount 12.00 EUR") && told.contains("amount 2.00 EUR"),
        "{told}"
    );
}

#[test]
fn a_removed_page_is_found_wherever_it_was() {
    let remove = |page: usize| move |books: &mut Books| drop(books.pages.remove(page));
    check(remove(0), &[EntriesMissing]);
    check(remove(1), &[EntriesMissing]);
    check(remove(3), &[EntriesMissing]);
    let mut books = books();
    books.pages.remove(2);
    let told = books.audit().findings[0].to_string();
    assert!(told.contains("expected entries 5 to 6, found nothing"), "{told}");
    // Sewn together again, it shows in the sequences only.
    check(
        |books| {
            books.pages.remove(1);
            books.reseal();
        },
        &[EntriesMissing],
    );
}

#[test]
fn swapped_entries_are_found() {
    let swap = |books: &mut Books| books.pages[0].entries.swap(0, 1);
    check(swap, &[PageHash, EntrySequence, EntryBalance, EntrySequence, EntryBalance, EntryBalance]);
    check(
        |books| {
            swap(books);
            books.reseal();
        },
        &[EntrySequence, EntryBalance, EntrySequence, EntryBalance, EntryBalance],
    );
    // Also with new sequences, new balances and new hashes: the log tells.
    check(
        |books| {
            swap(books);
            books.pages[0].entries[0].sequence = 1;
            books.pages[0].entries[0].balance_after = balance(200);
            books.pages[0].entries[1].sequence = 2;
            books.pages[0].entries[1].balance_after = balance(300);
            books.reseal();
        },
        &[ContentDiffers, ContentDiffers],
    );
}

#[test]
fn swapped_pages_are_found() {
    check(
        |books| {
            let (one, two) = (books.pages[1].clone(), books.pages[3].clone());
            books.pages[1].entries = two.entries;
            books.pages[3].entries = one.entries;
            books.reseal();
        },
        &[EntrySequence, EntryBalance, EntryBalance, EntrySequence, EntryBalance, AccountBalance],
    );
}

#[test]
fn the_row_of_the_account_is_held_against_its_journal() {
    check(
        |books| books.account.balance = balance(books.account.balance.minor_units() + 1),
        &[AccountBalance],
    );
    check(|books| books.account.head = PageHash::from_bytes([7; 32]), &[AccountHead]);
    check(|books| books.account.version = 3, &[AccountVersion]);
    check(|books| books.account.sequence += 1, &[EntriesMissing]);
    // In the middle of a page nothing ends.
    check(|books| books.account.sequence = 5, &[AccountSequence]);
}

#[test]
fn a_broken_chain_is_found() {
    check(|books| books.pages[2].previous_hash = PageHash::from_bytes([7; 32]), &[ChainBroken, PageHash]);
    check(
        |books| {
            books.pages[2].previous_hash = PageHash::from_bytes([7; 32]);
            books.pages[2].hash = books.pages[2].content_hash();
        },
        &[ChainBroken, ChainBroken],
    );
}

#[test]
fn a_status_that_was_changed_is_found() {
    let reject = |books: &mut Books| {
        let (reason, rejected_at) = (RejectReason::InsufficientFunds, Timestamp::from_unix_ms(NOW));
        *row_of(books, 2) = Outcome::Rejected { reason, rejected_at };
    };
    check(reject, &[TransactionNotPosted]);
    check(|books| books.transactions[0].transaction.outcome = None, &[TransactionNotPosted]);
    let posted = |books: &mut Books| {
        let outcome = row_of(books, 2).clone();
        let rejected = |stored: &&mut postonce_shared::ports::ledger::StoredTransaction| {
            matches!(stored.transaction.outcome, Some(Outcome::Rejected { .. }))
        };
        books.transactions.iter_mut().find(rejected).unwrap().transaction.outcome = Some(outcome);
    };
    check(posted, &[EntryMissing]);
}

#[test]
fn a_transaction_that_is_gone_is_found() {
    check(|books| drop(books.transactions.remove(1)), &[TransactionMissing]);
}

#[test]
fn a_transaction_that_was_posted_twice_is_found() {
    check(
        |books| {
            let mut again = books.pages[0].entries[0].clone();
            again.sequence = 8;
            again.balance_after = balance(books.account.balance.minor_units() + 100);
            books.pages[3].entries.push(again);
            books.account.sequence = 8;
            books.account.balance = balance(books.account.balance.minor_units() + 100);
            books.reseal();
        },
        &[PostedTwice],
    );
}

#[test]
fn the_log_is_held_against_the_journal() {
    check(
        |books| with_posted(books, 2, |number, _, _| *number = OrderNumber::from_counter(7)),
        &[ContentDiffers],
    );
    check(|books| with_posted(books, 2, |_, sequence, _| *sequence = 3), &[ContentDiffers]);
    check(|books| with_posted(books, 2, |_, _, after| *after = balance(301)), &[ContentDiffers]);
}

fn with_posted(
    books: &mut Books,
    wanted: u64,
    change: impl FnOnce(&mut OrderNumber, &mut u64, &mut Balance),
) {
    match row_of(books, wanted) {
        Outcome::Posted { order_number, sequence, balance_after, .. } => {
            change(order_number, sequence, balance_after)
        }
        Outcome::Rejected { .. } => unreachable!("it was posted"),
    }
}

#[test]
fn the_content_of_a_transaction_is_held_against_its_fingerprint() {
    let other = || Details::from_stored(Some("other".to_owned()), [].into(), String::new());
    check(
        |books| books.transactions[1].transaction.instruction.details = other(),
        &[Fingerprint, ContentDiffers],
    );
    // A rejected one has nothing else to be held against.
    let rejected = |books: &mut Books| books.transactions[4].transaction.instruction.amount = amount(1);
    check(rejected, &[Fingerprint]);
    check(
        |books| books.transactions[1].transaction.instruction.kind = TransactionKind::Withdrawal,
        &[Fingerprint, ContentDiffers],
    );
    let newer = |books: &mut Books| {
        let text = books.transactions[1].fingerprint.to_string().replacen("1:", "2:", 1);
        books.transactions[1].fingerprint =
            postonce_shared::domain::instruction::Fingerprint::parse(&text).unwrap();
    };
    check(newer, &[FingerprintUnknown]);
}

#[test]
fn an_entry_in_another_currency_is_found_and_the_rest_is_read() {
    let dollars = Currency::parse("USD").unwrap();
    check(
        |books| {
            books.pages[1].entries[0].amount = Amount::try_new(300, dollars).unwrap();
            books.pages[1].entries[0].balance_after = Balance::try_new(550, dollars).unwrap();
        },
        &[PageHash, EntryCurrency, ContentDiffers],
    );
}

#[test]
fn an_overdraft_is_told_where_the_limit_was_never_another() {
    // Overdrawn by 4.00, within the limit of 5.00.
    let mut books = Books::with(&[&[100], &[-500]]);
    assert_eq!(books.kinds(), []);
    books.account.overdraft_limit = OverdraftLimit::try_new(399, euro()).unwrap();
    assert_eq!(books.kinds(), [Overdrawn], "nothing but its two pages ever changed the account");
    books.account.version += 1;
    assert_eq!(books.kinds(), [], "its limit may have been another");
}

#[test]
fn an_order_number_that_nobody_reserved_is_found() {
    let change = |counter: u64| {
        move |books: &mut Books| {
            books.pages[0].entries[1].order_number = OrderNumber::from_counter(counter);
            with_posted(books, 2, |number, _, _| *number = OrderNumber::from_counter(counter));
            books.reseal();
        }
    };
    check(change(FIRST_COUNTER + 10_000), &[OrderNumberUnreserved]);
    check(change(FIRST_COUNTER - 1), &[OrderNumberUnreserved]);
    check(change(FIRST_COUNTER + 9_999), &[]);
}

#[test]
fn a_page_that_cannot_be_read_explains_what_is_missing() {
    use postonce_shared::oversight::verify::{AccountAudit, PassOptions, Subject};
    use postonce_shared::ports::archive::{Damaged, StoredPage};
    let books = books();
    for damaged in 0..books.pages.len() {
        let mut differing_groups = DifferingGroups::default();
        for round in 0..2 {
            let row = AccountRow::Read(Box::new(books.account.clone()));
            let look = PassOptions {
                salt: postonce_shared::domain::ids::Nonce::from_uuid(uuid::Uuid::nil()),
                now: Timestamp::from_unix_ms(NOW),
                unreserved_from: None,
                differing_groups: std::mem::take(&mut differing_groups),
            };
            let mut audit = AccountAudit::new(Subject { key: books.account.key, row, listed: true }, look);
            for (index, page) in books.pages.iter().enumerate() {
                let cause = || Damaged { place: "here".to_owned(), cause: "not JSON".to_owned() };
                let content = if index == damaged { Err(cause()) } else { Ok(page.clone()) };
                audit.page(&StoredPage { first_sequence: Some(page.first_sequence), page: content });
            }
            audit.end_of_pages();
            books.transactions.iter().for_each(|stored| audit.transaction(&Ok(stored.clone())));
            let report = audit.end();
            let kinds: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
            assert_eq!(kinds, [PageUnreadable], "page {damaged}, round {round}: {:#?}", report.findings);
            assert!(report.findings[0].to_string().contains("not JSON"));
            differing_groups = report.differing_groups;
        }
    }
}

#[test]
fn an_account_that_is_gone_or_cannot_be_read_is_told_and_its_journal_is_read() {
    let mut books = books();
    let kinds = |books: &Books, row: AccountRow| {
        let first = books.record(row.clone(), DifferingGroups::default());
        let kinds: Vec<FindingKind> =
            books.record(row, first.differing_groups).findings.iter().map(|finding| finding.kind).collect();
        kinds
    };
    assert_eq!(kinds(&books, AccountRow::Missing), [AccountMissing]);
    assert_eq!(kinds(&books, AccountRow::Unreadable("x".to_owned())), [AccountUnreadable]);
    books.pages.remove(1);
    assert_eq!(kinds(&books, AccountRow::Unreadable("x".to_owned())), [EntriesMissing, AccountUnreadable]);
    assert_eq!(kinds(&Books::open(), AccountRow::Missing), [NeverOpened], "a crash while it was opened");
}

#[test]
fn work_that_waits_for_long_is_a_notice() {
    let mut books = books();
    let index = books.accept(1);
    assert_eq!(books.kinds(), [], "it has just been accepted");
    let long_ago = NOW - i64::try_from(OVERDUE_AFTER.as_millis()).unwrap() - 1;
    books.transactions[index].transaction.accepted_at = Timestamp::from_unix_ms(long_ago);
    assert_eq!(books.kinds(), [Overdue]);
    books.transactions[index].marks.dead_letter = true;
    assert_eq!(books.kinds(), [], "a person sees it in the dead letters");
    assert_eq!(books.audit().marked, [books.transactions[index].transaction.key.clone()]);
}

#[test]
fn a_closed_account_is_as_sound_as_an_open_one() {
    let mut books = Books::with(&[&[100], &[-100]]);
    books.account = books.account.changed(OverdraftLimit::none(euro()), AccountStatus::Closed).unwrap();
    assert_eq!(books.kinds(), []);
}
