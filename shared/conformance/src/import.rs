//! Tests of the import: rows of another store are read as they are there, and work continues on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::case::{Case, details, moment, to_the_end};
use postonce_shared::domain::decision::Submission;
use postonce_shared::ports::import::AccountRows;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;

/// Tests the port [`postonce_shared::ports::import::Import`].
pub async fn import_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    rows_are_read_as_they_are_in_the_other_store(&case().await).await;
    a_repetition_changes_nothing(&case().await).await;
    later_rows_are_added_and_accepted_transactions_become_final(&case().await).await;
    work_continues_on_imported_rows(&case().await).await;
    an_account_can_have_more_rows_than_a_batch(&case().await).await;
    rows_without_an_account_are_kept(&case().await).await;
    rows_since_a_time_include_all_that_were_written_later(&case().await).await;
}

/// A store in memory, whose rows are imported.
fn origin() -> Case {
    Case::new(MemoryStore::new(Arc::new(SystemWorld::new())))
}

/// All rows of an account, in the form of an import.
async fn rows_of(case: &Case, key: AccountKey) -> AccountRows {
    let mut pages = case.journal(key).await;
    pages.extend(case.decision_pages(key).await);
    let mut transactions = Vec::new();
    for status in TransactionStatus::ALL {
        transactions.extend(case.in_status(key, status, 100).await);
    }
    let account = case.store.ledger.account(key).await.unwrap().map(|found| found.value);
    AccountRows { key, pages, transactions, account }
}

/// The rows of an account without revisions, which differ from store to store, in a fixed order.
async fn content(case: &Case, key: AccountKey) -> AccountRows {
    let mut rows = rows_of(case, key).await;
    let by_key: BTreeMap<TransactionKey, StoredTransaction> = rows
        .transactions
        .into_iter()
        .map(|stored| (stored.submission.key.clone(), without_revision(stored)))
        .collect();
    rows.transactions = by_key.into_values().collect();
    rows.pages.sort_by_key(|page| page.version);
    rows
}

fn without_revision(stored: StoredTransaction) -> StoredTransaction {
    // The marks of a final transaction have no meaning.
    let marks = if stored.outcome.is_some() { Marks::default() } else { stored.marks };
    StoredTransaction { revision: Revision::new(""), marks, ..stored }
}

/// An account with transactions in every status, marks, lines of a batch, details, and changed terms.
async fn filled(origin: &Case) -> AccountKey {
    let key = origin.opened().await.value.key;
    let mut first = origin.deposit(key, 700);
    first.instruction.details = details("\u{1d11e} 'quoted' %", &[("a", "1"), ("b", "\"")], "{\"x\":1}");
    origin.settled(&[first, origin.withdrawal(key, 100_000), origin.deposit(key, 1)]).await;
    origin
        .inserted(&[origin.deposit(key, 20), origin.deposit(key, 30), origin.withdrawal(key, 99_999)])
        .await;
    origin.settled(&[origin.withdrawal(key, 88_888)]).await;
    let account = origin.account(key).await;
    let limit = OverdraftLimit::try_new(1000, account.value.currency).unwrap();
    let change = origin.changed(&account.value, limit, AccountStatus::Open);
    origin.store.accounts.change(&account.revision, &change).await.unwrap().expect("the revision is current");
    let open = [origin.deposit(key, 3), origin.deposit(key, 4)];
    let work = origin.accepted(&open).await;
    let marks = Marks { dead_letter: true, repairs: 2, repaired_at: Some(moment(7)) };
    let marked = origin.store.ledger.mark(&open[0].key, &work[0].row, marks).await.unwrap();
    marked.expect("the revision is current");
    key
}

async fn import(case: &Case, rows: &[AccountRows]) {
    case.store.import.import(rows).await.unwrap();
}

async fn rows_are_read_as_they_are_in_the_other_store(case: &Case) {
    let origin = origin();
    let keys = [filled(&origin).await, filled(&origin).await, origin.opened().await.value.key];
    let mut rows = Vec::new();
    for key in keys {
        rows.push(rows_of(&origin, key).await);
    }
    import(case, &rows).await;
    for key in keys {
        assert_eq!(content(case, key).await, content(&origin, key).await, "all rows are as they were");
        case.assert_chain(&case.account(key).await.value).await;
        assert!(case.store.archive.is_listed(key).await.unwrap(), "the account is in the list of its user");
        let listed = case.store.accounts.list(key.user, None, 10).await.unwrap();
        assert_eq!(listed, vec![origin.account(key).await.value], "the account is listed");
    }
}

async fn a_repetition_changes_nothing(case: &Case) {
    let origin = origin();
    let key = filled(&origin).await;
    let rows = [rows_of(&origin, key).await];
    import(case, &rows).await;
    import(case, &rows).await;
    assert_eq!(content(case, key).await, content(&origin, key).await, "a repetition has no effect");
}

