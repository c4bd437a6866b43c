//! Rings the workers for ingest queues.

use std::sync::Arc;

use postonce_shared::bank::Bank;
use postonce_shared::config::IngestQueue;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::ports::doorbell::Doorbell;

/// The ingest queues of the bank, and the doorbell that wakes a worker for one of them.
pub struct IngestBells {
    queues: Vec<IngestQueue>,
    doorbell: Arc<dyn Doorbell>,
}

impl IngestBells {
    /// Creates the bells of these queues.
    pub fn new(bank: &Bank, queues: Vec<IngestQueue>) -> Self {
        Self { queues, doorbell: Arc::clone(&bank.doorbell) }
    }

    /// Makes a worker poll the queue at once. Returns false if there is none with this name, or it is that of another partner than
    /// `only_of`. A lost ring delays the poll.
    pub fn ring(&self, name: &str, only_of: Option<&PartnerId>) -> bool {
        let mut queues = self.queues.iter();
        let found = queues.find(|queue| queue.name == name && only_of.is_none_or(|it| *it == queue.partner));
        found.inspect(|queue| self.doorbell.ring(&queue.queue)).is_some()
    }
}
