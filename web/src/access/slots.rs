//! Counted slots with a limit for each holder, such as a partner, and a limit for all holders together. A request
//! without a free slot is refused, or proceeds without the resource.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix_web::http::StatusCode;
use parking_lot::Mutex;
use postonce_shared::domain::ids::PartnerId;

/// Counted slots with a limit for each holder and one for all together.
#[derive(Debug)]
pub struct Slots<K: Ord = PartnerId> {
    holder_max: usize,
    total_max: usize,
    taken: Mutex<Taken<K>>,
}

#[derive(Debug)]
struct Taken<K> {
    /// Holders without slots are removed.
    by_holder: BTreeMap<K, usize>,
    total: usize,
}

/// Limit that prevents slots from being taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSlot {
    /// The limit of the holder, which is this number of slots.
    OfHolder(usize),
    /// The limit of all holders together, which is this number of slots.
    OfAll(usize),
}

impl NoSlot {
    /// Returns the status of the response to a request that is refused for this reason.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::OfHolder(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::OfAll(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl<K: Ord + Clone> Slots<K> {
    /// Creates free slots, with the limits of a holder and of all holders together.
    pub fn new(holder_max: usize, total_max: usize) -> Arc<Self> {
        let taken = Taken { by_holder: BTreeMap::new(), total: 0 };
        Arc::new(Self { holder_max, total_max, taken: Mutex::new(taken) })
    }

    /// Takes `count` slots until the guard is dropped.
    ///
    /// # Errors
    /// [`NoSlot`] when a limit would be exceeded.
    pub fn take(self: &Arc<Self>, holder: &K, count: usize) -> Result<SlotGuard<K>, NoSlot> {
        let mut taken = self.taken.lock();
        let own = taken.by_holder.get(holder).copied().unwrap_or_default().saturating_add(count);
        let total = taken.total.saturating_add(count);
        if own > self.holder_max {
            return Err(NoSlot::OfHolder(self.holder_max));
        }
        if total > self.total_max {
            return Err(NoSlot::OfAll(self.total_max));
        }
        taken.total = total;
        taken.by_holder.insert(holder.clone(), own);
        Ok(SlotGuard { slots: Arc::clone(self), holder: holder.clone(), count })
    }

    fn give_back(&self, holder: &K, count: usize) {
        let mut taken = self.taken.lock();
        taken.total = taken.total.saturating_sub(count);
        if let Some(own) = taken.by_holder.get_mut(holder) {
            *own = own.saturating_sub(count);
            if *own == 0 {
                taken.by_holder.remove(holder);
            }
        }
    }
}

/// Slots in use, which are released when the guard is dropped.
#[must_use = "the slots are free again when the guard is dropped"]
#[derive(Debug)]
pub struct SlotGuard<K: Ord + Clone = PartnerId> {
    slots: Arc<Slots<K>>,
    holder: K,
    count: usize,
}

impl<K: Ord + Clone> SlotGuard<K> {
    /// Releases all slots but `count`.
    pub fn keep(&mut self, count: usize) {
        let kept = self.count.min(count);
        self.slots.give_back(&self.holder, self.count.saturating_sub(kept));
        self.count = kept;
    }
}

impl<K: Ord + Clone> Drop for SlotGuard<K> {
    fn drop(&mut self) {
        self.slots.give_back(&self.holder, self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_takes_its_share_and_leaves_the_rest_to_others() {
        let [shop, mill, bank] = ["shop", "mill", "bank"].map(|name| PartnerId::parse(name).unwrap());
        let slots = Slots::new(4, 6);
        let first = slots.take(&shop, 3).unwrap();
        let second = slots.take(&shop, 1).unwrap();
        assert_eq!(slots.take(&shop, 1).unwrap_err(), NoSlot::OfHolder(4));
        let other = slots.take(&mill, 2).unwrap();
        assert_eq!(slots.take(&bank, 1).unwrap_err(), NoSlot::OfAll(6));
        drop(second);
        let last = slots.take(&bank, 1).unwrap();
        let mut first = first;
        first.keep(5);
        assert_eq!(slots.take(&bank, 1).unwrap_err(), NoSlot::OfAll(6), "it keeps what it has");
        first.keep(2);
        drop(slots.take(&shop, 1).unwrap());
        drop((first, other, last));
        let taken = slots.taken.lock();
        assert_eq!((taken.total, taken.by_holder.len()), (0, 0), "nothing is left behind");
    }
}
