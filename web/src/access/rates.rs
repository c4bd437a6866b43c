//! Whose bucket a request is taken out of: that of its partner, and that of its address where it comes
//! with a key that was not seen before.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use postonce_shared::access::token_bucket::{Bucket, RateStatus};
use postonce_shared::config::HttpLimits;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::RequestRate;
use postonce_shared::ports::world::World;

/// How many seconds whoever asked for too much has to wait: left with the request for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfter(pub u64);

/// Buckets that are kept, of each kind. Whoever did not call for the longest time is forgotten first: its
/// bucket is full by then, or somebody calls from very many addresses.
const BUCKETS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// The part of an IPv6 address that stands for one customer of a network.
const NETWORK_V6: u128 = 0xffff_ffff_ffff_ffff_0000_0000_0000_0000;

/// All buckets of a process.
pub struct Rates {
    world: Arc<dyn World>,
    default: RequestRate,
    wrong_keys: RequestRate,
    partners: Buckets<PartnerId>,
    addresses: Buckets<IpAddr>,
}

/// A look at the store for a key that was not seen before, which its address paid for.
#[must_use = "a right key is given back"]
pub struct Spent<'a> {
    rates: &'a Rates,
    address: IpAddr,
}

impl Rates {
    /// Full buckets for everybody.
    pub fn new(limits: &HttpLimits, world: Arc<dyn World>) -> Self {
        let (partners, addresses) = (Buckets::default(), Buckets::default());
        Self { world, default: limits.rate(), wrong_keys: limits.wrong_key_rate(), partners, addresses }
    }

    /// Takes a request out of the bucket of a partner, which may have a rate of its own.
    pub fn request_of(&self, partner: &PartnerId, own: Option<RequestRate>) -> RateStatus {
        self.partners.take(partner.clone(), own.unwrap_or(self.default), &*self.world)
    }

    /// Takes a look at the store out of the bucket of an address.
    ///
    /// # Errors
    /// The seconds to wait, when it tried too many wrong keys.
    pub fn unseen_key_from(&self, address: IpAddr) -> Result<Spent<'_>, u64> {
        let address = network_of(address);
        let standing = self.addresses.take(address, self.wrong_keys, &*self.world);
        standing.retry_in_s.map_or(Ok(Spent { rates: self, address }), Err)
    }
}

impl Spent<'_> {
    /// The key was a right one: it does not count.
    pub fn give_back(self) {
        self.rates.addresses.give_back(&self.address, self.rates.wrong_keys);
    }
}

struct Buckets<K>(Mutex<LruCache<K, Bucket>>);

impl<K: Hash + Eq> Default for Buckets<K> {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(BUCKETS_MAX)))
    }
}

impl<K: Hash + Eq> Buckets<K> {
    fn take(&self, key: K, rate: RequestRate, world: &dyn World) -> RateStatus {
        let now = world.uptime();
        self.0.lock().get_or_insert_mut(key, || Bucket::full(rate, now)).take(rate, now)
    }

    fn give_back(&self, key: &K, rate: RequestRate) {
        if let Some(bucket) = self.0.lock().get_mut(key) {
            bucket.refund(rate);
        }
    }
}

/// What counts as one address: of IPv6, everybody has very many.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & NETWORK_V6)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postonce_shared::adapters::memory::world::TestWorld;

    use super::*;

    fn rates() -> (Rates, Arc<TestWorld>) {
        let world = Arc::new(TestWorld::new(1));
        let limits = HttpLimits {
            requests_per_second: 1,
            requests_burst: 2,
            wrong_keys_per_second: 1,
            wrong_keys_burst: 2,
            ..HttpLimits::default()
        };
        (Rates::new(&limits, world.clone()), world)
    }

    #[test]
    fn partners_do_not_share_and_one_may_have_a_rate_of_its_own() {
        let (rates, world) = rates();
        let [shop, other] = ["shop", "other"].map(|name| PartnerId::parse(name).unwrap());
        let refused = |partner: &PartnerId, own| rates.request_of(partner, own).retry_in_s.is_some();
        assert_eq!([(); 3].map(|()| refused(&shop, None)), [false, false, true]);
        assert!(!refused(&other, None));
        // A higher rate holds from now on; a bucket is not filled by it at once.
        let own = Some(RequestRate { per_second: 1000, burst: 1000 });
        assert!(refused(&shop, own));
        world.advance(Duration::from_millis(10));
        assert_eq!([(); 11].map(|()| refused(&shop, own)).iter().filter(|refused| **refused).count(), 1);
    }

    #[test]
    fn only_wrong_keys_count_and_a_network_of_ipv6_is_one_address() {
        let (rates, _) = rates();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let home = address("192.0.2.1");
        for _ in 0..10 {
            rates.unseen_key_from(home).ok().unwrap().give_back();
        }
        let spend = |from: IpAddr| rates.unseen_key_from(from).map(|_| ()).err();
        assert_eq!([(); 3].map(|()| spend(home)), [None, None, Some(1)]);
        assert_eq!(spend(address("::ffff:192.0.2.1")), Some(1), "the same one, as a socket of IPv6 sees it");
        assert_eq!(spend(address("192.0.2.2")), None);
        assert_eq!(spend(address("2001:db8::1")), None);
        assert_eq!(spend(address("2001:db8::2:1")), None);
        assert_eq!(spend(address("2001:db8::3:1")), Some(1));
        assert_eq!(spend(address("2001:db8:0:1::1")), None);
    }

    #[test]
    fn however_many_addresses_there_are_the_memory_is_bounded() {
        let (rates, _) = rates();
        for number in 0..30_000_u32 {
            let _spent = rates.unseen_key_from(IpAddr::from(number.to_be_bytes()));
        }
        assert_eq!(rates.addresses.0.lock().len(), BUCKETS_MAX.get());
    }
}
