//! The embedded store fulfills the contract of every port.

use std::path::Path;
use std::sync::Arc;

use postonce_shared::adapters::sqlite::SqliteStore;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::ports::Store;
use postonce_shared::store::enqueue;
use postonce_shared::testing::sealed::seal;
use tempfile::TempDir;

/// A folder that is removed after its test. The cases of one test share it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder can be created"))
    }

    fn open(&self) -> Store {
        open(&self.0.path().join("postonce.db"))
    }
}

fn open(path: &Path) -> Store {
    SqliteStore::open(path, enqueue(1, Arc::default(), seal()), Arc::new(SystemWorld::new()))
        .expect("the file can be opened")
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger() {
    let folder = Folder::new();
    postonce_conformance::ledger_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts() {
    let folder = Folder::new();
    postonce_conformance::accounts_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn log() {
    let folder = Folder::new();
    postonce_conformance::log_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_number_index() {
    let folder = Folder::new();
    postonce_conformance::order_number_index_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn archive() {
    let folder = Folder::new();
    postonce_conformance::archive_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn import() {
    let folder = Folder::new();
    postonce_conformance::import_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queue() {
    let folder = Folder::new();
    postonce_conformance::queue_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_store() {
    let folder = Folder::new();
    postonce_conformance::sync_store_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters() {
    let folder = Folder::new();
    postonce_conformance::dead_letters_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_store() {
    let folder = Folder::new();
    postonce_conformance::payload_store_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn api_keys() {
    let folder = Folder::new();
    postonce_conformance::api_keys_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records() {
    let folder = Folder::new();
    postonce_conformance::records_contract(async || folder.open()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn process_registry() {
    let folder = Folder::new();
    postonce_conformance::process_registry_contract(async || folder.open()).await;
}
