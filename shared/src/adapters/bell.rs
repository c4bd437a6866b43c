//! A doorbell within one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{Either, select};
use tokio::sync::Notify;

use crate::ports::doorbell::Doorbell;
use crate::ports::queue::QueueName;
use crate::ports::world::World;

/// Wakes the listeners of the same process.
pub struct LocalBell {
    world: Arc<dyn World>,
    bells: Mutex<BTreeMap<QueueName, Arc<Notify>>>,
}

impl LocalBell {
    /// A bell that nobody rang yet.
    pub fn new(world: Arc<dyn World>) -> Self {
        Self { world, bells: Mutex::default() }
    }

    fn bell(&self, queue: &QueueName) -> Arc<Notify> {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(bells.entry(queue.clone()).or_default())
    }
}

#[async_trait]
impl Doorbell for LocalBell {
    fn ring(&self, queue: &QueueName) {
        // A ring that nobody hears yet is kept, once.
        self.bell(queue).notify_one();
    }

    async fn listen(&self, queue: &QueueName, patience: Duration) {
        let bell = self.bell(queue);
        let rung = std::pin::pin!(bell.notified());
        let waited = self.world.sleep(patience);
        match select(rung, waited).await {
            Either::Left(_) | Either::Right(_) => {}
        }
    }
}
