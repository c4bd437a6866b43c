//! The Azure adapter fulfils the contract of every port, on Azurite with the rules of Azure. The tests of the crate `shared` check
//! the other two adapters, which need no server.

use std::sync::Arc;

use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection};
use postonce_shared::testing::prelude::*;
use postonce_tests::azurite::{Azurite, Ports};
use postonce_tests::storage_proxy::{Likeness, StorageProxies};

/// Each contract has its own prefix of names in the shared Azurite.
fn stores(port: &str) -> impl AsyncFn() -> Store {
    let prefix = format!("c{port}").replace('_', "");
    let proxies = StorageProxies::before(Azurite::shared().ports(), Likeness::Rules);
    async move || store(proxies.ports(), &prefix).await
}

postonce_conformance::contracts!(stores);

async fn store(ports: Ports, prefix: &str) -> Store {
    let connection = ports.connection_string();
    let connection = AzureConnection::parse(&connection).expect("Azurite's connection string is valid");
    let config = AzureConfig::new(connection, prefix.to_owned());
    azure::open(&config, Arc::new(SystemWorld::new())).await.expect("opening makes no request")
}
