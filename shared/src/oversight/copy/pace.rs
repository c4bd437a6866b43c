//! Limits the average number of storage operations per second. Operations are counted where they are sent, so retries and
//! the parts of a step count as well.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::ports::operations::StorageOperations;
use crate::ports::world::World;

/// The limit, shared by all concurrent parts of a copy.
pub(super) struct Pace {
    operations: Arc<StorageOperations>,
    world: Arc<dyn World>,
    /// The time allotted to one operation.
    interval: Duration,
    /// The operation count at the start.
    before: u64,
    state: Mutex<State>,
}

struct State {
    /// The operation count that `due` accounts for.
    counted: u64,
    /// The uptime at which the next operation may be sent.
    due: Duration,
}

impl Pace {
    pub(super) fn new(
        operations: &Arc<StorageOperations>,
        world: &Arc<dyn World>,
        per_second: NonZeroU32,
    ) -> Self {
        let before = count(operations);
        Self {
            operations: Arc::clone(operations),
            world: Arc::clone(world),
            interval: Duration::from_secs(1).checked_div(per_second.get()).unwrap_or_default(),
            before,
            state: Mutex::new(State { counted: before, due: world.uptime() }),
        }
    }

    pub(super) fn operations(&self) -> u64 {
        count(&self.operations).saturating_sub(self.before)
    }

    pub(super) async fn keep(&self) {
        let pause = {
            let (count, now) = (count(&self.operations), self.world.uptime());
            let mut state = self.state.lock();
            let new = u32::try_from(count.saturating_sub(state.counted)).unwrap_or(u32::MAX);
            state.counted = count;
            // Idle time is not credited.
            state.due = state.due.max(now).saturating_add(self.interval.saturating_mul(new));
            state.due.saturating_sub(now)
        };
        if !pause.is_zero() {
            self.world.sleep(pause).await;
        }
    }
}

fn count(operations: &StorageOperations) -> u64 {
    operations.snapshot().values().fold(0, |sum: u64, count| sum.saturating_add(*count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::system::SystemWorld;
    use crate::ports::operations::{Operation, PriceKind, Service};

    #[tokio::test]
    async fn operations_are_spread_over_time() {
        let operations: Arc<StorageOperations> = Arc::default();
        let world: Arc<dyn World> = Arc::new(SystemWorld::new());
        let pace = Pace::new(&operations, &world, NonZeroU32::new(100).unwrap());
        let began = world.uptime();
        for _ in 0..5 {
            pace.keep().await;
            let query = Operation { service: Service::Table, name: "query", price: PriceKind::TableBatch };
            (0..2).for_each(|_| operations.count(query));
        }
        // Eight operations came before the last step.
        let took = world.uptime() - began;
        assert!(took >= Duration::from_millis(79), "{took:?}");
        assert_eq!(pace.operations(), 10);
    }
}
