//! A limited number of places for data that clients may send slowly: requests without a key, and uploads. When all places are taken,
//! a new client can get the one that was taken first. So slow clients, or many of them, cannot exclude others.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::{Either, select};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Places with a limit for each holder, such as a network address, and one for all holders together.
#[derive(Debug)]
pub struct Places<K: Ord> {
    holder_max: usize,
    total_max: usize,
    taken: Mutex<Taken<K>>,
}

#[derive(Debug)]
struct Taken<K> {
    /// In the order in which they were taken. The sender of a place that is lost sends.
    by_number: BTreeMap<u64, (K, oneshot::Sender<()>)>,
    next: u64,
}

impl<K: Ord + Clone> Taken<K> {
    fn count_of(&self, holder: &K) -> usize {
        self.by_number.values().filter(|(of, _)| of == holder).count()
    }

    /// Revokes the oldest place of a holder.
    fn remove_first_of(&mut self, holder: &K) {
        let first = self.by_number.iter().find(|(_, (of, _))| of == holder).map(|(number, _)| *number);
        if let Some((_, sender)) = first.and_then(|number| self.by_number.remove(&number)) {
            // The receiver may have been dropped.
            let _received = sender.send(());
        }
    }

    /// Returns the holder with the most places; of several, the one with the oldest place.
    fn most_frequent(&self) -> Option<K> {
        let holders = self.by_number.values().rev().map(|(holder, _)| holder);
        holders.max_by_key(|holder| self.count_of(holder)).cloned()
    }
}

impl<K: Ord + Clone> Places<K> {
    /// Creates free places. Taking one scans all of them, so both limits should be small.
    pub fn new(holder_max: usize, total_max: usize) -> Arc<Self> {
        let taken = Taken { by_number: BTreeMap::new(), next: 0 };
        Arc::new(Self { holder_max, total_max, taken: Mutex::new(taken) })
    }

    /// Takes a place until the returned value is dropped. A holder at its own limit loses its oldest place. Otherwise, if all
    /// places are taken, the holder with the most places loses its oldest one.
    pub fn take(self: &Arc<Self>, holder: &K) -> Place<K> {
        let mut taken = self.taken.lock();
        if taken.count_of(holder) >= self.holder_max {
            taken.remove_first_of(holder);
        } else if taken.by_number.len() >= self.total_max
            && let Some(most_frequent) = taken.most_frequent()
        {
            taken.remove_first_of(&most_frequent);
        }
        self.add(&mut taken, holder)
    }

    /// As [`Self::take`], if there is a free place, or a holder that keeps as many as this one gets.
    pub fn take_fairly(self: &Arc<Self>, holder: &K) -> Option<Place<K>> {
        let mut taken = self.taken.lock();
        if taken.by_number.len() >= self.total_max {
            let most_frequent = taken.most_frequent()?;
            if taken.count_of(&most_frequent) <= taken.count_of(holder).saturating_add(1) {
                return None;
            }
            taken.remove_first_of(&most_frequent);
        }
        Some(self.add(&mut taken, holder))
    }

    fn add(self: &Arc<Self>, taken: &mut Taken<K>, holder: &K) -> Place<K> {
        let (sender, lost) = oneshot::channel();
        let number = taken.next;
        taken.next = taken.next.wrapping_add(1);
        taken.by_number.insert(number, (holder.clone(), sender));
        Place { places: Arc::clone(self), number, lost }
    }
}

/// A taken place, which may be revoked.
#[must_use = "the place is free again when it is dropped"]
#[derive(Debug)]
pub struct Place<K: Ord + Clone> {
    places: Arc<Places<K>>,
    number: u64,
    lost: oneshot::Receiver<()>,
}

