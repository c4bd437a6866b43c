//! Tests of reading all rows as they are stored.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::case::{Case, partner, to_the_end};
use postonce_shared::domain::decision::Submission;
use postonce_shared::domain::transaction::TransactionStatus::{self, Accepted, Posted, Rejected};
use postonce_shared::testing::prelude::*;

/// Half of the users each.
static RANGES: LazyLock<Vec<UserRange>> = LazyLock::new(|| UserRange::divided(2));

/// Tests an implementation of [`postonce_shared::ports::archive::Archive`]. Damaged rows are not covered, because no port can
/// damage a row: the tests of the adapters and of the audit cover them.
pub async fn archive_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    every_account_is_found_once_and_in_order(&case().await).await;
    an_account_that_was_not_opened_is_in_the_ledger_but_not_listed(&case().await).await;
    a_ledger_has_pages_after_the_first_posting(&case().await).await;
    all_rows_are_read_account_by_account(&case().await).await;
    every_accepted_transaction_is_listed(&case().await).await;
    pages_are_read_as_they_are_stored(&case().await).await;
    transactions_in_every_status_are_read(&case().await).await;
    a_change_of_status_does_not_affect_the_listing(&case().await).await;
    a_foreign_cursor_is_refused(&case().await).await;
    the_archive_writes_nothing(&case().await).await;
}

impl Case {
    async fn listed_accounts(&self, limit: usize) -> Vec<AccountKey> {
        let archive = &self.store.archive;
        let page = async |cursor: Option<String>| {
            archive.listed_accounts(UserRange::ALL, cursor.as_deref(), limit).await.unwrap()
        };
        readable(to_the_end(limit, page).await)
    }

    /// Returns all rows of a range.
    async fn rows_in(&self, range: UserRange, limit: usize) -> Vec<StoredRow> {
        let archive = &self.store.archive;
        let page =
            async |cursor: Option<String>| archive.rows(range, cursor.as_deref(), limit).await.unwrap();
        readable(to_the_end(limit, page).await)
    }

    /// Returns the accounts of all rows, each once as long as its rows are together.
    async fn accounts_with_rows(&self, limit: usize) -> Vec<AccountKey> {
        let rows = self.rows_in(UserRange::ALL, limit).await;
        let mut accounts: Vec<AccountKey> = rows.iter().map(|row| row.account).collect();
        accounts.dedup();
        accounts
    }

    async fn accepted_in(&self, range: UserRange, limit: usize) -> Vec<StoredTransaction> {
        let archive = &self.store.archive;
        let page =
            async |cursor: Option<String>| archive.accepted(range, cursor.as_deref(), limit).await.unwrap();
        readable(to_the_end(limit, page).await)
    }

    async fn stored_pages(&self, account: AccountKey, limit: usize) -> Vec<StoredPage> {
        let archive = &self.store.archive;
        let page = async |cursor: Option<String>| {
            archive.stored_pages(account, cursor.as_deref(), limit).await.unwrap()
        };
        to_the_end(limit, page).await
    }

    async fn stored_transactions(&self, account: AccountKey, limit: usize) -> Vec<StoredTransaction> {
        let archive = &self.store.archive;
        let page = async |cursor: Option<String>| {
            archive.stored_transactions(account, cursor.as_deref(), limit).await.unwrap()
        };
        readable(to_the_end(limit, page).await)
    }
}

fn readable<T>(items: Vec<Readable<T>>) -> Vec<T> {
    items.into_iter().map(|item| item.expect("no row is damaged")).collect()
}

fn by_key(mut stored: Vec<StoredTransaction>) -> Vec<StoredTransaction> {
    stored.sort_by(|one, other| one.submission.key.cmp(&other.submission.key));
    stored
}