async fn later_rows_are_added_and_accepted_transactions_become_final(case: &Case) {
    let origin = origin();
    let key = filled(&origin).await;
    import(case, &[rows_of(&origin, key).await]).await;
    let account = origin.account(key).await;
    let work: Vec<Work> = origin
        .in_status(key, TransactionStatus::Accepted, 10)
        .await
        .iter()
        .filter_map(StoredTransaction::work)
        .collect();
    let commit = origin.decided(&account, &work);
    origin.committed(&commit).await;
    // Only what is new, as an incremental copy imports it.
    let later = AccountRows {
        pages: vec![commit.page.clone()],
        transactions: origin.in_status(key, TransactionStatus::Posted, 100).await,
        account: Some(origin.account(key).await.value),
        ..AccountRows::of(key)
    };
    import(case, std::slice::from_ref(&later)).await;
    assert_eq!(
        content(case, key).await,
        content(&origin, key).await,
        "the rows are those of the later state"
    );
}

async fn work_continues_on_imported_rows(case: &Case) {
    let origin = origin();
    let key = filled(&origin).await;
    import(case, &[rows_of(&origin, key).await]).await;
    let work: Vec<Work> = case
        .in_status(key, TransactionStatus::Accepted, 10)
        .await
        .iter()
        .filter_map(StoredTransaction::work)
        .collect();
    assert_eq!(work.len(), 2, "both accepted transactions have work");
    case.committed(&case.decided(&case.account(key).await, &work)).await;
    case.settled(&[case.deposit(key, 5)]).await;
    case.inserted(&[case.deposit(key, 6)]).await;
    case.assert_chain(&case.account(key).await.value).await;
    let posted = rows_of(&origin, key).await.transactions;
    let posted = posted.into_iter().find(|stored| stored.outcome.is_some()).unwrap();
    let again = Submission {
        key: posted.submission.key.clone(),
        ..case.new_transaction(key, posted.submission.instruction.clone())
    };
    let answer = case.store.ledger.accept(&[again], fresh_nonce()).await.unwrap().remove(0);
    let postonce_shared::ports::ledger::AcceptOutcome::Existing(existing) = answer else {
        panic!("the key of an imported transaction is taken, but the result was {answer:?}")
    };
    assert_eq!(
        (existing.submission, existing.outcome),
        (posted.submission, posted.outcome),
        "the imported transaction is the answer"
    );
}

async fn an_account_can_have_more_rows_than_a_batch(case: &Case) {
    let origin = origin();
    let key = origin.opened().await.value.key;
    for _ in 0..3 {
        let group: Vec<Submission> = (0..98).map(|_| origin.deposit(key, 1)).collect();
        origin.inserted(&group).await;
    }
    let rows = rows_of(&origin, key).await;
    let (first, rest) = rows.transactions.split_at(150);
    let parts = [
        AccountRows { transactions: first.to_vec(), pages: rows.pages.clone(), ..AccountRows::of(key) },
        AccountRows { transactions: rest.to_vec(), account: rows.account.clone(), ..AccountRows::of(key) },
    ];
    import(case, &parts[..1]).await;
    assert_eq!(case.store.ledger.account(key).await.unwrap(), None, "its row is not written yet");
    import(case, &parts[1..]).await;
    assert_eq!(content(case, key).await, content(&origin, key).await, "all rows are as they were");
}

/// Rejections because the account does not exist.
async fn rows_without_an_account_are_kept(case: &Case) {
    let origin = origin();
    let key = origin.account_key();
    let new = [origin.deposit(key, 5)];
    let commit = postonce_shared::domain::decision::reject_unknown(
        key,
        origin.new_work(&new),
        (origin.world.nonce(), origin.world.now()),
    );
    let _ = origin.store.ledger.reject_unknown(&commit).await.unwrap();
    let rows = rows_of(&origin, key).await;
    import(case, &[rows]).await;
    assert_eq!(content(case, key).await, content(&origin, key).await, "the rejection is kept");
    assert!(!case.store.archive.is_listed(key).await.unwrap(), "an account without a row is not listed");
}

async fn rows_since_a_time_include_all_that_were_written_later(case: &Case) {
    // The clocks of this process and of the store may differ a little.
    let before = case.world.now().before(Duration::from_secs(60));
    let key = filled(case).await;
    let range = UserRange { from: Some(key.user), to: None };
    let page = async |cursor: Option<String>| {
        case.store.archive.rows_since(before, range, cursor.as_deref(), 5).await.unwrap()
    };
    let rows = to_the_end(5, page).await;
    let mut counts = [0_usize; 4];
    for row in rows.into_iter().flatten().filter(|row| row.account == key) {
        let kind = match row.content {
            RowContent::Account(_) => 0,
            RowContent::DecisionPage(_) => 1,
            RowContent::Page(_) => 2,
            RowContent::Transaction(_) => 3,
        };
        counts[kind] += 1;
    }
    let expected = content(case, key).await;
    let pages = expected.pages.iter().filter(|page| !page.entries.is_empty()).count();
    let all = [1, expected.pages.len() - pages, pages, expected.transactions.len()];
    assert_eq!(counts, all, "every row was written since then");
}
