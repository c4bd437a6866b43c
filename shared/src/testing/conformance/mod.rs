//! The contract of each port as tests: one function per sentence of the contract, the same for every
//! adapter. A bug that is found in one adapter becomes a case for all.
//!
//! An adapter's test file calls one `…_contract` per test, on a multi-threaded runtime so that races
//! are real, and passes a function that gives a store. It may give the same store each time, even one
//! that other tests use at once: every case invents its own users, queues and names, and looks at
//! nothing else. For the same reason nothing is cleaned up.
//!
//! Cases run in the real world. Whatever takes time is awaited with a deadline; nothing is assumed to
//! have happened because time has passed. Where a port leaves an adapter a choice, so do the cases.
#![expect(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "test code")]

mod accounts;
mod api_keys;
mod archive;
mod case;
mod dead_letters;
mod ledger;
mod log;
mod partners;
mod payload_store;
mod process_registry;
mod queue;
pub mod sealed;
mod sync_store;

pub use accounts::accounts_contract;
pub use api_keys::api_keys_contract;
pub use archive::archive_contract;
pub use dead_letters::dead_letters_contract;
pub use ledger::ledger_contract;
pub use log::log_contract;
pub use partners::partners_contract;
pub use payload_store::payload_store_contract;
pub use process_registry::roster_contract;
pub use queue::queue_contract;
pub use sync_store::sync_store_contract;

use crate::ports::Store;

/// Checks every port of a store, one after the other.
pub async fn whole_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    ledger_contract(&fresh).await;
    accounts_contract(&fresh).await;
    log_contract(&fresh).await;
    archive_contract(&fresh).await;
    queue_contract(&fresh).await;
    sync_store_contract(&fresh).await;
    dead_letters_contract(&fresh).await;
    payload_store_contract(&fresh).await;
    api_keys_contract(&fresh).await;
    partners_contract(&fresh).await;
    roster_contract(&fresh).await;
}
