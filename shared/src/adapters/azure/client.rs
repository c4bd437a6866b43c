//! The clients of the three services, which share a connection pool, and the names of the tables, queues and containers
//! of a store. This module sends no requests.

use std::sync::Arc;

use azure_core::{HttpClient, RetryOptions, TransportOptions};
use azure_data_tables::clients::{TableServiceClient, TableServiceClientBuilder};
use azure_storage::CloudLocation;
use azure_storage_blobs::prelude::{ClientBuilder, ContainerClient};
use azure_storage_queues::{QueueClient, QueueServiceClient, QueueServiceClientBuilder};

use super::connection::AzureConnection;
use super::identity::Credentials;
use super::table::Table;
use super::transport::{ObservedTransport, Observer, RequestLimits};
use super::wire::Wire;
use crate::ports::fault::StoreFault;
use crate::ports::operations::Service;
use crate::ports::queue::QueueName;

/// Maximum length of the prefix. The longest name with this prefix must not exceed the 63 characters that every service allows.
const PREFIX_CHARS_MAX: usize = 24;

/// The prefix cannot begin the names of tables, queues and containers.
#[derive(Debug, thiserror::Error)]
#[error(
    "the prefix must be a lower-case letter and then lower-case letters and digits, at most {PREFIX_CHARS_MAX}"
)]
struct InvalidPrefix;

/// The clients of one store. They are built once.
pub(super) struct Clients {
    tables: TableServiceClient,
    pub(super) queues: Queues,
    pub(super) payloads: ContainerClient,
    prefix: String,
}

/// The clients for the queues of one store.
#[derive(Clone)]
pub(super) struct Queues {
    service: QueueServiceClient,
    prefix: String,
}

impl Queues {
    pub(super) fn client(&self, queue: &QueueName) -> QueueClient {
        let own = || format!("{}-{queue}", self.prefix);
        self.service.queue_client(queue.ingest().map_or_else(own, str::to_owned))
    }
}

impl Clients {
    pub(super) fn new(
        connection: &AzureConnection,
        credentials: &Credentials,
        prefix: &str,
        observer: &Observer,
        wire: &Arc<dyn Wire>,
    ) -> Result<Self, StoreFault> {
        check(prefix)?;
        let location = |endpoint: &str| CloudLocation::Custom {
            account: connection.account().to_owned(),
            uri: endpoint.to_owned(),
        };
        let limits = Arc::new(RequestLimits::new());
        let transport = |service| {
            let (wire, limits, observer) = (Arc::clone(wire), Arc::clone(&limits), observer.clone());
            let credentials = credentials.clone();
            let transport: Arc<dyn HttpClient> =
                Arc::new(ObservedTransport { wire, limits, service, observer, credentials });
            TransportOptions::new(transport)
        };
        // The adapters retry, because they know the nonces.
        let tables = TableServiceClientBuilder::with_location(
            location(connection.table_endpoint()),
            credentials.storage.clone(),
        )
        .retry(RetryOptions::none())
        .transport(transport(Service::Table))
        .build();
        let queues = QueueServiceClientBuilder::with_location(
            location(connection.queue_endpoint()),
            credentials.storage.clone(),
        )
        .retry(RetryOptions::none())
        .transport(transport(Service::Queue))
        .build();
        let payloads =
            ClientBuilder::with_location(location(connection.blob_endpoint()), credentials.storage.clone())
                .retry(RetryOptions::none())
                .transport(transport(Service::Blob))
                .container_client(format!("{prefix}-payloads"));
        let queues = Queues { service: queues, prefix: prefix.to_owned() };
        Ok(Self { tables, queues, payloads, prefix: prefix.to_owned() })
    }

    /// Returns a table of the store. `noun` must consist of lower-case letters.
    pub(super) fn table(&self, noun: &str) -> Table {
        Table::new(self.tables.table_client(format!("{}{noun}", self.prefix)))
    }
}

fn check(prefix: &str) -> Result<(), StoreFault> {
    let is_valid = prefix.starts_with(|first: char| first.is_ascii_lowercase())
        && prefix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && prefix.len() <= PREFIX_CHARS_MAX;
    if is_valid {
        return Ok(());
    }
    Err(StoreFault::Refused { doing: "naming tables and queues", source: Box::new(InvalidPrefix) })
}
