//! Given an anchor, each change of an earlier decision is found, also if all hashes were computed again, and journal and log
//! were changed in the same way.

use postonce_shared::oversight::verify::{AccountRow, FindingKind};
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use crate::verify::account_rows::{AccountRows, NOW, euro};

/// A named change.
type Change<T> = (&'static str, fn(&mut T));

fn history() -> AccountRows {
    let mut rows = AccountRows::open();
    rows.commit(&[100, -9_999, 50]);
    rows.commit(&[-9_999, -8_888]);
    rows.change(700, AccountStatus::Open);
    rows.commit(&[-800]);
    rows.commit(&[650]);
    rows.commit(&[25]);
    rows.leaf = Some(Leaf::of(&rows.account));
    rows
}

fn change_of_time() -> Timestamp {
    Timestamp::from_unix_ms(NOW - 86_400_000)
}

fn check(rows: &AccountRows, what: &str) {
    let kinds = rows.kinds();
    assert!(kinds.contains(&FindingKind::AnchoredDecisions), "{what}: {kinds:?}");
}

#[test]
fn the_state_of_an_anchor_and_each_later_one_have_no_findings() {
    let mut rows = history();
    assert_eq!(rows.kinds(), []);
    for earlier in rows.history.clone() {
        rows.leaf = Some(Leaf::of(&earlier));
        assert_eq!(rows.kinds(), [], "version {}", earlier.version);
    }
    rows.leaf = Some(Leaf::of(&rows.account));
    rows.commit(&[-10, -9_999]);
    rows.change(1, AccountStatus::Open);
    assert_eq!(rows.kinds(), []);
}

#[test]
fn every_change_of_an_entry_is_found() {
    let changes: [Change<Entry>; 9] = [
        ("partner", |entry| entry.partner = PartnerId::parse("other").unwrap()),
        ("message", |entry| entry.message = MessageId::from_uuid(Uuid::from_u128(999))),
        ("kind", |entry| entry.kind = TransactionKind::Withdrawal),
        ("amount", |entry| entry.amount = Amount::try_new(1, euro()).unwrap()),
        ("details", |entry| {
            entry.details = Details::from_stored(Some("other".to_owned()), [].into(), String::new());
        }),
        ("order number", |entry| entry.order_number = OrderNumber::from_counter(7_777)),
        ("balance", |entry| entry.balance_after = Balance::try_new(1, euro()).unwrap()),
        ("accepted at", |entry| entry.accepted_at = change_of_time()),
        ("posted at", |entry| entry.posted_at = change_of_time()),
    ];
    let rows = history();
    for page in 0..rows.pages.len() {
        for entry in 0..rows.pages[page].entries.len() {
            for (name, change) in changes {
                let mut changed = rows.clone();
                let before = changed.pages[page].entries[entry].clone();
                change(&mut changed.pages[page].entries[entry]);
                if changed.pages[page].entries[entry] == before {
                    continue;
                }
                changed.rehash();
                check(&changed, &format!("{name} of entry {entry} of page {page}"));
            }
        }
    }
}

/// Without the anchor, nothing shows these changes.
#[test]
fn a_change_that_fits_journal_log_and_account_is_found_only_with_the_anchor() {
    let rows = history();
    for page in 0..rows.pages.len() {
        for entry in 0..rows.pages[page].entries.len() {
            let mut changed = rows.clone();
            let changed_entry = &mut changed.pages[page].entries[entry];
            changed_entry.posted_at = change_of_time();
            let sequence_of_entry = changed_entry.sequence;
            for stored in &mut changed.transactions {
                if let Some(Outcome::Posted { sequence, posted_at, .. }) = &mut stored.outcome
                    && *sequence == sequence_of_entry
                {
                    *posted_at = change_of_time();
                }
            }
            changed.rehash();
            assert_eq!(changed.kinds(), [FindingKind::AnchoredDecisions]);
            changed.leaf = None;
            assert_eq!(changed.kinds(), [], "entry {sequence_of_entry}");
        }
    }
}

#[test]
fn every_change_of_a_page_is_found() {
    let changes: [Change<JournalPage>; 2] = [
        ("nonce", |page| page.nonce = Nonce::from_uuid(Uuid::from_u128(4711))),
        ("version", |page| page.version = 77),
    ];
    let rows = history();
    for page in 0..rows.pages.len() {
        for (name, change) in changes {
            let mut changed = rows.clone();
            change(&mut changed.pages[page]);
            changed.rehash();
            check(&changed, &format!("{name} of page {page}"));
        }
        let mut removed = rows.clone();
        removed.pages.remove(page);
        removed.rehash();
        check(&removed, &format!("page {page} was removed"));
    }
    // All decisions again, up to another end.
    let mut shorter = rows.clone();
    shorter.pages.pop();
    shorter.account = shorter.history[shorter.history.len() - 2].clone();
    shorter.transactions.pop();
    let kinds = shorter.kinds();
    assert_eq!(kinds, [FindingKind::AnchoredAccount, FindingKind::AnchoredDecisions], "went back");
}

#[test]
fn every_change_of_a_decision_without_entries_is_found() {
    let rows = history();
    for page in 0..rows.pages.len() {
        for index in 0..rows.pages[page].decided.len() {
            let mut changed = rows.clone();
            let mut rejected = None;
            match &mut changed.pages[page].decided[index] {
                Decided::Rejected(rejection) => {
                    rejection.reason = RejectReason::Discarded;
                    rejected = Some((rejection.partner.clone(), rejection.message));
                }
                Decided::Opened { opened_at, .. } => {
                    *opened_at = change_of_time();
                    changed.account.opened_at = change_of_time();
                }
                Decided::TermsChanged { changed_at, .. } => *changed_at = change_of_time(),
            }
            for stored in &mut changed.transactions {
                let key = &stored.submission.key;
                if let Some(Outcome::Rejected { reason, .. }) = &mut stored.outcome
                    && rejected.as_ref() == Some(&(key.partner.clone(), key.message))
                {
                    *reason = RejectReason::Discarded;
                }
            }
            changed.rehash();
            assert_eq!(changed.kinds(), [FindingKind::AnchoredDecisions], "decision {index} of page {page}");
            changed.leaf = None;
            assert_eq!(changed.kinds(), []);
        }
    }
}

#[test]
fn every_change_of_an_account_row_is_found_as_far_as_its_journal_contains_it() {
    let of_postings: [Change<Account>; 4] = [
        ("balance", |account| account.balance = Balance::try_new(1, euro()).unwrap()),
        ("version", |account| account.version -= 1),
        ("sequence", |account| account.sequence -= 1),
        ("head", |account| account.head = PageHash::from_bytes([7; 32])),
    ];
    let of_terms: [Change<Account>; 4] = [
        ("status", |account| account.status = AccountStatus::Closed),
        ("limit", |account| account.overdraft_limit = OverdraftLimit::try_new(1, euro()).unwrap()),
        ("holder", |account| {
            account.holder = Some(Holder { given_name: "M".to_owned(), family_name: "M".to_owned() });
        }),
        ("opened at", |account| account.opened_at = change_of_time()),
    ];
    let rows = history();
    for (name, change) in of_postings {
        let mut changed = rows.clone();
        change(&mut changed.account);
        let report = changed.audit();
        assert!(!report.findings.is_empty() || report.later_version.is_some(), "{name}");
    }
    let missing = rows.audit_row(AccountRow::Missing, Default::default());
    let kinds: Vec<FindingKind> = missing.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::AccountMissing, FindingKind::AnchoredAccount]);
    for (name, change) in of_terms {
        let mut changed = rows.clone();
        change(&mut changed.account);
        assert_ne!(changed.kinds(), [], "{name}");
    }
}

#[test]
fn another_page_under_the_same_version_is_found() {
    let mut rows = history();
    let version = rows.account.version;
    rows.commit(&[1]);
    rows.account.version = version;
    assert!(rows.kinds().contains(&FindingKind::AnchoredAccount), "{:?}", rows.kinds());
}
