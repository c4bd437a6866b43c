//! The journal contains every decision: what posts nothing is audited as well.

use postonce_shared::oversight::verify::FindingKind;
use postonce_shared::testing::prelude::*;

use crate::verify::account_rows::{AccountRows, NOW, euro};

/// A named change of rows.
type Change<'a, T> = (&'a str, &'a dyn Fn(&mut T));

/// Postings, rejections, both in one commit, and changes of terms.
fn rows() -> AccountRows {
    let mut rows = AccountRows::open();
    rows.commit(&[100, -9_999, 50]);
    rows.commit(&[-9_999, -8_888]);
    rows.change_with_holder(700, AccountStatus::Open, Some(holder("Ada")));
    rows.commit(&[-800]);
    rows.commit(&[-9_999]);
    rows.commit(&[650]);
    rows.change(0, AccountStatus::Closed);
    rows.commit(&[1]);
    rows
}

fn holder(name: &str) -> Holder {
    Holder { given_name: name.to_owned(), family_name: "Byron".to_owned() }
}

fn rejected(
    rows: &mut AccountRows,
) -> impl Iterator<Item = &mut postonce_shared::ports::ledger::StoredTransaction> {
    rows.transactions.iter_mut().filter(|row| row.status() == TransactionStatus::Rejected)
}

#[test]
fn a_journal_of_all_decisions_has_no_findings() {
    let rows = rows();
    assert_eq!(rows.pages.len(), 9, "each version has a page");
    assert_eq!(rows.pages.iter().map(|page| page.version).max(), Some(rows.account.version));
    assert_eq!(rows.kinds(), []);
}

#[test]
fn a_row_that_was_read_before_later_decisions_has_no_findings() {
    let rows = rows();
    for earlier in &rows.history {
        let row = postonce_shared::oversight::verify::AccountRow::Read(Box::new(earlier.clone()));
        let report = rows.audit_row(row, Default::default());
        let kinds: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [], "version {}", earlier.version);
    }
}

#[test]
fn every_change_of_the_account_row_is_found() {
    let holder = Holder { given_name: "A".to_owned(), family_name: "B".to_owned() };
    let limit = |cents| OverdraftLimit::try_new(cents, euro()).unwrap();
    let changes: [Change<'_, AccountRows>; 8] = [
        ("status", &|rows| rows.account.status = AccountStatus::Open),
        ("limit", &|rows| rows.account.overdraft_limit = limit(1)),
        ("holder", &|rows| rows.account.holder = Some(holder.clone())),
        ("opened at", &|rows| rows.account.opened_at = Timestamp::from_unix_ms(NOW - 1)),
        ("version", &|rows| rows.account.version += 1),
        ("lower version", &|rows| rows.account.version -= 1),
        ("head", &|rows| rows.account.head = PageHash::GENESIS),
        ("no version", &|rows| rows.account.version = 0),
    ];
    for (name, change) in changes {
        let mut rows = rows();
        change(&mut rows);
        let report = rows.audit();
        assert!(!report.findings.is_empty() || report.later_version.is_some(), "{name}");
    }
}

#[test]
fn every_change_of_a_rejected_transaction_is_found() {
    let changes: [Change<'_, Outcome>; 3] = [
        ("reason", &|outcome| {
            if let Outcome::Rejected { reason, .. } = outcome {
                *reason = RejectReason::Discarded;
            }
        }),
        ("time", &|outcome| {
            if let Outcome::Rejected { rejected_at, .. } = outcome {
                *rejected_at = Timestamp::from_unix_ms(1);
            }
        }),
        ("version", &|outcome| {
            if let Outcome::Rejected { version, .. } = outcome {
                *version = None;
            }
        }),
    ];
    let count = rejected(&mut rows()).count();
    assert_eq!(count, 5);
    for index in 0..count {
        for (name, change) in changes {
            let mut rows = rows();
            let row = rejected(&mut rows).nth(index).unwrap();
            change(row.outcome.as_mut().unwrap());
            assert!(rows.kinds().contains(&FindingKind::RejectionsDiffer), "{name} of rejection {index}");
        }
        let mut changed = rows();
        let row = rejected(&mut changed).nth(index).unwrap();
        row.submission.accepted_at = Timestamp::from_unix_ms(1);
        assert!(changed.kinds().contains(&FindingKind::RejectionsDiffer));
        // The instruction with its fingerprint.
        let mut changed = rows();
        let other = changed.transactions[0].clone();
        let row = rejected(&mut changed).nth(index).unwrap();
        row.submission.instruction = other.submission.instruction;
        row.fingerprint = other.fingerprint;
        assert!(changed.kinds().contains(&FindingKind::RejectionsDiffer));
        let mut removed = rows();
        let key = rejected(&mut removed).nth(index).unwrap().submission.key.clone();
        removed.transactions.retain(|row| row.submission.key != key);
        assert!(removed.kinds().contains(&FindingKind::RejectionsDiffer));
    }
    let mut added = rows();
    let index = added.accept(5);
    let (reason, rejected_at) = (RejectReason::AccountClosed, Timestamp::from_unix_ms(NOW));
    added.transactions[index].outcome = Some(Outcome::Rejected { reason, rejected_at, version: None });
    assert_eq!(added.kinds(), [FindingKind::RejectionUnchained]);
}

/// Also by an attacker who computes the hash of the page again.
#[test]
fn every_page_that_is_changed_or_removed_is_found() {
    let count = rows().pages.len();
    for index in 0..count {
        let mut removed = rows();
        removed.pages.remove(index);
        assert!(removed.kinds().contains(&FindingKind::DecisionsMissing), "page {index} was removed");
        let mut changed = rows();
        let page = &mut changed.pages[index];
        if let Some(Decided::Rejected(rejection)) = page.decided.first_mut() {
            rejection.reason = RejectReason::Discarded;
        } else if let Some(
            Decided::TermsChanged { changed_at: at, .. } | Decided::Opened { opened_at: at, .. },
        ) = page.decided.first_mut()
        {
            *at = Timestamp::from_unix_ms(1);
        } else {
            page.entries[0].posted_at = Timestamp::from_unix_ms(1);
        }
        assert!(changed.kinds().contains(&FindingKind::PageHash), "page {index} was changed");
        let page = &mut changed.pages[index];
        page.hash = page.content_hash();
        let kinds = changed.kinds();
        let is_broken =
            kinds.contains(&FindingKind::DecisionsBroken) || kinds.contains(&FindingKind::ChainBroken);
        assert!(is_broken, "page {index} was changed together with its hash: {kinds:?}");
    }
}
