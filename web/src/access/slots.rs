//! Slots: what is counted while it is in use, with a limit for each partner and one for all together. Without a free slot a
//! request is refused, or does without.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use postonce_shared::domain::ids::PartnerId;

/// Counted slots with a limit for each partner and one for all together.
#[derive(Debug)]
pub struct Slots {
    partner_max: usize,
    total_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Partners without slots are removed.
    by_partner: BTreeMap<PartnerId, usize>,
    total: usize,
}

/// Why slots are not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSlot {
    /// The partner has this many at most.
    OfPartner(usize),
    /// All partners together have this many at most.
    OfAll(usize),
}

impl Slots {
    /// Creates slots that are all free.
    pub fn new(partner_max: usize, total_max: usize) -> Arc<Self> {
        Arc::new(Self { partner_max, total_max, taken: Mutex::default() })
    }

    /// Takes slots until the guard is dropped.
    ///
    /// # Errors
    /// [`NoSlot`] when a limit would be exceeded.
    pub fn take(self: &Arc<Self>, partner: &PartnerId, count: usize) -> Result<SlotGuard, NoSlot> {
        let mut taken = self.taken.lock();
        let own = taken.by_partner.get(partner).copied().unwrap_or_default().saturating_add(count);
        let total = taken.total.saturating_add(count);
        if own > self.partner_max {
            return Err(NoSlot::OfPartner(self.partner_max));
        }
        if total > self.total_max {
            return Err(NoSlot::OfAll(self.total_max));
        }
        taken.total = total;
        taken.by_partner.insert(partner.clone(), own);
        Ok(SlotGuard { slots: Arc::clone(self), partner: partner.clone(), count })
    }

    fn give_back(&self, partner: &PartnerId, count: usize) {
        let mut taken = self.taken.lock();
        taken.total = taken.total.saturating_sub(count);
        if let Some(own) = taken.by_partner.get_mut(partner) {
            *own = own.saturating_sub(count);
            if *own == 0 {
                taken.by_partner.remove(partner);
            }
        }
    }
}

/// Slots in use, until it is dropped.
#[must_use = "the slots are free again when the guard is dropped"]
#[derive(Debug)]
pub struct SlotGuard {
    slots: Arc<Slots>,
    partner: PartnerId,
    count: usize,
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slots.give_back(&self.partner, self.count);
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
        assert_eq!(slots.take(&shop, 1).unwrap_err(), NoSlot::OfPartner(4));
        let other = slots.take(&mill, 2).unwrap();
        assert_eq!(slots.take(&bank, 1).unwrap_err(), NoSlot::OfAll(6));
        drop(second);
        let last = slots.take(&bank, 1).unwrap();
        drop((first, other, last));
        let taken = slots.taken.lock();
        assert_eq!((taken.total, taken.by_partner.len()), (0, 0), "nothing is left behind");
    }
}
