//! Changes the content of a store without the code of the bank: the SQLite file through Python, the tables of Azurite through
//! the REST API. An audit must find such changes.

use std::path::PathBuf;
use std::process::Command;

use postonce_shared::adapters::page_body;
use postonce_shared::testing::prelude::*;
use serde_json::{Value, json};

use crate::tables::AzuriteTables;

/// Runs statements on a file, after dropping the triggers that would refuse them.
const SQLITE_SCRIPT: &str = r#"
import json, sqlite3, sys
path, statements = sys.argv[1], json.loads(sys.argv[2])
connection = sqlite3.connect(path, timeout=30, isolation_level=None)
blob = lambda value: bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
connection.execute("BEGIN IMMEDIATE")
names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")]
for name in names:
    connection.execute(f"DROP TRIGGER {name}")
for sql, parameters in statements:
    changed = connection.execute(sql, [blob(value) for value in parameters]).rowcount
    assert changed == 1, f"{changed} rows were changed by {sql}"
connection.execute("COMMIT")
"#;

const ACCOUNT_NUMBER: &str = "(SELECT id FROM account_names WHERE user_id = ? AND account_id = ?)";
const OF_TRANSACTION: &str = "account = (SELECT id FROM account_names WHERE user_id = ? AND account_id = ?) \
     AND partner = (SELECT id FROM partners WHERE name = ?) AND message = ?";

/// Access to the store of one bank.
#[derive(Debug)]
pub enum Tamper {
    /// A SQLite file.
    Sqlite {
        /// The path of the file.
        path: PathBuf,
    },
    /// The tables of Azurite.
    Azurite {
        /// The table service.
        tables: AzuriteTables,
        /// The name of the ledger table.
        table: String,
    },
}

impl Tamper {
    /// Creates access to the store in a `POSTONCE_STORAGE` setting.
    pub fn with(storage: &str, prefix: &str) -> Self {
        if let Some(path) = storage.strip_prefix("sqlite:") {
            return Self::Sqlite { path: PathBuf::from(path) };
        }
        Self::Azurite { tables: AzuriteTables::of(storage), table: format!("{prefix}ledger") }
    }

    /// Overwrites a page in place.
    pub async fn write_page(&self, page: &JournalPage) {
        if page.entries.is_empty() {
            return self.write_decision_page(page).await;
        }
        let entries = page_body::encode(page);
        let sql = format!(
            "UPDATE journal_pages SET entries = ?, previous_hash = ?, hash = ? \
             WHERE account = {ACCOUNT_NUMBER} AND first_sequence = ?"
        );
        let [user, account] = blobs(page.account);
        let (previous, hash) = (page.previous_hash.to_string(), page.hash.to_string());
        let parameters =
            json!([entries, {"hex": previous}, {"hex": hash}, user, account, page.first_sequence]);
        let row = format!("jrnl-{:020}", page.first_sequence);
        let properties = json!({
            "Body0": entries, "BodyParts": "1", "BodyForm": "text", "Entries": page.entries.len().to_string(),
            "PreviousHash": page.previous_hash.to_string(), "Hash": page.hash.to_string(),
        });
        self.change(&sql, &parameters, page.account, &row, Some(properties)).await;
    }

    async fn write_decision_page(&self, page: &JournalPage) {
        let (content, version) = (page_body::encode(page), page.version);
        let sql = format!(
            "UPDATE decision_pages SET content = ?, previous_hash = ?, hash = ? \
             WHERE account = {ACCOUNT_NUMBER} AND version = ?"
        );
        let [user, account] = blobs(page.account);
        let (previous, hash) = (page.previous_hash.to_string(), page.hash.to_string());
        let parameters = json!([content, {"hex": previous}, {"hex": hash}, user, account, version]);
        let row = format!("dcsn-{version:020}");
        let properties = json!({
            "Body0": content, "BodyParts": "1", "BodyForm": "text",
            "PreviousHash": previous, "Hash": hash,
        });
        self.change(&sql, &parameters, page.account, &row, Some(properties)).await;
    }

