//! The reference adapter keeps the contract of every port.

use std::sync::Arc;

use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::conformance;
use postonce_shared::ports::Store;

async fn fresh() -> Store {
    MemoryStore::new(Arc::new(SystemWorld::new()))
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger() {
    conformance::ledger_contract(fresh).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts() {
    conformance::accounts_contract(fresh).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn log() {
    conformance::log_contract(fresh).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queue() {
    conformance::queue_contract(fresh).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_store() {
    conformance::sync_store_contract(fresh).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters() {
    conformance::dead_letters_contract(fresh).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_store() {
    conformance::payload_store_contract(fresh).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn api_keys() {
    conformance::api_keys_contract(fresh).await;
}

/// As an adapter of a slow store would call it: one store for all cases, seen by two processes.
#[tokio::test(flavor = "multi_thread")]
async fn one_store_for_all_cases() {
    let store = MemoryStore::empty(Arc::new(SystemWorld::new()));
    conformance::whole_contract(async || store.ports()).await;
}
