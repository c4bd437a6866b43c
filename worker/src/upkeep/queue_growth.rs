//! Listens to additional queues after another process was started with more queues, even if the rings were lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use async_trait::async_trait;
use postonce_process::background_task::BackgroundTask;
use postonce_shared::bank::Bank;
use postonce_shared::batches::messages;
use postonce_shared::messaging::envelope;
use postonce_shared::messaging::queue_count::QueueCount;
use postonce_shared::ports::doorbell::Doorbell;
use postonce_shared::ports::fault::chain;
use tracing::{info, warn};

/// Reads the largest number of queues, and rings new ones, because a listener adds a queue when it is rung.
pub struct QueueGrowth {
    count: QueueCount,
    doorbell: Arc<dyn Doorbell>,
    known: AtomicU16,
}

impl QueueGrowth {
    /// Creates the task of a worker that listens to the configured number of queues.
    pub fn new(bank: &Bank) -> Self {
        let count = QueueCount::new(&bank.store, Arc::clone(&bank.world));
        Self { count, doorbell: Arc::clone(&bank.doorbell), known: AtomicU16::new(bank.queue_count) }
    }
}

#[async_trait]
impl BackgroundTask for QueueGrowth {
    async fn run(&self) {
        let largest = match self.count.largest().await {
            Ok(largest) => largest,
            Err(fault) => {
                warn!("The number of queues is not known: {}", chain(&fault));
                return;
            }
        };
        let known = self.known.fetch_max(largest, Ordering::Relaxed);
        if largest <= known {
            return;
        }
        info!("Listening to {largest} queue(s)");
        let queues = [envelope::queues(largest), messages::post_queues(largest)];
        for queue in queues.iter().flat_map(|queues| queues.iter().skip(known.into())) {
            self.doorbell.ring(queue);
        }
    }
}