impl<K: Ord + Clone> Place<K> {
    /// Runs a future until it is done or the place is revoked. Returns `None` if the place is revoked first.
    pub async fn hold<T>(mut self, future: impl Future<Output = T>) -> Option<T> {
        match select(std::pin::pin!(future), &mut self.lost).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    /// Returns what waits until the place is lost, once.
    pub fn until_lost(&mut self) -> impl Future<Output = ()> + use<K> {
        let lost = std::mem::replace(&mut self.lost, oneshot::channel().1);
        async move {
            if lost.await.is_err() {
                // It was dropped.
                std::future::pending().await
            }
        }
    }
}

impl<K: Ord + Clone> Drop for Place<K> {
    fn drop(&mut self) {
        self.places.taken.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;

    use super::*;

    /// Takes a place and begins to wait for a future that never completes.
    fn begin(
        places: &Arc<Places<&'static str>>,
        holder: &'static str,
    ) -> futures::future::LocalBoxFuture<'static, bool> {
        let place = places.take(&holder);
        async move { place.hold(pending::<()>()).await.is_none() }.boxed_local()
    }

    fn has_lost(waiting: &mut (impl Future<Output = bool> + Unpin)) -> bool {
        waiting.now_or_never().unwrap_or_default()
    }

    #[test]
    fn a_holder_with_all_of_its_places_leaves_its_first_one_to_itself() {
        let places = Places::new(2, 10);
        let [mut first, mut second, mut other] = ["a", "a", "b"].map(|holder| begin(&places, holder));
        assert!(![&mut first, &mut second, &mut other].into_iter().any(has_lost));
        let mut third = begin(&places, "a");
        assert!(has_lost(&mut first));
        assert!(![&mut second, &mut third, &mut other].into_iter().any(has_lost));
        drop((second, third));
        let free = begin(&places, "a");
        assert!(!has_lost(&mut other));
        drop((first, other, free));
        assert_eq!(places.taken.lock().by_number.len(), 0, "nothing is left behind");
    }

    #[test]
    fn the_holder_with_the_most_leaves_its_first_place_to_others() {
        let places = Places::new(4, 6);
        let mut one = begin(&places, "one");
        let mut of_many: Vec<_> = (0..4).map(|_| begin(&places, "many")).collect();
        let mut few = begin(&places, "few");
        // A holder with one place keeps it while another has more, however many new ones arrive.
        for lost in 0..3 {
            let mut new = begin(&places, ["x", "y", "z"][lost]);
            assert!(has_lost(&mut of_many[lost]), "{lost}");
            assert!(!has_lost(&mut new) && !has_lost(&mut one) && !has_lost(&mut few));
            of_many.push(new);
        }
        // Each holder has one place: the oldest is revoked.
        let mut last = begin(&places, "last");
        assert!(has_lost(&mut one));
        assert!(!has_lost(&mut few) && !has_lost(&mut last));
    }

    #[test]
    fn a_holder_leaves_a_place_to_others_only_if_it_keeps_as_many() {
        let places = Places::new(4, 4);
        let mut of_shop: Vec<_> = (0..3).map(|_| places.take_fairly(&"shop").unwrap()).collect();
        let mut lost: Vec<_> = of_shop.iter_mut().map(|place| Box::pin(place.until_lost())).collect();
        let mut are_lost = || lost.iter_mut().map(|it| it.now_or_never().is_some()).collect::<Vec<_>>();
        let first = places.take_fairly(&"mill").unwrap();
        assert_eq!(are_lost(), [false; 3]);
        let _second = places.take_fairly(&"mill").unwrap();
        assert_eq!(are_lost(), [true, false, false], "its first one");
        assert!(places.take_fairly(&"shop").is_none() && places.take_fairly(&"mill").is_none());
        drop(first);
        assert!(places.take_fairly(&"bank").is_some(), "one is free");
        drop(of_shop);
        assert!(lost.iter_mut().skip(1).all(|it| it.now_or_never().is_none()), "they were given back");
    }

    #[test]
    fn what_is_done_at_once_needs_no_patience() {
        let places = Places::new(1, 1);
        let mut slow = begin(&places, "a");
        assert_eq!(places.take(&"b").hold(ready(7)).now_or_never(), Some(Some(7)));
        assert!(has_lost(&mut slow));
        let mut next = begin(&places, "c");
        assert!(!has_lost(&mut next), "the place of what is done is free");
    }
}