async fn every_account_is_found_once_and_in_order(case: &Case) {
    let mut ours = BTreeSet::new();
    for _ in 0..4 {
        let first = case.opened().await.value;
        ours.insert(first.key);
        // Another account of the same user, and one with more rows than a page of the listing.
        let key = AccountKey { account: case.account_key().account, ..first.key };
        ours.insert(case.open(&postonce_shared::domain::account::Account { key, ..first }).await.value.key);
        case.settled(&(1..=6).map(|cents| case.deposit(key, cents)).collect::<Vec<_>>()).await;
        case.settled(&[case.withdrawal(key, 1_000_000)]).await;
    }
    // Other tests may use the store at the same time.
    let ours: Vec<AccountKey> = ours.into_iter().collect();
    for limit in [3, 1_000] {
        for found in [case.listed_accounts(limit).await, case.accounts_with_rows(limit).await] {
            assert!(found.is_sorted_by(|one, other| one < other), "each once, ordered by key");
            let found: Vec<AccountKey> = found.into_iter().filter(|key| ours.contains(key)).collect();
            assert_eq!(found, ours, "an opened account is listed, and has rows in the ledger");
        }
    }
    for key in ours {
        assert!(case.store.archive.is_listed(key).await.unwrap(), "an opened account is listed");
    }
}

async fn an_account_that_was_not_opened_is_in_the_ledger_but_not_listed(case: &Case) {
    let key = case.account_key();
    assert!(!case.accounts_with_rows(1_000).await.contains(&key), "the account has no rows yet");
    case.accepted(&[case.deposit(key, 1)]).await;
    assert!(case.accounts_with_rows(1_000).await.contains(&key), "a transaction is a row of its account");
    assert!(
        !case.listed_accounts(1_000).await.contains(&key),
        "an account that was not opened is not listed"
    );
    assert!(
        !case.store.archive.is_listed(key).await.unwrap(),
        "an account that was not opened is in no list"
    );
}

async fn a_ledger_has_pages_after_the_first_posting(case: &Case) {
    let has_pages = async || case.store.archive.has_pages().await.unwrap();
    // Other cases may have posted in the same store.
    let before = has_pages().await;
    let account = case.opened().await;
    let key = account.value.key;
    let accepted = case.accepted(&[case.withdrawal(key, 1)]).await;
    assert_eq!(has_pages().await, before, "accepted");
    case.committed(&case.decided(&account, &accepted)).await;
    assert_eq!(has_pages().await, before, "rejected");
    case.settled(&[case.deposit(key, 1)]).await;
    assert!(has_pages().await, "posted");
}

async fn all_rows_are_read_account_by_account(case: &Case) {
    let mut ours = BTreeSet::new();
    for count in [0, 1, 7] {
        let key = case.opened().await.value.key;
        for _ in 0..count {
            case.settled(&[case.deposit(key, 1), case.deposit(key, 2)]).await;
        }
        case.settled(&[case.withdrawal(key, 1_000_000)]).await;
        ours.insert(key);
    }
    let never_opened = case.account_key();
    case.accepted(&[case.deposit(never_opened, 1)]).await;
    ours.insert(never_opened);
    for limit in [1, 3, 1_000] {
        // Other tests may use the store at the same time.
        let all = case.rows_in(UserRange::ALL, limit).await;
        let mut of_ranges = Vec::new();
        for range in UserRange::divided(4) {
            let rows = case.rows_in(range, limit).await;
            assert!(rows.iter().all(|row| range.contains(row.account.user)), "{range:?}");
            of_ranges.extend(rows);
        }
        for rows in [all, of_ranges] {
            let rows: Vec<StoredRow> = rows.into_iter().filter(|row| ours.contains(&row.account)).collect();
            assert!(rows.is_sorted_by_key(|row| row.account), "account by account");
            for key in &ours {
                let rows = rows.iter().filter(|row| row.account == *key).map(|row| row.content.clone());
                case.check_rows(*key, rows.collect()).await;
            }
        }
    }
}

