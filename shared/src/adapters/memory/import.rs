//! Imports rows that were exported from another store.

use async_trait::async_trait;

use super::ledger::{TransactionRow, insert_page};
use super::{MemoryStore, Tables};
use crate::domain::account::Versioned;
use crate::domain::ids::Nonce;
use crate::domain::journal::JournalPage;
use crate::ports::fault::StoreFault;
use crate::ports::import::{AccountRows, Import};
use crate::ports::ledger::StoredTransaction;
use crate::ports::world::WorldExt as _;

#[async_trait]
impl Import for MemoryStore {
    async fn import(&self, accounts: &[AccountRows]) -> Result<(), StoreFault> {
        let nonce = self.world.nonce();
        for rows in accounts {
            self.count_row("batch");
            self.step(|tables| import(tables, rows, nonce));
        }
        Ok(())
    }
}

fn import(
    tables: &mut Tables,
    AccountRows { key, pages, transactions, account }: &AccountRows,
    nonce: Nonce,
) {
    pages.iter().for_each(|page| import_page(tables, page));
    transactions.iter().for_each(|stored| import_transaction(tables, stored, nonce));
    if let Some(account) = account {
        let revision = tables.numbers.revision();
        tables.ledger.accounts.insert(*key, Versioned { value: account.clone(), revision });
    }
}

fn import_page(Tables { ledger, .. }: &mut Tables, page: &JournalPage) {
    let stored = if page.entries.is_empty() {
        ledger.decision_pages.get(&(page.account, page.version))
    } else {
        ledger.pages.get(&(page.account, page.first_sequence))
    };
    if stored.is_none() {
        insert_page(ledger, page);
    }
}

fn import_transaction(Tables { ledger, numbers, .. }: &mut Tables, stored: &StoredTransaction, nonce: Nonce) {
    let key = stored.submission.key.clone();
    if ledger.transactions.get(&key).is_none_or(|row| !row.status().is_final()) {
        let stored = StoredTransaction { revision: numbers.revision(), ..stored.clone() };
        ledger.transactions.insert(key, TransactionRow::imported(stored, nonce));
    }
}
