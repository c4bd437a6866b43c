//! The queues that were deleted with their messages, until their work is enqueued again.
//!
//! All processes record the same time for a deletion. The record survives a process that ends before it has enqueued the
//! work again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::shared_value::{self, Change};
use crate::domain::time::Timestamp;
use crate::ports::fault::StoreFault;
use crate::ports::queue::QueueName;
use crate::ports::sync_store::SyncStore;
use crate::ports::world::World;

/// The name of the value in the [`SyncStore`].
const NAME: &str = "lost-queues";
/// Longest time between two processes noticing the same deletion. The first one creates the queue again.
const SAME_DELETION: Duration = Duration::from_secs(60);

/// Deleted queues, each with the time when the deletion was noticed. Messages sent before it are lost.
pub type Lost = BTreeMap<QueueName, Timestamp>;

/// Records and reads the deleted queues of a store.
#[derive(Clone)]
pub struct LostQueues {
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
}

impl LostQueues {
    /// Creates access to the record of a store.
    pub fn new(sync: Arc<dyn SyncStore>, world: Arc<dyn World>) -> Self {
        Self { sync, world }
    }

    /// Records that queues were just found deleted. Returns all recorded queues.
    ///
    /// # Errors
    /// [`StoreFault`]; the queues may have been recorded. Repeating the call is safe.
    pub async fn note(&self, found: impl IntoIterator<Item = QueueName>) -> Result<Lost, StoreFault> {
        let (now, found) = (self.world.now(), found.into_iter().collect::<Vec<_>>());
        self.change(|lost| {
            for queue in &found {
                let noted = lost.entry(queue.clone()).or_insert(now);
                if now.since(*noted) > SAME_DELETION {
                    *noted = now;
                }
            }
        })
        .await
    }

    /// Removes queues whose work has been enqueued again, unless they were deleted again since.
    ///
    /// # Errors
    /// [`StoreFault`]; the queues may have been removed.
    pub async fn remove(&self, restored: &Lost) -> Result<(), StoreFault> {
        self.change(|lost| lost.retain(|queue, noted| restored.get(queue) != Some(noted))).await.map(drop)
    }

    async fn change(&self, change: impl Fn(&mut Lost) + Send) -> Result<Lost, StoreFault> {
        let store = (&*self.sync, &*self.world);
        shared_value::change(store, NAME, "noting lost queues", move |stored| {
            let before = stored.map(decode).transpose()?.unwrap_or_default();
            let mut after = before.clone();
            change(&mut after);
            Ok(if after == before { Change::Keep(after) } else { Change::Replace(encode(&after), after) })
        })
        .await
    }
}

/// Encodes the record, such as `work-0=1795248000123 work-3=…`.
fn encode(lost: &Lost) -> String {
    let parts = lost.iter().map(|(queue, at)| format!("{queue}={}", at.unix_ms()));
    parts.collect::<Vec<_>>().join(" ")
}

fn decode(text: &str) -> Result<Lost, StoreFault> {
    let part = |part: &str| {
        let (queue, at) = part.split_once('=')?;
        Some((QueueName::parse(queue)?, Timestamp::from_unix_ms(at.parse().ok()?)))
    };
    text.split_whitespace().map(part).collect::<Option<Lost>>().ok_or_else(|| StoreFault::Corrupt {
        doing: "reading the lost queues",
        source: format!("the value {NAME} is damaged").into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::memory::world::TestWorld;

    fn queue(name: &str) -> QueueName {
        QueueName::parse(name).unwrap()
    }

    #[tokio::test]
    async fn a_lost_queue_stays_noted_with_the_time_of_its_last_deletion_until_it_is_restored() {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let lost = LostQueues::new(store.sync, world.clone());
        assert_eq!(lost.note([]).await.unwrap(), Lost::new());
        let first = world.now();
        lost.note([queue("work-1")]).await.unwrap();
        world.advance(Duration::from_secs(3));
        let both = lost.note([queue("work-1"), queue("work-2")]).await.unwrap();
        let expected = Lost::from([(queue("work-1"), first), (queue("work-2"), world.now())]);
        assert_eq!(both, expected, "another process noticed the same deletion");
        world.advance(Duration::from_secs(61));
        let again = lost.note([queue("work-1")]).await.unwrap();
        assert_eq!(again.get(&queue("work-1")), Some(&world.now()), "it was deleted again");
        lost.remove(&both).await.unwrap();
        let left = Lost::from([(queue("work-1"), world.now())]);
        assert_eq!(lost.note([]).await.unwrap(), left, "its second deletion is not restored yet");
    }
}