impl Case {
    /// Checks that these are the rows of an account: its own row, then its pages, then its transactions.
    async fn check_rows(&self, key: AccountKey, rows: Vec<RowContent>) {
        let account = self.store.ledger.account(key).await.unwrap().map(|found| found.value);
        let mut expected: Vec<RowContent> =
            account.into_iter().map(|account| RowContent::Account(Box::new(Ok(account)))).collect();
        let pages = self.stored_pages(key, 100).await;
        let decisions = self.decision_pages(key).await.into_iter();
        expected.extend(decisions.map(|page| {
            RowContent::DecisionPage(StoredDecisionPage { version: Some(page.version), page: Ok(page) })
        }));
        expected.extend(pages.into_iter().map(RowContent::Page));
        assert_eq!(rows.get(..expected.len()), Some(&expected[..]), "{key}");
        let transactions = rows[expected.len()..].iter().map(|row| match row {
            RowContent::Transaction(stored) => stored.clone().expect("no row is damaged"),
            RowContent::Account(_) | RowContent::DecisionPage(_) | RowContent::Page(_) => {
                panic!("{row:?} after the transactions")
            }
        });
        assert_eq!(by_key(transactions.collect()), by_key(self.stored_transactions(key, 1_000).await));
    }
}

async fn pages_are_read_as_they_are_stored(case: &Case) {
    let key = case.opened().await.value.key;
    let neighbor = AccountKey { user: key.user, ..case.opened().await.value.key };
    assert!(case.stored_pages(key, 10).await.is_empty(), "an account without entries has no pages");
    for size in [1, 3, 2, 12, 1] {
        case.settled(&(0..size).map(|_| case.deposit(key, 1)).collect::<Vec<_>>()).await;
        case.settled(&[case.withdrawal(key, 1_000_000)]).await;
    }
    let expected: Vec<StoredPage> = case
        .journal(key)
        .await
        .into_iter()
        .map(|page| StoredPage { first_sequence: Some(page.first_sequence), page: Ok(page) })
        .collect();
    assert_eq!(expected.len(), 5);
    for limit in [1, 2, 100] {
        assert_eq!(
            case.stored_pages(key, limit).await,
            expected,
            "each page is listed once, complete and in order"
        );
    }
    assert!(case.stored_pages(neighbor, 10).await.is_empty(), "pages belong to one account");
}

async fn transactions_in_every_status_are_read(case: &Case) {
    let key = case.opened().await.value.key;
    assert!(case.stored_transactions(key, 10).await.is_empty(), "there are no transactions yet");
    let mut expected = Vec::new();
    for name in ["shop", "shop2", "shop_2", "s"] {
        let mut group: Vec<Submission> = (1..=5).map(|cents| case.deposit(key, cents)).collect();
        group.push(case.withdrawal(key, 1_000_000));
        group.iter_mut().for_each(|new| new.key.partner = partner(name));
        case.settled(&group).await;
        let mut waiting = case.deposit(key, 5);
        waiting.key.partner = partner(name);
        case.accepted(std::slice::from_ref(&waiting)).await;
        group.push(waiting);
        for new in group {
            expected.push(case.stored(&new.key).await);
        }
    }
    let expected = by_key(expected);
    for limit in [1, 5, 1_000] {
        let found = by_key(case.stored_transactions(key, limit).await);
        assert_eq!(found, expected, "each transaction is listed once as it is stored, in every status");
    }
    let count =
        |status: TransactionStatus| expected.iter().filter(|stored| stored.status() == status).count();
    assert_eq!([Accepted, Posted, Rejected].map(count), [4, 20, 4]);
}

async fn a_change_of_status_does_not_affect_the_listing(case: &Case) {
    let key = case.opened().await.value.key;
    let group: Vec<Submission> = (1..=40).map(|cents| case.deposit(key, cents)).collect();
    let work = case.accepted(&group).await;
    let first = case.store.archive.stored_transactions(key, None, 10).await.unwrap();
    case.committed(&case.decided(&case.account(key).await, &work)).await;
    let mut found: Vec<TransactionKey> =
        readable(first.items).into_iter().map(|stored| stored.submission.key).collect();
    let mut cursor = first.next;
    while let Some(next) = cursor {
        let page = case.store.archive.stored_transactions(key, Some(&next), 10).await.unwrap();
        found.extend(readable(page.items).into_iter().map(|stored| stored.submission.key));
        cursor = page.next;
    }
    found.sort_unstable();
    let mut expected: Vec<TransactionKey> = group.into_iter().map(|new| new.key).collect();
    expected.sort_unstable();
    assert_eq!(found, expected, "a transaction whose status changes is listed once");
}

