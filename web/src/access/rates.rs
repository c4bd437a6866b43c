//! Rate limits: one token bucket for each partner, and one for each client address that sends unseen keys.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use postonce_shared::access::token_bucket::{Bucket, RateStatus};
use postonce_shared::config::HttpLimits;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::RequestRate;
use postonce_shared::ports::world::World;

/// Request extension with the value of `Retry-After` for the response, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfter(pub u64);

/// Maximum number of buckets of each kind. The least recently used one is evicted first: it is full again by
/// then, unless requests come from very many addresses.
const BUCKETS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// Network part of an IPv6 address that identifies one customer of a network.
const NETWORK_V6: u128 = 0xffff_ffff_ffff_ffff_0000_0000_0000_0000;

/// All token buckets of a process.
pub struct Rates {
    world: Arc<dyn World>,
    default: RequestRate,
    wrong_keys: RequestRate,
    partners: Buckets<PartnerId>,
    /// The times, on the clock of the uptime, until which partners have debts for the items of batches.
    debts: Mutex<LruCache<PartnerId, Duration>>,
    addresses: Buckets<IpAddr>,
}

/// Token that an address paid for the look-up of an unseen key.
#[must_use = "the look-up of a valid key is refunded"]
pub struct LookupCharge<'a> {
    rates: &'a Rates,
    address: IpAddr,
}

impl Rates {
    /// Creates rate limits with full buckets.
    pub fn new(limits: &HttpLimits, world: Arc<dyn World>) -> Self {
        let (partners, addresses) = (Buckets::default(), Buckets::default());
        let (default, wrong_keys) = (limits.rate(), limits.wrong_key_rate());
        Self {
            world,
            default,
            wrong_keys,
            partners,
            debts: Mutex::new(LruCache::new(BUCKETS_MAX)),
            addresses,
        }
    }

    /// Takes a request from the bucket of a partner, which may have its own rate. A request that is `new_work` is refused
    /// while the partner has a debt.
    pub fn request_of(&self, partner: &PartnerId, own: Option<RequestRate>, new_work: bool) -> RateStatus {
        let status = self.partners.take(partner.clone(), own.unwrap_or(self.default), &*self.world);
        if !new_work {
            return status;
        }
        let until = self.debts.lock().get(partner).copied().unwrap_or_default();
        let left = until.saturating_sub(self.world.uptime());
        let in_debt = (!left.is_zero()).then(|| left.as_secs().saturating_add(1));
        RateStatus { retry_in_s: status.retry_in_s.max(in_debt), ..status }
    }

    /// Takes the items of a batch, which were accepted whatever their number, from the future requests of a partner.
    pub fn owe(&self, partner: &PartnerId, own: Option<RequestRate>, items: u64) {
        let rate = own.unwrap_or(self.default);
        let now = self.world.uptime();
        // What a burst allows is no debt.
        let owed = items.saturating_sub(rate.burst.into()).saturating_mul(1_000_000_000);
        let owed = Duration::from_nanos(owed.checked_div(rate.per_second.into()).unwrap_or_default());
        let mut debts = self.debts.lock();
        let until = debts.get_or_insert_mut(partner.clone(), Duration::default);
        *until = (*until).max(now).saturating_add(owed);
    }

    /// Takes the look-up of an unseen key from the bucket of an address.
    ///
    /// # Errors
    /// The seconds to wait, when the address sent too many invalid keys.
    pub fn unseen_key_from(&self, address: IpAddr) -> Result<LookupCharge<'_>, u64> {
        let address = network_of(address);
        let standing = self.addresses.take(address, self.wrong_keys, &*self.world);
        standing.retry_in_s.map_or(Ok(LookupCharge { rates: self, address }), Err)
    }
}

impl LookupCharge<'_> {
    /// Returns the token, because the key is valid.
    pub fn refund(self) {
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

/// Returns the part of an address that identifies a client. An IPv6 client usually has a whole /64 network.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & NETWORK_V6)),
    }
}

#[cfg(test)]
mod tests {
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
    fn each_partner_has_its_own_bucket_and_may_have_its_own_rate() {
        let (rates, world) = rates();
        let [shop, other] = ["shop", "other"].map(|name| PartnerId::parse(name).unwrap());
        let refused = |partner: &PartnerId, own| rates.request_of(partner, own, false).retry_in_s.is_some();
        assert_eq!([(); 3].map(|()| refused(&shop, None)), [false, false, true]);
        assert!(!refused(&other, None));
        // A higher rate takes effect from now on. It does not fill the bucket at once.
        let own = Some(RequestRate { per_second: 1000, burst: 1000 });
        assert!(refused(&shop, own));
        world.advance(Duration::from_millis(10));
        assert_eq!([(); 11].map(|()| refused(&shop, own)).iter().filter(|refused| **refused).count(), 1);
    }

    #[test]
    fn the_items_of_a_batch_are_a_debt_for_new_work_only() {
        let (rates, world) = rates();
        let shop = PartnerId::parse("shop").unwrap();
        let own = Some(RequestRate { per_second: 10, burst: 20 });
        let refused = |new_work| rates.request_of(&shop, own, new_work).retry_in_s;
        rates.owe(&shop, own, 20);
        assert_eq!(refused(true), None, "a burst");
        rates.owe(&shop, own, 50);
        assert_eq!((refused(true), refused(false)), (Some(4), None));
        rates.owe(&shop, own, 30);
        world.advance(Duration::from_millis(3999));
        assert_eq!(refused(true), Some(1));
        world.advance(Duration::from_millis(1));
        assert_eq!(refused(true), None);
        assert_eq!(rates.request_of(&PartnerId::parse("other").unwrap(), own, true).retry_in_s, None);
    }

    #[test]
    fn only_invalid_keys_count_and_an_ipv6_network_is_one_address() {
        let (rates, _) = rates();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let home = address("192.0.2.1");
        for _ in 0..10 {
            rates.unseen_key_from(home).ok().unwrap().refund();
        }
        let spend = |from: IpAddr| rates.unseen_key_from(from).map(|_| ()).err();
        assert_eq!([(); 3].map(|()| spend(home)), [None, None, Some(1)]);
        assert_eq!(
            spend(address("::ffff:192.0.2.1")),
            Some(1),
            "the same address, as an IPv6 socket reports it"
        );
        assert_eq!(spend(address("192.0.2.2")), None);
        assert_eq!(spend(address("2001:db8::1")), None);
        assert_eq!(spend(address("2001:db8::2:1")), None);
        assert_eq!(spend(address("2001:db8::3:1")), Some(1));
        assert_eq!(spend(address("2001:db8:0:1::1")), None);
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let (rates, _) = rates();
        for number in 0..30_000_u32 {
            let _charge = rates.unseen_key_from(IpAddr::from(number.to_be_bytes()));
        }
        assert_eq!(rates.addresses.0.lock().len(), BUCKETS_MAX.get());
    }
}
