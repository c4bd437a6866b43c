//! Rate limits: token buckets for partners, operators' keys, client addresses that send wrong keys, and logged refusals.

use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use postonce_shared::access::client_network::client_network;
use postonce_shared::access::token_bucket::{Bucket, RateStatus};
use postonce_shared::config::HttpLimits;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::RequestRate;
use postonce_shared::ports::world::World;

/// Request extension with the value of `Retry-After` for the response, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfter(pub u64);

/// Maximum number of buckets of each kind. The least recently used bucket is evicted first. It is usually full by
/// then, unless requests come from very many addresses.
const BUCKETS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// Rate at which a partner's requests outside its reach are logged.
const LOGGED_REFUSALS: RequestRate = RequestRate { per_second: 1, burst: 20 };

/// All token buckets of a process.
pub struct Rates {
    world: Arc<dyn World>,
    default: RequestRate,
    wrong_keys: RequestRate,
    partners: Buckets<PartnerId>,
    operators: Buckets<String>,
    addresses: Buckets<IpAddr>,
    logged_refusals: Buckets<PartnerId>,
}

impl Rates {
    /// Creates rate limits with full buckets.
    pub fn new(limits: &HttpLimits, world: Arc<dyn World>) -> Self {
        let (partners, operators, addresses, logged_refusals) = Default::default();
        let (default, wrong_keys) = (limits.rate(), limits.wrong_key_rate());
        Self { world, default, wrong_keys, partners, operators, addresses, logged_refusals }
    }

    /// Takes a request from the bucket of a partner. `own` replaces the configured rate.
    pub fn request_of(&self, partner: &PartnerId, own: Option<RequestRate>) -> RateStatus {
        let (rate, now) = (own.unwrap_or(self.default), self.world.uptime());
        self.partners.change(partner.clone(), rate, now, |bucket| bucket.take(rate, now))
    }

    /// Takes a request from the bucket of an operator's key, which other keys of the same partner cannot exhaust.
    pub fn request_of_operator(&self, key_id: &str, own: Option<RequestRate>) -> RateStatus {
        let (rate, now) = (own.unwrap_or(self.default), self.world.uptime());
        self.operators.change(key_id.to_owned(), rate, now, |bucket| bucket.take(rate, now))
    }

    /// Returns the seconds until the partner may submit again; `None` if it has no debt.
    pub fn debt_of(&self, partner: &PartnerId, own: Option<RequestRate>) -> Option<u64> {
        let (rate, now) = (own.unwrap_or(self.default), self.world.uptime());
        self.partners.change(partner.clone(), rate, now, |bucket| bucket.in_debt_for_s(rate, now))
    }

    /// Charges the items of a batch of any size against the future submissions of a partner.
    pub fn owe(&self, partner: &PartnerId, own: Option<RequestRate>, items: u64) {
        let (rate, now) = (own.unwrap_or(self.default), self.world.uptime());
        self.partners.change(partner.clone(), rate, now, |bucket| bucket.owe(items, rate, now));
    }

    /// Returns whether to log another request outside the reach of its partner.
    pub fn logs_refusal_of(&self, partner: &PartnerId) -> bool {
        let (rate, now) = (LOGGED_REFUSALS, self.world.uptime());
        let status = self.logged_refusals.change(partner.clone(), rate, now, |bucket| bucket.take(rate, now));
        status.retry_in_s.is_none()
    }

    /// Takes a wrong key from the bucket of an address.
    ///
    /// # Errors
    /// Seconds to wait, when the address sent too many wrong keys.
    pub fn wrong_key_from(&self, address: IpAddr) -> Result<(), u64> {
        let (rate, now) = (self.wrong_keys, self.world.uptime());
        let standing =
            self.addresses.change(client_network(address), rate, now, |bucket| bucket.take(rate, now));
        standing.retry_in_s.map_or(Ok(()), Err)
    }
}

struct Buckets<K>(Mutex<LruCache<K, Bucket>>);

impl<K: Hash + Eq> Default for Buckets<K> {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(BUCKETS_MAX)))
    }
}

impl<K: Hash + Eq> Buckets<K> {
    /// Changes the bucket of a key. A new bucket is full.
    fn change<T>(
        &self,
        key: K,
        rate: RequestRate,
        now: Duration,
        change: impl FnOnce(&mut Bucket) -> T,
    ) -> T {
        change(self.0.lock().get_or_insert_mut(key, || Bucket::full(rate, now)))
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
        let refused = |partner: &PartnerId, own| rates.request_of(partner, own).retry_in_s.is_some();
        assert_eq!([(); 3].map(|()| refused(&shop, None)), [false, false, true]);
        assert!(!refused(&other, None));
        // A higher rate takes effect at once, but does not fill the bucket.
        let own = Some(RequestRate { per_second: 1000, burst: 1000 });
        assert!(refused(&shop, own));
        world.advance(Duration::from_millis(10));
        assert_eq!([(); 11].map(|()| refused(&shop, own)).iter().filter(|refused| **refused).count(), 1);
    }

    #[test]
    fn the_items_of_a_batch_are_a_debt_for_submissions_only() {
        let (rates, world) = rates();
        let shop = PartnerId::parse("shop").unwrap();
        let own = Some(RequestRate { per_second: 10, burst: 20 });
        let debt = || rates.debt_of(&shop, own);
        rates.owe(&shop, own, 20);
        assert_eq!(debt(), None, "a burst");
        rates.owe(&shop, own, 50);
        assert_eq!((debt(), rates.request_of(&shop, own).retry_in_s), (Some(5), None));
        world.advance(Duration::from_millis(4999));
        assert_eq!(debt(), Some(1));
        world.advance(Duration::from_millis(1));
        assert_eq!(debt(), None);
        assert_eq!(rates.debt_of(&PartnerId::parse("other").unwrap(), own), None);
    }

    #[test]
    fn an_operator_has_a_share_that_other_keys_of_its_partner_cannot_use_up() {
        let (rates, _) = rates();
        let shop = PartnerId::parse("shop").unwrap();
        assert_eq!([(); 3].map(|()| rates.request_of(&shop, None).retry_in_s), [None, None, Some(1)]);
        let of_key = |key| rates.request_of_operator(key, None).retry_in_s;
        assert_eq!([(); 3].map(|()| of_key("first")), [None, None, Some(1)]);
        assert_eq!(of_key("second"), None);
    }

    #[test]
    fn an_ipv6_network_is_one_address() {
        let (rates, _) = rates();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let home = address("192.0.2.1");
        let spend = |from: IpAddr| rates.wrong_key_from(from).err();
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
    fn refusals_of_a_partner_are_logged_at_a_bounded_rate() {
        let (rates, world) = rates();
        let [shop, other] = ["shop", "other"].map(|name| PartnerId::parse(name).unwrap());
        let logged = |partner: &PartnerId| (0..100).filter(|_| rates.logs_refusal_of(partner)).count();
        assert_eq!((logged(&shop), logged(&other)), (20, 20));
        world.advance(Duration::from_secs(3));
        assert_eq!(logged(&shop), 3);
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let (rates, _) = rates();
        for number in 0..30_000_u32 {
            rates.wrong_key_from(IpAddr::from(number.to_be_bytes())).unwrap();
        }
        assert_eq!(rates.addresses.0.lock().len(), BUCKETS_MAX.get());
    }
}