async fn a_foreign_cursor_is_refused(case: &Case) {
    let (key, neighbor) = (case.opened().await.value.key, case.opened().await.value.key);
    for account in [key, neighbor] {
        case.settled(&[1, 2, 3].map(|cents| case.deposit(account, cents))).await;
    }
    let archive = &case.store.archive;
    let is_refused = |fault: Option<StoreFault>| matches!(fault, Some(StoreFault::ForeignCursor { .. }));
    for cursor in ["no cursor", "🦀", "%00", "-"] {
        let all = UserRange::ALL;
        assert!(is_refused(archive.listed_accounts(all, Some(cursor), 9).await.err()), "{cursor:?}");
        assert!(is_refused(archive.rows(all, Some(cursor), 9).await.err()), "{cursor:?}");
        assert!(is_refused(archive.accepted(all, Some(cursor), 9).await.err()), "{cursor:?}");
        assert!(is_refused(archive.stored_pages(key, Some(cursor), 9).await.err()), "{cursor:?}");
        assert!(is_refused(archive.stored_transactions(key, Some(cursor), 9).await.err()), "{cursor:?}");
    }
    let foreign = archive.stored_transactions(neighbor, None, 1).await.unwrap().next;
    let foreign = foreign.expect("two of three transactions follow");
    let answer = archive.stored_transactions(key, Some(&foreign), 9).await;
    assert!(is_refused(answer.err()), "the cursor of another account is refused");
}

async fn the_archive_writes_nothing(case: &Case) {
    let key = case.opened().await.value.key;
    case.settled(&[case.deposit(key, 1)]).await;
    let count = || case.store.operations.snapshot();
    let before = count();
    case.listed_accounts(1_000).await;
    case.rows_in(UserRange::ALL, 1_000).await;
    case.accepted_in(UserRange::ALL, 1_000).await;
    case.stored_pages(key, 10).await;
    case.stored_transactions(key, 10).await;
    case.store.archive.is_listed(key).await.unwrap();
    for (operation, after) in count() {
        let is_read = ["get", "query"].contains(&operation.name);
        let more = after - before.get(&operation).copied().unwrap_or_default();
        assert!(is_read || more == 0, "{} {operation:?} are not reads", more);
    }
}

async fn every_accepted_transaction_is_listed(case: &Case) {
    let mut open: BTreeSet<TransactionKey> = BTreeSet::new();
    let mut finals: BTreeSet<TransactionKey> = BTreeSet::new();
    for _ in 0..4 {
        let key = case.opened().await.value.key;
        let settled = [case.deposit(key, 1), case.withdrawal(key, 1_000)];
        case.settled(&settled).await;
        finals.extend(settled.into_iter().map(|new| new.key));
        let group: Vec<Submission> = (1..=30).map(|cents| case.deposit(key, cents)).collect();
        open.extend(case.accepted(&group).await.into_iter().map(|work| work.submission.key));
    }
    // Transactions of an account that was never opened are found as well.
    open.extend(
        case.accepted(&[case.deposit(case.account_key(), 1)]).await.into_iter().map(|one| one.submission.key),
    );

    let mut found = BTreeSet::new();
    let mut in_ranges = vec![BTreeSet::new(); RANGES.len()];
    for stored in case.accepted_in(UserRange::ALL, 50).await {
        // Other tests may use the store at the same time: only rows of this test are checked.
        let key = stored.submission.key.clone();
        assert!(!finals.contains(&key), "final transactions are not listed for recovery");
        if open.contains(&key) {
            let range = RANGES.iter().position(|range| range.contains(key.account.user));
            in_ranges[range.expect("each user is in a range")].insert(key.clone());
            assert_eq!(stored, case.stored(&key).await, "the transaction is listed as it is stored");
            assert!(found.insert(key), "each accepted transaction is listed once");
        }
    }
    assert_eq!(found, open, "every accepted transaction of the store is listed");
    for (range, expected) in RANGES.iter().zip(in_ranges) {
        let listed = case.accepted_in(*range, 50).await.into_iter().map(|stored| stored.submission.key);
        let listed: BTreeSet<TransactionKey> = listed.filter(|key| open.contains(key)).collect();
        assert_eq!(listed, expected, "a range contains the transactions of its users");
    }
}
