//! Any history of an account is sound at every moment, and any change of it is found.

use postonce_shared::oversight::verify::Severity;
use postonce_shared::testing::prelude::*;
use proptest::prelude::*;

use super::account_rows::{AccountRows, euro};

fn histories() -> impl Strategy<Value = AccountRows> {
    let cents = prop_oneof![1_i64..=1000, -800_i64..=-1];
    let commits = prop::collection::vec(prop::collection::vec(cents, 1..=8), 1..=8);
    commits.prop_map(|commits| {
        let mut rows = AccountRows::open();
        commits.iter().for_each(|cents| rows.commit(cents));
        rows
    })
}

/// A change of the rows of an account.
#[derive(Debug, Clone, Copy)]
enum Change {
    Amount,
    BalanceAfter,
    OrderNumber,
    PostedAt,
    RemovePage,
    RemoveEntry,
    SwapEntries,
    RemoveTransaction,
    AccountBalance,
}

const CHANGES: [Change; 9] = [
    Change::Amount,
    Change::BalanceAfter,
    Change::OrderNumber,
    Change::PostedAt,
    Change::RemovePage,
    Change::RemoveEntry,
    Change::SwapEntries,
    Change::RemoveTransaction,
    Change::AccountBalance,
];

/// Applies a change at some place. Returns false if there is no such place.
fn apply(change: Change, rows: &mut AccountRows, place: usize) -> bool {
    let postings = rows.postings();
    if postings.is_empty() {
        return false;
    }
    let posting = postings[place % postings.len()];
    let page = &mut rows.pages[posting];
    let within = place % page.entries.len();
    let entry = &mut page.entries[within];
    match change {
        Change::Amount => {
            entry.amount = Amount::try_new(entry.amount.minor_units() + 1, euro()).unwrap();
        }
        Change::BalanceAfter => {
            entry.balance_after = Balance::try_new(entry.balance_after.minor_units() - 1, euro()).unwrap();
        }
        Change::OrderNumber => {
            entry.order_number = OrderNumber::from_counter(entry.order_number.counter() + 100);
        }
        Change::PostedAt => entry.posted_at = Timestamp::from_unix_ms(entry.posted_at.unix_ms() + 1),
        Change::RemovePage => drop(rows.pages.remove(posting)),
        Change::RemoveEntry => {
            if page.entries.len() < 2 {
                return false;
            }
            page.entries.remove(within);
        }
        Change::SwapEntries => {
            let other = (within + 1) % page.entries.len();
            if other == within {
                return false;
            }
            page.entries.swap(within, other);
        }
        Change::RemoveTransaction => {
            let posted = |stored: &postonce_shared::ports::ledger::StoredTransaction| {
                stored.submission.key.message == entry.message
            };
            let index = rows.transactions.iter().position(posted).unwrap();
            rows.transactions.remove(index);
        }
        Change::AccountBalance => {
            let balance = rows.account.balance.minor_units() + 1;
            rows.account.balance = Balance::try_new(balance, euro()).unwrap();
        }
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_is_sound_at_every_moment(rows in histories()) {
        // The account row is of that moment; all other rows are of the end of the history.
        for account in rows.history.clone() {
            let then = AccountRows { account, ..rows.clone() };
            let report = then.audit();
            prop_assert!(report.findings.is_empty() && report.differing_groups.is_empty(), "{:#?}", report.findings);
            let later = rows.account.sequence > then.account.sequence;
            prop_assert_eq!(report.later_rows.is_some(), later, "later entries are noticed and are no finding");
        }
    }

    #[test]
    fn every_change_is_found_with_old_and_new_hashes(
        rows in histories(), change in prop::sample::select(&CHANGES), place in 0_usize..64, rehash: bool
    ) {
        let mut changed = rows.clone();
        prop_assume!(apply(change, &mut changed, place));
        if rehash {
            changed.rehash();
        }
        let report = changed.audit();
        let is_wrong = report.findings.iter().any(|finding| finding.kind.severity() == Severity::Finding);
        prop_assert!(is_wrong, "{change:?} at {place} gave {:#?}", report.findings);
        let named = report.findings.iter().all(|finding| finding.account == Some(changed.account.key));
        prop_assert!(named, "each finding names the account");
    }
}
