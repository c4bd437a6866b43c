//! Accepts the orders that direct producers put on ingest queues. Each queue has a partner, for which its orders are accepted as
//! over HTTP. A message is deleted only after each of its orders is stored and sent to a work queue, or is a dead letter.
//! Everything before can be repeated, so a message that is delivered again changes nothing.
//!
//! As over HTTP, orders are accepted while the gate is held.

pub mod direct_orders;
pub mod intake;
mod poller;

use std::pin::pin;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{join_all, select};
use postonce_process::drain::Drain;
use postonce_process::meter::Meter;
use postonce_shared::bank::Bank;
use postonce_shared::ports::doorbell::Doorbell;
use postonce_shared::ports::queue::{INGEST, QueueName};
use postonce_shared::ports::world::{World, WorldExt as _};

use crate::config::WorkerConfig;
use crate::ingest::direct_orders::DirectOrders;
use crate::ingest::intake::Intake;
use crate::ingest::poller::Poller;

/// Receives from all ingest queues of a bank.
pub struct Ingest {
    pollers: Vec<Arc<Poller>>,
    doorbell: Arc<dyn Doorbell>,
    world: Arc<dyn World>,
}

impl Ingest {
    /// Creates the tasks for the configured queues. Nothing is received yet.
    pub fn new(bank: &Bank, meter: &Arc<Meter>, config: &WorkerConfig) -> Self {
        // The queues of one partner share its rate.
        let direct = Arc::new(DirectOrders::new(bank, config.request_rate));
        let pollers = config.ingest.iter().map(|queue| {
            let intake = Intake::new(bank, meter, (queue, config), Arc::clone(&direct));
            Arc::new(Poller::new(bank, intake, queue.poll_max))
        });
        Self {
            pollers: pollers.collect(),
            doorbell: Arc::clone(&bank.doorbell),
            world: Arc::clone(&bank.world),
        }
    }

    /// Returns the names of the queues.
    pub fn queues(&self) -> Vec<QueueName> {
        self.pollers.iter().map(|poller| poller.queue().clone()).collect()
    }

    /// Accepts orders until the drain starts. Then no further order is accepted, and this returns when those in progress are.
    pub async fn run(self, drain: &Drain) {
        let polls = self.pollers.iter().map(|poller| {
            let (poller, drain) = (Arc::clone(poller), drain.clone());
            // A task of its own, so that the queues are read in parallel.
            self.world.start(async move { poller.run(&drain).await }.boxed())
        });
        let polls = join_all(polls.collect::<Vec<_>>());
        let rings = async {
            loop {
                let rung = self.doorbell.rung(INGEST).await;
                self.pollers.iter().filter(|poller| rung.contains(poller.queue())).for_each(|it| it.ring());
            }
        };
        select(polls, pin!(rings)).await;
    }
}
