//! Unreadable rows are reported with their account, and the audit continues after them.

use std::path::Path;

use postonce_shared::oversight::verify::FindingKind::{self, *};
use postonce_shared::store::enqueue;
use postonce_shared::testing::prelude::*;
use rusqlite::Connection;

use super::stores::{TestBank, everything, kinds, small_bank, sound, system, verify};

/// Changes a file of three accounts with a statement, in which `ACCOUNT` is the number of the second
/// account. Asserts that the findings name that account or none.
async fn check(sql: &str, expected: &[FindingKind], text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("postonce.db");
    let store = SqliteStore::open(&path, enqueue(1, Default::default(), seal()), system()).unwrap();
    let keys = small_bank(&TestBank::over(store)).await;
    damage(&path, keys[1], sql);
    let reading = SqliteStore::open_to_read(&path, system()).unwrap();
    let (totals, found) = verify(&reading, everything()).await.unwrap();
    assert_eq!(kinds(&found), expected, "{sql}: {found:#?}");
    let elsewhere = found.iter().find(|finding| finding.account.is_some_and(|account| account != keys[1]));
    assert_eq!(elsewhere, None, "{sql}: the other accounts are sound");
    assert!(found.iter().any(|finding| finding.to_string().contains(text)), "{sql}: no {text} in {found:#?}");
    assert!(totals.accounts >= sound().accounts - 1, "{sql}: the other accounts are read: {totals:?}");
}

fn damage(path: &Path, account: AccountKey, sql: &str) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    let triggers: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    triggers.iter().for_each(|trigger| connection.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap());
    let number: i64 = connection
        .query_row(
            "SELECT id FROM account_names WHERE user_id = ?1 AND account_id = ?2",
            (account.user.as_uuid().into_bytes(), account.account.as_uuid().into_bytes()),
            |row| row.get(0),
        )
        .unwrap();
    let changed = connection.execute(&sql.replace("ACCOUNT", &number.to_string()), []).unwrap();
    assert_eq!(changed, 1, "{sql}");
}

#[tokio::test]
async fn an_unreadable_page_is_reported() {
    let page = "WHERE account = ACCOUNT AND first_sequence = 1";
    check(&format!("UPDATE journal_pages SET entries = '[' {page}"), &[PageUnreadable], "entry 1:").await;
    check(&format!("UPDATE journal_pages SET hash = x'00' {page}"), &[PageUnreadable], "the page from 1")
        .await;
    let wrong_digit = "replace(entries, '\"o\":\"1', '\"o\":\"9')";
    let sql = format!("UPDATE journal_pages SET entries = {wrong_digit} {page}");
    check(&sql, &[PageUnreadable], "order number").await;
}

#[tokio::test]
async fn an_unreadable_account_row_is_reported() {
    check("UPDATE accounts SET currency = 'XXX' WHERE id = ACCOUNT", &[AccountUnreadable], "currency").await;
    check("DELETE FROM accounts WHERE id = ACCOUNT", &[AccountMissing], "4 pages and 6 transactions").await;
}

#[tokio::test]
async fn an_unreadable_transaction_is_reported() {
    let rejected = "WHERE account = ACCOUNT AND status = 'rejected'";
    let sql = format!("UPDATE transactions SET reason = NULL {rejected}");
    let expected = [RejectionsDiffer, TransactionUnreadable];
    check(&sql, &expected, "transaction shop/").await;
    let sql = format!("UPDATE transactions SET amount = -1 {rejected}");
    check(&sql, &expected, "amount").await;
    // A partner that never existed.
    let sql = format!("UPDATE transactions SET partner = 77 {rejected}");
    check(&sql, &expected, "partner number 77/").await;
}

#[tokio::test]
async fn an_account_without_a_name_is_reported() {
    let sql = "DELETE FROM account_names WHERE id = ACCOUNT";
    // Once for each of its tables.
    check(sql, &[NameUnreadable; 4], "there is no such number in account_names").await;
    // Reported once for the list and once for the ledger.
    let sql = "UPDATE account_names SET user_id = x'00' WHERE id = ACCOUNT";
    check(sql, &[NameUnreadable, NameUnreadable], "account_names").await;
}
