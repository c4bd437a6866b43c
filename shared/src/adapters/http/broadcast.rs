//! Sends one request to all processes concurrently.

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

/// A request for [`PeerBroadcast`].
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

/// Sends requests to all registered processes.
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

    /// Reads the process registry (one storage operation) and sends the request concurrently to every process except
    /// this one. Waits at most `timeout` for each response. Returns the body of each response.
    ///
    /// # Errors
    /// [`StoreFault`] when the process registry cannot be read. A failed request is reported in the result of its process.
    pub async fn send(
        &self,
        request: &BroadcastRequest,
        timeout: Duration,
    ) -> Result<Vec<(RegisteredProcess, Result<Vec<u8>, CallFault>)>, StoreFault> {
        Ok(self.send_to(self.processes().await?, request, timeout).await)
    }

    /// Reads the process registry (one storage operation) and returns the live processes, including this one.
    ///
    /// # Errors
    /// [`StoreFault`] when the process registry cannot be read.
    pub async fn processes(&self) -> Result<Vec<RegisteredProcess>, StoreFault> {
        live_processes(&*self.registry, self.world.now()).await
    }

    /// Like [`Self::send`], but sends to the given processes, except this one, and does not access the store.
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
        // The request runs as a task of the world, because a pooled connection can outlive the thread of an HTTP request.
        self.world.spawn(
            async move {
                let answer = client.call(&address, Call { recipient, method, path, body }, timeout).await;
                // Sending fails if the receiver was dropped.
                drop(sender.send(answer));
            }
            .boxed(),
        );
        (entry, answer.await.unwrap_or(Err(CallFault::Late)))
    }
}
