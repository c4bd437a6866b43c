//! One request to all processes at once.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use reqwest::Method;
use tokio::sync::oneshot;

use super::client::{Call, CallFault, PeerClient};
use crate::ports::fault::StoreFault;
use crate::ports::process_registry::{ProcessId, ProcessRegistry, RegisteredProcess, live_processes};
use crate::ports::world::World;

/// A request that is sent to every process.
#[derive(Debug, Clone)]
pub struct BroadcastRequest {
    method: Method,
    path: String,
    body: Vec<u8>,
}

impl BroadcastRequest {
    /// Creates a GET request.
    pub fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.to_owned(), body: Vec::new() }
    }

    /// Creates a PUT request.
    pub fn put(path: &str, body: Vec<u8>) -> Self {
        Self { method: Method::PUT, path: path.to_owned(), body }
    }
}

/// Sends requests to all processes.
pub struct PeerBroadcast {
    own: ProcessId,
    registry: Arc<dyn ProcessRegistry>,
    client: Arc<PeerClient>,
    world: Arc<dyn World>,
}

impl PeerBroadcast {
    pub(super) fn new(
        own: ProcessId,
        registry: &Arc<dyn ProcessRegistry>,
        client: &Arc<PeerClient>,
        world: &Arc<dyn World>,
    ) -> Self {
        Self { own, registry: Arc::clone(registry), client: Arc::clone(client), world: Arc::clone(world) }
    }

    /// Sends the request concurrently to every process except this one, and waits at most `timeout` for each
    /// response. Returns the bodies of the responses. Reads the process registry again: one storage operation.
    ///
    /// # Errors
    /// [`StoreFault`] when the process registry cannot be read. A failed request is in the result of its process.
    pub async fn send(
        &self,
        request: &BroadcastRequest,
        timeout: Duration,
    ) -> Result<Vec<(RegisteredProcess, Result<Vec<u8>, CallFault>)>, StoreFault> {
        Ok(self.send_to(self.processes().await?, request, timeout).await)
    }

    /// Returns the live processes, this one included, for [`Self::send_to`]. Reads the process registry: one storage operation.
    ///
    /// # Errors
    /// [`StoreFault`] when the process registry cannot be read.
    pub async fn processes(&self) -> Result<Vec<RegisteredProcess>, StoreFault> {
        live_processes(&*self.registry, self.world.now()).await
    }

    /// As [`Self::send`], to those of the given processes that are not this one. Does not access the store.
    pub async fn send_to(
        &self,
        processes: impl IntoIterator<Item = RegisteredProcess>,
        request: &BroadcastRequest,
        timeout: Duration,
    ) -> Vec<(RegisteredProcess, Result<Vec<u8>, CallFault>)> {
        let others = processes.into_iter().filter(|entry| entry.id != self.own);
        let sent = others.map(|entry| self.send_one(entry, request, timeout));
        join_all(sent.collect::<Vec<_>>()).await
    }

    async fn send_one(
        &self,
        entry: RegisteredProcess,
        request: &BroadcastRequest,
        timeout: Duration,
    ) -> (RegisteredProcess, Result<Vec<u8>, CallFault>) {
        let BroadcastRequest { method, path, body } = request.clone();
        let (client, address, recipient) = (Arc::clone(&self.client), entry.address.clone(), Some(entry.id));
        let (sender, answer) = oneshot::channel();
        // In a task of the world: the connection pool outlives the thread of an HTTP request.
        self.world.spawn(
            async move {
                let answer = client.call(&address, Call { recipient, method, path, body }, timeout).await;
                // The receiver may have been dropped.
                drop(sender.send(answer));
            }
            .boxed(),
        );
        (entry, answer.await.unwrap_or(Err(CallFault::Late)))
    }
}
