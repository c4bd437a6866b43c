//! Tests of reading accepted and posted transactions.

use std::collections::BTreeSet;

use super::case::{Case, one_of_many, partner, to_the_end};
use postonce_shared::domain::decision::Submission;
use postonce_shared::domain::transaction::TransactionStatus::{Accepted, Posted, Rejected};
use postonce_shared::testing::prelude::*;

/// Tests an implementation of [`postonce_shared::ports::ledger::TransactionLog`].
pub async fn log_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    the_journal_is_one_chain(&case().await).await;
    pages_start_with_the_one_that_contains_the_sequence(&case().await).await;
    full_pages_are_found_by_any_of_their_sequences(&case().await).await;
    pages_without_entries_are_read_by_version(&case().await).await;
    transactions_are_read_together_as_one_by_one(&case().await).await;
    a_status_is_listed_page_by_page(&case().await).await;
    the_listing_of_a_partner_contains_no_others(&case().await).await;
    a_listing_is_stable_under_changes_between_its_pages(&case().await).await;
    a_foreign_cursor_is_refused(&case().await).await;
}

fn keys(listed: &[StoredTransaction]) -> Vec<TransactionKey> {
    listed.iter().map(|stored| stored.submission.key.clone()).collect()
}

/// Posts pages with the given numbers of deposits.
async fn post_pages(case: &Case, account: AccountKey, sizes: &[usize]) {
    for size in sizes {
        let group: Vec<Submission> = (0..*size).map(|_| case.deposit(account, 1)).collect();
        case.settled(&group).await;
    }
}

async fn the_journal_is_one_chain(case: &Case) {
    let key = case.opened().await.value.key;
    let neighbor = case.opened().await.value.key;
    assert!(case.journal(key).await.is_empty(), "an account without entries has no pages");
    for size in [1, 3, 2, 12, 1] {
        post_pages(case, key, &[size]).await;
        post_pages(case, neighbor, &[1]).await;
        case.settled(&[case.withdrawal(key, 1_000_000)]).await;
        case.assert_chain(&case.account(key).await.value).await;
    }
    let pages = case.journal(key).await;
    let sizes: Vec<usize> = pages.iter().map(|page| page.entries.len()).collect();
    assert_eq!(sizes, [1, 3, 2, 12, 1], "each commit with postings has one page, in order");
}

/// Asserts which pages are returned, by their first sequences.
async fn check_pages(case: &Case, account: AccountKey, from: u64, entries: usize, expected: &[u64]) {
    let pages = case.store.log.pages(account, from, entries).await.unwrap();
    let firsts: Vec<u64> = pages.iter().map(|page| page.first_sequence).collect();
    assert_eq!(firsts, expected, "the pages for {entries} entries from sequence {from}");
    for page in &pages {
        assert_eq!(page.check(), Ok(()), "the hash of the page is valid");
    }
}

async fn pages_start_with_the_one_that_contains_the_sequence(case: &Case) {
    let key = case.opened().await.value.key;
    check_pages(case, key, 1, 10, &[]).await;
    post_pages(case, key, &[3; 6]).await;
    let all = [1, 4, 7, 10, 13, 16];
    check_pages(case, key, 1, 1_000, &all).await;
    check_pages(case, key, 1, usize::MAX, &all).await;
    check_pages(case, key, 1, 18, &all).await;
    check_pages(case, key, 1, 1, &[1]).await;
    check_pages(case, key, 1, 3, &[1]).await;
    check_pages(case, key, 1, 4, &[1, 4]).await;
    check_pages(case, key, 2, 2, &[1]).await;
    check_pages(case, key, 2, 3, &[1, 4]).await;
    check_pages(case, key, 3, 1, &[1]).await;
    check_pages(case, key, 4, 3, &[4]).await;
    check_pages(case, key, 9, 2, &[7, 10]).await;
    check_pages(case, key, 10, 7, &[10, 13, 16]).await;
    check_pages(case, key, 16, 3, &[16]).await;
    check_pages(case, key, 18, 5, &[16]).await;
    check_pages(case, key, 19, 5, &[]).await;
    check_pages(case, key, u64::MAX, 5, &[]).await;
}

