//! Renewal of leases during an operation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{Either, join, join_all, select};
use postonce_process::meter::Meter;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::queue::{Held, QueueName, WorkQueue};
use postonce_shared::ports::world::World;
use tokio::sync::Notify;
use tracing::warn;

use crate::listening::delivery::Delivery;

/// Renews the leases of messages of one queue.
pub struct Renewal<'a> {
    /// The store of the queue.
    pub queue: &'a dyn WorkQueue,
    /// Name of the queue.
    pub name: &'a QueueName,
    /// The clock.
    pub world: &'a dyn World,
    /// Counts lost leases.
    pub meter: &'a Meter,
    /// New duration of a lease.
    pub visibility: Duration,
}

impl Renewal<'_> {
    /// Runs an operation, and renews the leases of the messages whenever half of their duration has passed.
    pub async fn during<W, T>(&self, held: &[&Delivery<W>], work: impl Future<Output = T>) -> T {
        let (notify, ended) = (Notify::new(), AtomicBool::new(false));
        let work = async {
            let result = work.await;
            ended.store(true, Ordering::Relaxed);
            notify.notify_one();
            result
        };
        // Joined, not cancelled: a renewal in progress must complete, so that its new receipt is known.
        join(work, self.keep(held, &notify, &ended)).await.0
    }

    async fn keep<W>(&self, held: &[&Delivery<W>], done: &Notify, ended: &AtomicBool) {
        let half = self.visibility.checked_div(2).unwrap_or_default();
        loop {
            let wait = self.world.sleep(half);
            match select(std::pin::pin!(done.notified()), wait).await {
                Either::Left(_) => return,
                Either::Right(_) if ended.load(Ordering::Relaxed) => return,
                Either::Right(_) => {}
            }
            let renewals: Vec<_> = held.iter().map(|delivery| self.renew(delivery)).collect();
            join_all(renewals).await;
        }
    }

    async fn renew<W>(&self, delivery: &Delivery<W>) {
        match delivery.renew(self.queue, self.name, self.visibility).await {
            Ok(Held::Ours(())) => {}
            Ok(Held::Lost) => self.meter.leases_lost.add(1),
            Err(fault) => warn!(queue = %self.name, "Could not renew a lease: {}", chain(&fault)),
        }
    }
}
