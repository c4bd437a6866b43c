//! Records the order numbers of this process's postings after they are committed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::select;
use postonce_shared::bank::Bank;
use postonce_shared::ports::fault::chain;
use postonce_shared::posting::posted_numbers::PostedNumbers;
use tracing::warn;

use crate::background_task::{BackgroundTask, run_every};
use crate::drain::Drain;

/// Interval at which the process checks for numbers to record. A check without any costs no store operation.
const INTERVAL: Duration = Duration::from_secs(1);

struct Recording(Arc<PostedNumbers>);

#[async_trait]
impl BackgroundTask for Recording {
    fn is_due(&self) -> bool {
        self.0.is_due()
    }

    async fn run(&self) {
        if let Err(fault) = self.0.record(false).await {
            warn!("Order numbers are recorded later: {}", chain(&fault));
        }
    }
}

/// Records order numbers until the drain starts, unless the store finds every posting by itself.
pub async fn record(bank: &Bank, drain: &Drain) {
    if !bank.store.order_numbers.contains_every_posting() {
        let recording = Recording(Arc::clone(&bank.posted));
        // The drain does not wait for the store: the remaining numbers are recorded at the end of the process.
        let recording = std::pin::pin!(run_every(&recording, INTERVAL, &*bank.world, drain));
        select(recording, std::pin::pin!(drain.started())).await;
    }
}
