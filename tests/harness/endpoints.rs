//! The storage of a bank as its processes see it: a SQLite file, or Azurite behind proxies.

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
    /// Starts proxies in front of the services at those ports.
    pub fn before(ports: Ports) -> Self {
        let Ports { blob, queue, table } = ports;
        Self { blobs: Proxy::before(blob), queues: Proxy::before(queue), tables: Proxy::before(table) }
    }

    /// The ports of the proxies.
    pub const fn ports(&self) -> Ports {
        Ports { blob: self.blobs.port(), queue: self.queues.port(), table: self.tables.port() }
    }

    /// The number of bytes forwarded so far in both directions.
    pub fn forwarded_bytes(&self) -> u64 {
        [&self.blobs, &self.queues, &self.tables].map(Proxy::forwarded_bytes).into_iter().sum()
    }

    /// Switches all three proxies.
    pub fn switch_all(&self, mode: Mode) {
        self.blobs.switch(mode);
        self.queues.switch(mode);
        self.tables.switch(mode);
    }
}

/// The storage of a bank as settings, and the proxies in front of it.
#[derive(Debug)]
pub struct Endpoints {
    /// The emulator itself.
    pub emulator: String,
    /// The storage as similar to Azure as the plan says.
    pub direct: String,
    /// The same through the proxies that the test can switch.
    pub through: String,
    /// The proxies that make Azurite similar to Azure.
    pub storage_proxies: Option<StorageProxies>,
    /// The proxies that the test can switch, if the plan has them.
    pub proxies: Option<Proxies>,
}

impl Endpoints {
    /// A SQLite file, without proxies.
    pub fn of_sqlite(storage: String) -> Self {
        Self {
            emulator: storage.clone(),
            direct: storage.clone(),
            through: storage,
            storage_proxies: None,
            proxies: None,
        }
    }

    /// Starts the proxies in front of the services at those ports.
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
