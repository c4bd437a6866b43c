//! One question to all processes at once, or to all workers.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use reqwest::Method;
use tokio::sync::oneshot;

use super::client::{Call, CallFault, PeerClient};
use crate::ports::fault::StoreFault;
use crate::ports::process_registry::{
    ProcessId, ProcessKind, ProcessRegistry, RegisteredProcess, live_processes,
};
use crate::ports::world::World;

/// What every process is asked.
#[derive(Debug, Clone)]
pub struct Question {
    method: Method,
    path: String,
    body: Vec<u8>,
    workers_only: bool,
}

impl Question {
    /// Asks how something is.
    pub fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.to_owned(), body: Vec::new(), workers_only: false }
    }

    /// Tells something, and asks what became of it.
    pub fn put(path: &str, body: Vec<u8>) -> Self {
        Self { method: Method::PUT, path: path.to_owned(), body, workers_only: false }
    }

    /// The same question to those only who listen to the work queues.
    #[must_use]
    pub fn of_workers(self) -> Self {
        Self { workers_only: true, ..self }
    }
}

/// Asks all processes.
pub struct PeerBroadcast {
    own: ProcessId,
    roster: Arc<dyn ProcessRegistry>,
    client: Arc<PeerClient>,
    world: Arc<dyn World>,
}

impl PeerBroadcast {
    pub(super) fn new(
        own: ProcessId,
        roster: &Arc<dyn ProcessRegistry>,
        client: &Arc<PeerClient>,
        world: &Arc<dyn World>,
    ) -> Self {
        Self { own, roster: Arc::clone(roster), client: Arc::clone(client), world: Arc::clone(world) }
    }

    /// Asks every process but this one, all at once, each for at most `timeout`. The answers
    /// are the bodies, by the id of the process. Reads the roster anew: one operation of the store.
    ///
    /// # Errors
    /// [`StoreFault`] when the roster cannot be read. That a process did not answer stands in its place.
    pub async fn ask(
        &self,
        question: &Question,
        timeout: Duration,
    ) -> Result<Vec<(RegisteredProcess, Result<Vec<u8>, CallFault>)>, StoreFault> {
        let entries = live_processes(&*self.roster, self.world.now()).await?;
        let is_asked = |kind| !question.workers_only || kind == ProcessKind::Worker;
        let others = entries.into_iter().filter(|entry| entry.id != self.own && is_asked(entry.kind));
        let asked = others.map(|entry| self.ask_one(entry, question, timeout));
        Ok(join_all(asked.collect::<Vec<_>>()).await)
    }

    async fn ask_one(
        &self,
        entry: RegisteredProcess,
        question: &Question,
        timeout: Duration,
    ) -> (RegisteredProcess, Result<Vec<u8>, CallFault>) {
        let Question { method, path, body, workers_only: _ } = question.clone();
        let (client, address) = (Arc::clone(&self.client), entry.address.clone());
        let (tell, answer) = oneshot::channel();
        // In a task of the world: the pool of connections outlives the thread of a request.
        self.world.spawn(
            async move {
                let answer = client.call(&address, Call { method, path, body }, timeout).await;
                // Whoever asked may have gone away.
                drop(tell.send(answer));
            }
            .boxed(),
        );
        (entry, answer.await.unwrap_or(Err(CallFault::Late)))
    }
}
