//! Replay protection for signed requests without an id: each signature is accepted once. A signature is recorded before
//! its request has any effect, and kept until every process rejects it because of its age.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::time::Timestamp;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::records::{Collection, Records};
use crate::ports::sync_store::Swapped;

/// Highest maximum age of a signature that can be configured. Entries do not depend on the configured value, because it
/// can change and can differ between processes.
pub const SIGNATURE_AGE_MAX: Duration = Duration::from_secs(3600);
/// How much longer an entry is kept. It exceeds the clock difference between two processes: Azure rejects requests of a
/// process whose clock is off by 15 minutes.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(1800);
const LISTING_LEN: usize = 1000;
/// Maximum number of entries that one sweep removes.
pub const SWEPT_MAX: usize = 100_000;

/// A verified signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignatureUse {
    /// The creation time in the signature parameters.
    pub created_at: Timestamp,
    /// A hash over the signature and its partner.
    pub hash: [u8; 32],
}

impl SignatureUse {
    /// Returns the id of the entry, which sorts by expiry time.
    fn id(&self) -> String {
        format!("{}-{}", second(self.created_at.after(SIGNATURE_AGE_MAX)), hex::encode(self.hash))
    }
}

fn second(time: Timestamp) -> String {
    format!("{:010}", time.unix_ms().div_euclid(1000))
}

/// The used signatures of one store.
pub struct UsedSignatures(Arc<dyn Records>);

impl UsedSignatures {
    /// Returns a handle to the used signatures of a store.
    pub fn new(store: &Store) -> Self {
        Self(Arc::clone(&store.records))
    }

    /// Records the use of a signature in one store operation. Returns `false` if any process recorded it before.
    ///
    /// # Errors
    /// [`StoreFault`]; the use may be recorded, so the request must be rejected and signed again.
    pub async fn use_once(&self, signature: &SignatureUse) -> Result<bool, StoreFault> {
        let saved = self.0.save(Collection::UsedSignatures, &signature.id(), "", None).await?;
        Ok(matches!(saved, Swapped::Done(_)))
    }

    /// Removes at most [`SWEPT_MAX`] signatures that every process rejects by now. Returns how many were removed.
    ///
    /// # Errors
    /// [`StoreFault`]; entries removed so far stay removed.
    pub async fn sweep(&self, now: Timestamp) -> Result<usize, StoreFault> {
        let expired_before = second(now.before(CLOCKS_DIFFER_MAX));
        let mut removed = 0_usize;
        loop {
            let limit = SWEPT_MAX.saturating_sub(removed).min(LISTING_LEN);
            let entries = self.0.list(Collection::UsedSignatures, "", None, limit).await?;
            let expired = entries.iter().take_while(|entry| *entry.id < *expired_before);
            let mut count = 0_usize;
            for entry in expired {
                self.0.remove(Collection::UsedSignatures, &entry.id).await?;
                count = count.saturating_add(1);
            }
            removed = removed.saturating_add(count);
            if count < LISTING_LEN {
                return Ok(removed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::memory::world::TestWorld;
    use crate::ports::world::World as _;

    async fn entries(store: &Store) -> usize {
        store.records.list(Collection::UsedSignatures, "", None, 10_000).await.unwrap().len()
    }

    #[tokio::test]
    async fn a_signature_is_used_once_by_all_processes_together_with_one_operation() {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let signature = SignatureUse { created_at: world.now(), hash: [1; 32] };
        let processes: Vec<_> = (0..10).map(|_| UsedSignatures::new(&store)).collect();
        let before: u64 = store.operations.snapshot().values().sum();
        let uses = processes.iter().map(|process| process.use_once(&signature));
        let used = futures::future::join_all(uses).await;
        assert_eq!(used.iter().filter(|used| *used.as_ref().unwrap()).count(), 1, "{used:?}");
        let after: u64 = store.operations.snapshot().values().sum();
        assert_eq!(after - before, 10, "one operation each");
        let later = SignatureUse { created_at: world.now().after(Duration::from_secs(1)), ..signature };
        let other = SignatureUse { hash: [2; 32], ..signature };
        assert!(processes[0].use_once(&later).await.unwrap() && processes[0].use_once(&other).await.unwrap());
    }

    #[tokio::test]
    async fn a_signature_is_removed_when_no_process_accepts_it_and_not_before() {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let used = UsedSignatures::new(&store);
        let signature = SignatureUse { created_at: world.now(), hash: [1; 32] };
        assert!(used.use_once(&signature).await.unwrap());
        // The maximum age, checked by a process whose clock is late.
        world.advance(SIGNATURE_AGE_MAX + CLOCKS_DIFFER_MAX);
        assert_eq!((used.sweep(world.now()).await.unwrap(), entries(&store).await), (0, 1));
        assert!(!used.use_once(&signature).await.unwrap());
        let young = SignatureUse { created_at: world.now(), hash: [2; 32] };
        assert!(used.use_once(&young).await.unwrap());
        world.advance(Duration::from_secs(1));
        assert_eq!((used.sweep(world.now()).await.unwrap(), entries(&store).await), (1, 1));
        assert!(!used.use_once(&young).await.unwrap());
    }

    #[tokio::test]
    async fn a_sweep_continues_beyond_one_listing() {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let used = UsedSignatures::new(&store);
        let mut hash = [0; 32];
        for number in 0..2_500_u16 {
            hash[..2].copy_from_slice(&number.to_be_bytes());
            assert!(used.use_once(&SignatureUse { created_at: world.now(), hash }).await.unwrap());
        }
        world.advance(SIGNATURE_AGE_MAX * 2);
        assert_eq!((used.sweep(world.now()).await.unwrap(), entries(&store).await), (2_500, 0));
        assert_eq!(used.sweep(world.now()).await.unwrap(), 0);
    }
}
