//! The proxies in front of Azurite refuse what Azure refuses and Azurite accepts, and delay what Azure delays.

use azure_core::auth::Secret;
use azure_core::{RetryOptions, StatusCode};
use azure_data_tables::clients::{TableClient, TableServiceClientBuilder};
use azure_storage::{CloudLocation, StorageCredentials};
use postonce_shared::adapters::azure::AzureConnection;
use postonce_tests::azurite::{Azurite, KEY, Ports};
use postonce_tests::storage_proxy::{Likeness, StorageProxies};
use serde_json::{Value, json};

fn table(ports: Ports) -> TableClient {
    let connection = AzureConnection::parse(&ports.connection_string()).expect("a valid connection string");
    let account = connection.account().to_owned();
    let credentials = StorageCredentials::access_key(account.clone(), Secret::new(KEY));
    let location = CloudLocation::Custom { account, uri: connection.table_endpoint().to_owned() };
    let service = TableServiceClientBuilder::with_location(location, credentials);
    service.retry(RetryOptions::none()).build().table_client("likeness")
}

/// The statuses of the operations of a batch with these partitions.
async fn insert(table: &TableClient, partitions: [&str; 2], row: &str) -> Vec<StatusCode> {
    let mut batch = table.partition_key_client(partitions[0]).transaction();
    for partition in partitions {
        let entity = json!({"PartitionKey": partition, "RowKey": format!("{row}-{partition}")});
        batch = batch.insert::<Value>(entity).expect("an operation of a batch");
    }
    let answer = batch.await.expect("a failed batch is an answer");
    answer.operation_responses.into_iter().map(|response| response.status_code).collect()
}

#[tokio::test]
async fn azurite_accepts_a_batch_of_two_partitions_and_the_proxies_refuse_it() {
    let ports = Azurite::shared().ports();
    let proxies = StorageProxies::before(ports, Likeness::Rules);
    let (emulator, similar) = (table(ports), table(proxies.ports()));
    drop(emulator.create().await.expect("the table is new"));
    assert_eq!(insert(&emulator, ["a", "b"], "1").await, [StatusCode::Created; 2]);
    assert_eq!(proxies.take_refused(), Vec::<String>::new());
    assert_eq!(insert(&similar, ["a", "b"], "2").await, [StatusCode::BadRequest]);
    let refused = proxies.take_refused();
    let [refused] = refused.as_slice() else { panic!("{refused:?}") };
    assert!(refused.contains("CommandsInBatchActOnDifferentPartitions"), "{refused}");
}
