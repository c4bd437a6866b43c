//! The Azure adapter fulfils the contract of every port, on Azurite with the rules of Azure. The tests of the crate `shared` check
//! the other two adapters, which need no server.

use std::sync::Arc;

use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection};
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::ports::Store;
use postonce_tests::azurite::{Azurite, Ports};
use postonce_tests::storage_proxy::{Likeness, StorageProxies};

/// Each contract has its own prefix of names in the shared Azurite.
macro_rules! contracts {
    ($($port:ident: $contract:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $port() {
            let prefix = concat!("c", stringify!($port)).replace('_', "");
            let proxies = StorageProxies::before(Azurite::shared().ports(), Likeness::Rules);
            postonce_conformance::$contract(async || store(proxies.ports(), &prefix).await).await;
        }
    )*};
}

contracts! {
    ledger: ledger_contract,
    accounts: accounts_contract,
    log: log_contract,
    archive: archive_contract,
    import: import_contract,
    queue: queue_contract,
    sync_store: sync_store_contract,
    dead_letters: dead_letters_contract,
    payload_store: payload_store_contract,
    api_keys: api_keys_contract,
    records: records_contract,
    numbers: order_number_index_contract,
    roster: process_registry_contract,
}

async fn store(ports: Ports, prefix: &str) -> Store {
    let connection = ports.connection_string();
    let connection = AzureConnection::parse(&connection).expect("Azurite's connection string is valid");
    let config = AzureConfig::new(connection, prefix.to_owned());
    azure::open(&config, Arc::new(SystemWorld::new())).await.expect("opening makes no request")
}