async fn full_pages_are_found_by_any_of_their_sequences(case: &Case) {
    let key = case.opened().await.value.key;
    post_pages(case, key, &[PAGE_ENTRIES_MAX, 1, PAGE_ENTRIES_MAX, 2]).await;
    check_pages(case, key, 1, 98, &[1]).await;
    check_pages(case, key, 98, 1, &[1]).await;
    check_pages(case, key, 98, 2, &[1, 99]).await;
    check_pages(case, key, 99, 2, &[99, 100]).await;
    check_pages(case, key, 100, 98, &[100]).await;
    check_pages(case, key, 197, 2, &[100, 198]).await;
    check_pages(case, key, 199, 2, &[198]).await;
    check_pages(case, key, 200, 2, &[]).await;
}

async fn pages_without_entries_are_read_by_version(case: &Case) {
    let key = case.opened().await.value.key;
    let neighbor = case.opened().await.value.key;
    for _ in 0..5 {
        case.settled(&[case.withdrawal(key, 1_000_000)]).await;
        case.settled(&[case.withdrawal(neighbor, 1_000_000)]).await;
        post_pages(case, key, &[2]).await;
    }
    let all = case.decision_pages(key).await;
    let versions: Vec<u64> = all.iter().map(|page| page.version).collect();
    let end = case.account(key).await.value.version.saturating_add(1);
    for from in (0..=end).chain([u64::MAX]) {
        for limit in [0, 1, 2, 5, 1_000] {
            let pages = case.store.log.decision_pages(key, from, limit).await.unwrap();
            let found = versions.iter().zip(&all).filter(|(version, _)| **version >= from);
            let expected: Vec<_> = found.take(limit).map(|(_, page)| page.clone()).collect();
            assert_eq!(pages, expected, "up to {limit} pages without entries from version {from}");
        }
    }
}

/// Accepts 252 transactions that are not posted, and posts 20 and rejects 10 further ones between them.
async fn accept_many(case: &Case, account: AccountKey) -> Vec<TransactionKey> {
    let mut left = Vec::new();
    for round in 0..28 {
        let mut group: Vec<Submission> = (0..9).map(|_| case.deposit(account, 5)).collect();
        // Names that are prefixes of others must not change the order.
        for (new, name) in group.iter_mut().zip(["shop", "shop2", "shop_2", "s"].iter().cycle()) {
            new.key.partner = partner(name);
        }
        let work = case.accepted(&group).await;
        left.extend(work.iter().map(|one| one.submission.key.clone()));
        if round < 10 {
            case.settled(&[1, 2].map(|cents| case.deposit(account, cents))).await;
            case.settled(&[case.withdrawal(account, 1_000_000)]).await;
        }
    }
    left.sort_unstable();
    left
}

async fn transactions_are_read_together_as_one_by_one(case: &Case) {
    let key = case.opened().await.value.key;
    let group: Vec<Submission> = (0..60).map(|_| case.deposit(key, 1)).collect();
    let mut stored: Vec<TransactionKey> =
        case.accepted(&group).await.into_iter().map(|work| work.submission.key).collect();
    stored.sort_unstable();
    for (step, others) in [(1, 0), (3, 5), (7, 0), (7, 4), (30, 2)] {
        let unknown = (0..others).map(|_| case.deposit(key, 1).key);
        let wanted: Vec<TransactionKey> = stored.iter().rev().step_by(step).cloned().chain(unknown).collect();
        let read = case.store.ledger.transactions(&wanted).await.unwrap();
        assert_eq!(read.len(), wanted.len(), "there is a result for each key");
        for (key, read) in wanted.iter().zip(read) {
            assert_eq!(read, case.store.ledger.transaction(key).await.unwrap(), "in the order of the keys");
        }
    }
    assert_eq!(case.store.ledger.transactions(&[]).await.unwrap(), []);
}

async fn a_status_is_listed_page_by_page(case: &Case) {
    let key = case.opened().await.value.key;
    let neighbor = AccountKey { user: key.user, ..case.account_key() };
    case.accepted(&[case.deposit(neighbor, 1)]).await;
    let accepted = accept_many(case, key).await;
    for limit in [40, 1_000] {
        let listed = case.in_status(key, Accepted, limit).await;
        assert_eq!(keys(&listed), accepted, "each accepted transaction is listed once, by key");
        let sound = |stored: &StoredTransaction| stored.status() == Accepted;
        assert!(listed.iter().all(sound), "only the requested status is listed");
    }
    for (status, count) in [(Posted, 20), (Rejected, 10)] {
        let listed = case.in_status(key, status, 7).await;
        assert_eq!(listed.len(), count, "each transaction with the status is listed once");
        assert!(keys(&listed).is_sorted(), "the listing is ordered by key across its pages");
        for stored in &listed {
            assert_eq!(stored.status(), status, "only the requested status is listed");
            assert_eq!(
                *stored,
                case.stored(&stored.submission.key).await,
                "the transaction is listed as it is stored"
            );
        }
    }
}

