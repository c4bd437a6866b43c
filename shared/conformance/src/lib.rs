//! The contract of each port as tests: one function per sentence of the contract, the same for every adapter. A bug
//! that is found in one adapter becomes a case for all.
//!
//! The test file of an adapter calls one `…_contract` per test, on a multi-threaded runtime so that races occur, and
//! passes a function that returns a store. It may return the same store each time, even one that other tests use
//! concurrently: every case creates its own users, queues and names, and reads nothing else. For the same reason
//! nothing is cleaned up.
//!
//! Cases run in real time. They wait for conditions with a deadline, and never assume that something has happened
//! because time has passed. Where the contract leaves a choice to the adapter, the cases accept every choice.
#![expect(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "test code")]

mod accounts;
mod api_keys;
mod archive;
mod case;
mod dead_letters;
mod import;
mod ledger;
mod log;
mod order_number_index;
mod payload_store;
mod process_registry;
mod queue;
mod records;
mod sync_store;

pub use accounts::accounts_contract;
pub use api_keys::api_keys_contract;
pub use archive::archive_contract;
pub use dead_letters::dead_letters_contract;
pub use import::import_contract;
pub use ledger::ledger_contract;
pub use log::log_contract;
pub use order_number_index::order_number_index_contract;
pub use payload_store::payload_store_contract;
pub use process_registry::process_registry_contract;
pub use queue::queue_contract;
pub use records::records_contract;
pub use sync_store::sync_store_contract;

use postonce_shared::ports::Store;

/// Defines a test for the contract of each port, or of those listed: `$store` returns a function that opens the store of
/// the port with that name.
#[macro_export]
macro_rules! contracts {
    ($store:expr) => {
        $crate::contracts! { $store;
            ledger: ledger_contract, accounts: accounts_contract, log: log_contract, archive: archive_contract,
            import: import_contract, queue: queue_contract, sync_store: sync_store_contract,
            dead_letters: dead_letters_contract, payload_store: payload_store_contract, api_keys: api_keys_contract,
            records: records_contract, numbers: order_number_index_contract, roster: process_registry_contract
        }
    };
    ($store:expr; $($port:ident: $contract:ident),*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $port() {
            $crate::$contract($store(stringify!($port))).await;
        }
    )*};
}

/// Tests every port of a store, one after the other.
pub async fn whole_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    ledger_contract(&fresh).await;
    accounts_contract(&fresh).await;
    log_contract(&fresh).await;
    archive_contract(&fresh).await;
    import_contract(&fresh).await;
    queue_contract(&fresh).await;
    sync_store_contract(&fresh).await;
    dead_letters_contract(&fresh).await;
    payload_store_contract(&fresh).await;
    api_keys_contract(&fresh).await;
    records_contract(&fresh).await;
    order_number_index_contract(&fresh).await;
    process_registry_contract(&fresh).await;
}