    /// Makes the entries of a page unreadable.
    pub async fn garble_page(&self, key: AccountKey, first_sequence: u64) {
        let sql = format!(
            "UPDATE journal_pages SET entries = '[{{' WHERE account = {ACCOUNT_NUMBER} AND first_sequence = ?"
        );
        let [user, account] = blobs(key);
        let row = format!("jrnl-{first_sequence:020}");
        let properties = json!({"Body0": "[{"});
        self.change(&sql, &json!([user, account, first_sequence]), key, &row, Some(properties)).await;
    }

    /// Removes a page.
    pub async fn remove_page(&self, key: AccountKey, first_sequence: u64) {
        let sql =
            format!("DELETE FROM journal_pages WHERE account = {ACCOUNT_NUMBER} AND first_sequence = ?");
        let [user, account] = blobs(key);
        let row = format!("jrnl-{first_sequence:020}");
        self.change(&sql, &json!([user, account, first_sequence]), key, &row, None).await;
    }

    /// Overwrites the balance and the head of an account.
    pub async fn write_account(&self, account: &Account) {
        let sql = format!("UPDATE accounts SET balance = ?, head = ? WHERE id = {ACCOUNT_NUMBER}");
        let (balance, head) = (account.balance.minor_units(), account.head.to_string());
        let [user, id] = blobs(account.key);
        let parameters = json!([balance, {"hex": head}, user, id]);
        let properties = json!({"Balance": balance.to_string(), "Head": account.head.to_string()});
        self.change(&sql, &parameters, account.key, "account", Some(properties)).await;
    }

    /// Changes the status of a transaction to rejected.
    pub async fn reject(&self, key: &TransactionKey) {
        let sql = format!(
            "UPDATE transactions SET status = 'rejected', reason = 'insufficient_funds' WHERE {OF_TRANSACTION}"
        );
        let properties = json!({"Status": "rejected", "Reason": "insufficient_funds"});
        self.change_transaction(&sql, Vec::new(), key, Some(properties)).await;
    }

    /// Changes the order number of a transaction.
    pub async fn number(&self, key: &TransactionKey, number: OrderNumber) {
        let sql = format!("UPDATE transactions SET order_number = ? WHERE {OF_TRANSACTION}");
        let properties = json!({"OrderNumber": number.to_string()});
        self.change_transaction(&sql, vec![json!(number.counter())], key, Some(properties)).await;
    }

    /// Removes a transaction.
    pub async fn remove_transaction(&self, key: &TransactionKey) {
        let sql = format!("DELETE FROM transactions WHERE {OF_TRANSACTION}");
        self.change_transaction(&sql, Vec::new(), key, None).await;
    }

    async fn change_transaction(
        &self,
        sql: &str,
        mut parameters: Vec<Value>,
        key: &TransactionKey,
        properties: Option<Value>,
    ) {
        parameters.extend(blobs(key.account));
        parameters.extend([json!(key.partner.as_str()), json!({"hex": key.message.simple()})]);
        let row = format!("tx-{}-{}", key.partner, key.message.simple());
        self.change(sql, &Value::from(parameters), key.account, &row, properties).await;
    }

    /// Changes one row, or removes it if there are no properties.
    async fn change(
        &self,
        sql: &str,
        parameters: &Value,
        key: AccountKey,
        row: &str,
        properties: Option<Value>,
    ) {
        match self {
            Self::Sqlite { path } => {
                let statements = json!([[sql, parameters]]).to_string();
                let python =
                    Command::new("python3").args(["-c", SQLITE_SCRIPT]).arg(path).arg(statements).output();
                let python = python.expect("Python 3 can be started");
                assert!(python.status.success(), "{sql}: {}", String::from_utf8_lossy(&python.stderr));
            }
            Self::Azurite { tables, table } => {
                let partition = format!("{}-{}", key.user.simple(), key.account.simple());
                tables.change(table, &partition, row, properties.as_ref()).await;
            }
        }
    }
}

/// Returns the user and the account as parameters of a statement.
fn blobs(key: AccountKey) -> [Value; 2] {
    [json!({"hex": key.user.simple()}), json!({"hex": key.account.simple()})]
}