async fn the_listing_of_a_partner_contains_no_others(case: &Case) {
    let key = case.opened().await.value.key;
    let accepted = accept_many(case, key).await;
    for name in ["shop", "shop2", "shop_2", "s", "nobody"] {
        let own = partner(name);
        let expected: Vec<_> = accepted.iter().filter(|key| key.partner == own).cloned().collect();
        for limit in [1, 40, 1_000] {
            let page = async |cursor: Option<String>| {
                let log = &case.store.log;
                log.by_status(key, Accepted, Some(&own), cursor.as_deref(), limit).await.unwrap()
            };
            assert_eq!(
                keys(&to_the_end(limit, page).await),
                expected,
                "the transactions of {name} are listed once, by key"
            );
            let first = async || page(None).await;
            let is_whole = |first: &Listing<_>| {
                let count = first.items.len();
                count == limit.min(expected.len()) && (count < expected.len() || first.next.is_none())
            };
            let property =
                "the first page contains transactions of the partner, and no page follows the last";
            one_of_many(first, is_whole, property).await;
        }
    }
    let page = case.store.log.by_status(key, Accepted, Some(&partner("s")), None, 1).await.unwrap();
    let foreign = page.next.expect("further transactions follow");
    let answer = case.store.log.by_status(key, Accepted, Some(&partner("shop")), Some(&foreign), 1).await;
    let refused = matches!(answer, Err(StoreFault::ForeignCursor { .. }));
    assert!(refused, "the cursor of another partner is refused, but the result was {answer:?}");
}

async fn a_listing_is_stable_under_changes_between_its_pages(case: &Case) {
    let key = case.opened().await.value.key;
    let group: Vec<Submission> = (1..=90).map(|cents| case.deposit(key, cents)).collect();
    case.accepted(&group).await;
    let mut expected: Vec<TransactionKey> = group.iter().map(|new| new.key.clone()).collect();
    expected.sort_unstable();

    let first = case.store.log.by_status(key, Accepted, None, None, 20).await.unwrap();
    // All listed transactions become final, and some of the later ones as well.
    let mut settled: BTreeSet<TransactionKey> = keys(&first.items).into_iter().collect();
    settled.extend(expected.iter().skip(30).step_by(3).cloned());
    let mut work = Vec::new();
    for key in &settled {
        work.extend(case.stored(key).await.work());
    }
    case.committed(&case.decided(&case.account(key).await, &work)).await;

    let mut found = keys(&first.items);
    let mut cursor = first.next;
    while let Some(next) = cursor {
        let page = case.store.log.by_status(key, Accepted, None, Some(&next), 20).await.unwrap();
        for stored in &page.items {
            assert_eq!(stored.status(), Accepted, "final transactions are not listed as accepted");
        }
        found.extend(keys(&page.items));
        cursor = page.next;
    }
    expected.retain(|key| !settled.contains(key) || first.items.iter().any(|one| one.submission.key == *key));
    assert_eq!(found, expected, "each transaction that stays accepted is listed once");
}

async fn a_foreign_cursor_is_refused(case: &Case) {
    let key = case.opened().await.value.key;
    case.accepted(&[case.deposit(key, 1)]).await;
    for cursor in ["no cursor", "", "🦀", "%00", "-"] {
        let answer = case.store.log.by_status(key, Accepted, None, Some(cursor), 10).await;
        let refused = matches!(answer, Err(StoreFault::ForeignCursor { .. }));
        assert!(refused, "the cursor {cursor:?} is refused, but the result was {answer:?}");
    }
    let neighbor = case.opened().await.value.key;
    case.accepted(&[1, 2, 3].map(|cents| case.deposit(neighbor, cents))).await;
    let page = case.store.log.by_status(neighbor, Accepted, None, None, 1).await.unwrap();
    let foreign = page.next.expect("two of three transactions follow");
    let answer = case.store.log.by_status(key, Accepted, None, Some(&foreign), 10).await;
    let refused = matches!(answer, Err(StoreFault::ForeignCursor { .. }));
    assert!(refused, "the cursor of another account is refused, but the result was {answer:?}");
}
