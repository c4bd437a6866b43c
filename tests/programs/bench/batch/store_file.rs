//! The file of a bank on SQLite with open accounts, which is prepared once and copied for each round.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt as _;
use postonce_shared::messaging::envelope::EncodedItem;
use postonce_shared::testing::prelude::*;
use postonce_tests::scenario::fresh_account;
use tempfile::TempDir;

/// Accounts that are opened at the same time, and share commits.
const CONCURRENT: usize = 512;

/// The file, which is removed when this is dropped.
pub struct StoreFile {
    directory: TempDir,
    /// The accounts in the order of their openings.
    pub accounts: Vec<AccountKey>,
}

impl StoreFile {
    /// Opens that many accounts in euro in a new file below a directory, through the store and without HTTP.
    pub async fn with_accounts(count: usize, below: &Path) -> Self {
        let directory = TempDir::with_prefix_in("postonce-accounts-", below).expect("a directory");
        let accounts: Vec<AccountKey> = (0..count).map(|_| fresh_account()).collect();
        let file = Self { directory, accounts };
        eprintln!("batch: {count} accounts are being opened");
        let world = Arc::new(SystemWorld::new());
        let enqueue = Arc::new(|_: &[&EncodedItem]| Vec::new());
        let store =
            SqliteStore::open(&file.path(), enqueue, world.clone()).expect("a new file can be opened");
        let currency = Currency::parse("EUR").expect("a currency");
        futures::stream::iter(&file.accounts)
            .map(|key| Account::open(*key, currency, OverdraftLimit::none(currency), None, world.now()))
            .for_each_concurrent(CONCURRENT, async |account| {
                drop(store.accounts.open(&opening(account)).await.expect("an account can be opened"));
            })
            .await;
        drop(store);
        SqliteStore::checkpoint(&file.path()).expect("the log can be moved into the file");
        file
    }

    /// The path of the file.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("postonce.db")
    }
}
