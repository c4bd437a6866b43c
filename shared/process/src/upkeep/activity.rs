//! Records the activity of the process from its counters.

use std::pin::pin;

use futures::future::select;
use postonce_shared::bank::Bank;
use postonce_shared::posting::posting_latency::{Decided, Way};

use crate::activity::{ActivityCounts, until_next_end};
use crate::drain::Drain;
use crate::meter::Meter;

/// Adds each completed step to the activity history, until the drain starts. Makes no store requests.
pub async fn record(bank: &Bank, meter: &Meter, drain: &Drain) {
    let world = &*bank.world;
    meter.activity.begin(world.now());
    while !drain.is_started() {
        let step = world.sleep(until_next_end(world.now()));
        select(pin!(drain.started()), step).await;
        meter.activity.note(world.now(), counts(bank, meter));
    }
}

fn counts(bank: &Bank, meter: &Meter) -> ActivityCounts {
    let decided = |way| bank.latency.decided(way);
    let [immediate, queued, batch] = [decided(Way::Immediate), decided(Way::Queued), decided(Way::Batch)];
    let rejected = [immediate, queued, batch]
        .iter()
        .fold(0, |sum: u64, Decided { rejected, .. }| sum.saturating_add(*rejected));
    ActivityCounts {
        accepted: bank.acceptor.served().accepted(),
        immediate: immediate.posted,
        queued: queued.posted,
        batch: batch.posted,
        rejected,
        storage_errors: bank.store.operations.failed(),
        request_errors: meter.request_errors.get(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use postonce_shared::adapters::local_doorbell::LocalDoorbell;
    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::cluster::doorbell_secret::{DoorbellKeys, DoorbellSecret};
    use postonce_shared::messaging::envelope::seal::Seal;
    use postonce_shared::ports::world::World;

    use super::*;
    use crate::activity::Steps;
    use crate::drain::drain;

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_process_records_its_counters_until_it_drains() {
        let test_world = Arc::new(TestWorld::new(1));
        let world: Arc<dyn World> = test_world.clone();
        let secret = DoorbellKeys::parse("0123456789abcdef").unwrap();
        let seal = Seal::new(&DoorbellSecret::new(Some(&secret)));
        let store = MemoryStore::new(Arc::clone(&world));
        let bank = Bank::new(store, Arc::clone(&world), Arc::new(LocalDoorbell::default()), seal, 1);
        let (meter, (starter, drain)) = (Meter::default(), drain());
        let life = async {
            test_world.advance(Duration::from_millis(500));
            settle().await;
            for count in [3, 0, 2] {
                bank.acceptor.served().accept(count);
                meter.request_errors.add(2);
                test_world.advance(Duration::from_millis(1500));
                settle().await;
                test_world.advance(Duration::from_millis(500));
                settle().await;
            }
            // The task wakes late, while the clock advances over several steps.
            bank.acceptor.served().accept(9);
            test_world.advance(Duration::from_secs(6));
            settle().await;
            starter.start();
        };
        futures::join!(record(&bank, &meter, &drain), life);
        let Steps { until, counts } = meter.activity.last(Duration::from_secs(60)).unwrap();
        let accepted: Vec<u64> = counts.iter().map(|counts| counts.accepted).collect();
        assert_eq!(accepted, [3, 0, 2, 0, 0, 9]);
        assert_eq!(until.to_string(), "2026-01-01T00:00:12.000Z");
        let errors: Vec<u64> = counts.iter().map(|counts| counts.request_errors).collect();
        assert_eq!(errors, [2, 2, 2, 0, 0, 0]);
        assert!(counts.iter().all(|counts| counts.posted() == 0 && counts.storage_errors == 0));
    }
}
