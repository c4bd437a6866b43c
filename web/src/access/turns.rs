//! Turns limit work that needs much memory or computing time: a few requests of each partner at a time, and a few of
//! all partners. Other requests wait, first for those of their own partner.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::domain::ids::PartnerId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::access::slots::NoSlot;

/// Limits on concurrent requests, for each partner and the process. Waiting requests proceed in the order of arrival.
#[derive(Debug)]
pub struct Turns {
    partner_max: usize,
    total_max: usize,
    wait_max: Duration,
    /// Unused semaphores are removed when another one is added.
    by_partner: Mutex<BTreeMap<PartnerId, Weak<Semaphore>>>,
    all: Arc<Semaphore>,
}

/// Turn of a request, which ends when the guard is dropped.
#[must_use = "the turn ends when the guard is dropped"]
#[derive(Debug)]
pub struct Turn {
    _of_partner: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Turns {
    /// Allows `partner_max` turns of a partner and `total_max` of all at a time. A request waits at most `wait_max`.
    pub fn new(partner_max: usize, total_max: usize, wait_max: Duration) -> Self {
        let all = Arc::new(Semaphore::new(total_max));
        Self { partner_max, total_max, wait_max, by_partner: Mutex::default(), all }
    }

    /// Waits for a turn of the partner, then for one of the process.
    ///
    /// # Errors
    /// [`NoSlot`] if there is no turn in time: [`NoSlot::OfHolder`] if the partner holds all of its turns,
    /// [`NoSlot::OfAll`] if all turns are taken.
    pub async fn wait(&self, partner: &PartnerId) -> Result<Turn, NoSlot> {
        let (own, begun) = (self.of_partner(partner), Instant::now());
        let of_partner = timeout(self.wait_max, own.acquire_owned()).await.ok().and_then(Result::ok);
        let of_partner = of_partner.ok_or(NoSlot::OfHolder(self.partner_max))?;
        let left = self.wait_max.saturating_sub(begun.elapsed());
        let of_all = timeout(left, Arc::clone(&self.all).acquire_owned()).await.ok().and_then(Result::ok);
        let of_all = of_all.ok_or(NoSlot::OfAll(self.total_max))?;
        Ok(Turn { _of_partner: of_partner, _of_all: of_all })
    }

    fn of_partner(&self, partner: &PartnerId) -> Arc<Semaphore> {
        let mut by_partner = self.by_partner.lock();
        if let Some(own) = by_partner.get(partner).and_then(Weak::upgrade) {
            return own;
        }
        by_partner.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.partner_max));
        by_partner.insert(partner.clone(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn requests_of_a_partner_wait_for_each_other_and_not_for_those_of_others() {
        let [shop, mill, bank] = ["shop", "mill", "bank"].map(|name| PartnerId::parse(name).unwrap());
        let turns = Turns::new(1, 2, Duration::from_secs(10));
        let of_shop = turns.wait(&shop).await.unwrap();
        let mut second = Box::pin(turns.wait(&shop));
        assert!((&mut second).now_or_never().is_none(), "the partner has its turn");
        let of_mill = turns.wait(&mill).now_or_never().unwrap().unwrap();
        let mut of_bank = Box::pin(turns.wait(&bank));
        assert!((&mut of_bank).now_or_never().is_none(), "all turns are taken");
        drop(of_shop);
        let of_bank = of_bank.await.unwrap();
        assert!((&mut second).now_or_never().is_none(), "the other partner waited for longer");
        drop(of_mill);
        drop((of_bank, second.await.unwrap()));
        drop(turns.wait(&mill).await.unwrap());
        assert_eq!(turns.by_partner.lock().len(), 1, "partners without requests are removed");
    }

    #[tokio::test]
    async fn a_request_waits_for_a_limited_time_and_leaves_its_place_to_others() {
        let [shop, mill] = ["shop", "mill"].map(|name| PartnerId::parse(name).unwrap());
        let turns = Turns::new(1, 1, Duration::from_millis(20));
        let turn = turns.wait(&shop).await.unwrap();
        assert_eq!(turns.wait(&shop).await.unwrap_err(), NoSlot::OfHolder(1));
        assert_eq!(turns.wait(&mill).await.unwrap_err(), NoSlot::OfAll(1));
        drop(turn);
        for partner in [&shop, &mill] {
            drop(turns.wait(partner).await.unwrap());
        }
    }
}
