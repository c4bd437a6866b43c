//! Compare-and-swap updates of small values that processes share.

use crate::backoff::SHARED_VALUE_WRITE;
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::World;

/// What to do with a value, and the result of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// Keep the value.
    Keep(T),
    /// Replace the value.
    Replace(String, T),
}

/// Changes a value by compare-and-swap. `change` receives the stored value, if there is one, and is called again after
/// a concurrent change. `doing` names the operation in the fault.
///
/// # Errors
/// Any fault of `change`. [`StoreFault`] if the store cannot be used, or after too many concurrent changes. The value
/// may have been changed.
pub async fn change<T: Send>(
    (sync, world): (&dyn SyncStore, &dyn World),
    name: &str,
    doing: &'static str,
    mut change: impl FnMut(Option<&str>) -> Result<Change<T>, StoreFault> + Send,
) -> Result<T, StoreFault> {
    for attempt in 1..=SHARED_VALUE_WRITE.attempts {
        let stored = sync.get(name).await?;
        let (value, result) = match change(stored.as_ref().map(|stored| stored.value.as_str()))? {
            Change::Keep(result) => return Ok(result),
            Change::Replace(value, result) => (value, result),
        };
        let revision = stored.as_ref().map(|stored| &stored.revision);
        match sync.swap(name, revision, &value).await? {
            Swapped::Done(_) => return Ok(result),
            Swapped::Conflict => SHARED_VALUE_WRITE.pause(attempt, world).await,
        }
    }
    let source = format!("concurrent changes in each of {} attempts", SHARED_VALUE_WRITE.attempts).into();
    Err(StoreFault::Unavailable { doing, source })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use futures::future::{Either, select};

    use super::*;
    use crate::adapters::memory::world::TestWorld;
    use crate::domain::account::{Revision, Versioned};

    /// A store in which other processes change the value during the first attempts.
    struct Contended(AtomicU32);

    #[async_trait]
    impl SyncStore for Contended {
        async fn get(&self, _: &str) -> Result<Option<Versioned<String>>, StoreFault> {
            Ok(None)
        }

        async fn swap(&self, _: &str, _: Option<&Revision>, _: &str) -> Result<Swapped, StoreFault> {
            let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            Ok(left.map_or(Swapped::Done(Revision::new("1")), |_| Swapped::Conflict))
        }
    }

    #[tokio::test]
    async fn a_change_is_repeated_until_no_other_process_changes_the_value() {
        let check = async |conflicts: u32, expected: Result<u32, &str>| {
            let (store, world) = (Contended(AtomicU32::new(conflicts)), TestWorld::new(1));
            let mut calls = 0;
            let changing = change((&store, &world), "a-value", "changing a value", |stored| {
                assert_eq!(stored, None);
                calls += 1;
                Ok(Change::Replace("new".to_owned(), calls))
            });
            let time_passes = async {
                loop {
                    world.advance(Duration::from_millis(50));
                    tokio::task::yield_now().await;
                }
            };
            let Either::Left((changed, _)) = select(pin!(changing), pin!(time_passes)).await;
            let changed = changed.map_err(|fault| crate::ports::fault::chain(&fault));
            match expected {
                Ok(calls) => assert_eq!(changed, Ok(calls)),
                Err(text) => assert!(changed.unwrap_err().contains(text)),
            }
        };
        check(0, Ok(1)).await;
        check(9, Ok(10)).await;
        check(10, Err("concurrent changes in each of 10 attempts")).await;
    }
}
