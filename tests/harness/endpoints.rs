//! The storage of a bank as its processes access it: a SQLite file, or Azurite behind proxies.

use crate::azurite::Ports;
use crate::proxy::{Mode, Proxy};
use crate::storage_proxy::{Likeness, StorageProxies};

/// Proxies in front of the services of Azurite.
#[derive(Debug)]
pub struct Proxies {
    /// The proxy of the blob service.
    pub blobs: Proxy,
    /// The proxy of the queue service.
    pub queues: Proxy,
    /// The proxy of the table service.
    pub tables: Proxy,
}

impl Proxies {
    /// Starts proxies in front of the services at these ports.
    pub fn before(ports: Ports) -> Self {
        let Ports { blob, queue, table } = ports;
        Self { blobs: Proxy::before(blob), queues: Proxy::before(queue), tables: Proxy::before(table) }
    }

    /// Returns the ports of the proxies.
    pub const fn ports(&self) -> Ports {
        Ports { blob: self.blobs.port(), queue: self.queues.port(), table: self.tables.port() }
    }

    /// Returns the number of bytes forwarded so far in both directions.
    pub fn forwarded_bytes(&self) -> u64 {
        [&self.blobs, &self.queues, &self.tables].map(Proxy::forwarded_bytes).into_iter().sum()
    }

    /// Sets the mode of all three proxies.
    pub fn switch_all(&self, mode: Mode) {
        self.blobs.switch(mode);
        self.queues.switch(mode);
        self.tables.switch(mode);
    }
}

/// Storage settings of a bank, and the proxies in front of the storage.
#[derive(Debug)]
pub struct Endpoints {
    /// The setting for Azurite without proxies.
    pub emulator: String,
    /// The setting for the storage with the likeness to Azure that the plan asks for.
    pub direct: String,
    /// The setting for the same storage through the proxies that the test controls.
    pub through: String,
    /// Proxies that make Azurite more similar to Azure.
    pub storage_proxies: Option<StorageProxies>,
    /// Proxies that the test controls, if the plan has them.
    pub proxies: Option<Proxies>,
}

impl Endpoints {
    /// Returns the endpoints of a SQLite file, without proxies.
    pub fn of_sqlite(storage: String) -> Self {
        Self {
            emulator: storage.clone(),
            direct: storage.clone(),
            through: storage,
            storage_proxies: None,
            proxies: None,
        }
    }

    /// Starts the proxies in front of the services at these ports.
    pub fn of_azurite(ports: Ports, likeness: Likeness, with_proxies: bool) -> Self {
        let storage = |ports: Ports| format!("azure:{}", ports.connection_string());
        let storage_proxies = StorageProxies::before(ports, likeness);
        let similar = storage_proxies.ports();
        let proxies = with_proxies.then(|| Proxies::before(similar));
        let through = proxies.as_ref().map_or(similar, Proxies::ports);
        Self {
            emulator: storage(ports),
            direct: storage(similar),
            through: storage(through),
            storage_proxies: Some(storage_proxies),
            proxies,
        }
    }
}
