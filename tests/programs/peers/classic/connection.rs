//! The endpoints and the key of the storage account, from a connection string with explicit endpoints.

use std::collections::HashMap;

use anyhow::{Context as _, ensure};

/// The parts of a connection string that the design needs.
pub struct Connection {
    /// The name of the account.
    pub account: String,
    /// Its key.
    pub key: String,
    /// The endpoint of the queues.
    pub queue_endpoint: String,
    /// The endpoint of the tables.
    pub table_endpoint: String,
}

impl Connection {
    /// Reads `AccountName=…;AccountKey=…;QueueEndpoint=…;TableEndpoint=…`, in any order.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        // The first `=` only: keys end in `=`.
        let settings: HashMap<_, _> = text.split(';').filter_map(|part| part.split_once('=')).collect();
        let setting = |name: &str| {
            let value = settings.get(name).copied();
            value.map(str::to_owned).with_context(|| format!("the connection string has no {name}"))
        };
        let connection = Self {
            account: setting("AccountName")?,
            key: setting("AccountKey")?,
            queue_endpoint: setting("QueueEndpoint")?,
            table_endpoint: setting("TableEndpoint")?,
        };
        let endpoints = [&connection.queue_endpoint, &connection.table_endpoint];
        ensure!(
            endpoints.iter().all(|endpoint| endpoint.starts_with("http://")),
            "the peer supports only Azurite on this machine, over plain HTTP"
        );
        Ok(connection)
    }
}
