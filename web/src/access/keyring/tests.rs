use std::time::Duration;

use postonce_shared::access::partner_cache::{ABSENT_TTL, GRANT_FRESH};
use postonce_shared::testing::prelude::*;

use super::key_ids::FRESH;
use super::*;
use crate::access::api_keys::NewKey;

fn shop() -> PartnerId {
    PartnerId::parse("shop").unwrap()
}

struct Fixture {
    store: Store,
    world: Arc<TestWorld>,
    keyring: Keyring,
    key: NewKey,
}

async fn fixture() -> Fixture {
    let world = Arc::new(TestWorld::new(1));
    let store = MemoryStore::new(world.clone());
    let key = NewKey::random();
    let record = key.record(shop(), &[Scope::Read], &*world);
    // A use is recorded already, so that look-ups cost no write.
    let record = ApiKeyRecord { last_used_at: Some(world.now()), ..record };
    store.api_keys.add(&record).await.unwrap();
    let keys = vec![ActiveKey { id: record.id, created_at: record.created_at }];
    let partner = Partner { keys, ..Partner::active(shop(), Reach::Everything, world.now()) };
    assert!(matches!(PartnerRecords::new(&store).save(&partner, None).await.unwrap(), Swapped::Done(_)));
    let keyring = Keyring::new(&store, world.clone());
    Fixture { store, world, keyring, key }
}

impl Fixture {
    fn operations(&self) -> u64 {
        self.store.operations.snapshot().values().sum()
    }

    async fn check(&self, key: &str, known: bool, operations: u64) {
        let before = self.operations();
        let grant = self.keyring.look_up(key).await.unwrap();
        assert_eq!(grant.is_some(), known, "{key}");
        assert_eq!(self.operations().saturating_sub(before), operations, "{key}");
    }
}

impl Fixture {
    /// Changes the record of the partner without invalidating the keyring.
    async fn change(&self, change: impl Fn(&mut Partner)) {
        let partners = PartnerRecords::new(&self.store);
        let mut stored = partners.find(&shop()).await.unwrap().unwrap();
        change(&mut stored.value);
        let saved = partners.save(&stored.value, Some(&stored.revision)).await.unwrap();
        assert!(matches!(saved, Swapped::Done(_)));
    }
}

#[tokio::test]
async fn the_store_is_read_once_for_a_valid_key_and_once_a_minute_for_all_invalid_ones() {
    let fixture = fixture().await;
    let key = fixture.key.expose().to_owned();
    // Reads the ids of all keys, the key, and its partner.
    fixture.check(&key, true, 3).await;
    fixture.check(&key, true, 0).await;
    for number in 0..100 {
        fixture.check(&format!("wrong {number}"), false, 0).await;
    }
    fixture.world.advance(FRESH.saturating_sub(Duration::from_millis(1)));
    fixture.check("wrong", false, 0).await;
    fixture.world.advance(ABSENT_TTL);
    fixture.check("wrong", false, 1).await;
    fixture.check("wrong again", false, 0).await;
    fixture.check(&"long".repeat(100), false, 0).await;
}

#[tokio::test]
async fn a_key_is_valid_only_with_its_row_its_listing_and_an_active_partner() {
    let fixture = fixture().await;
    let key = fixture.key.expose().to_owned();
    let id = id_of(&hash(&key));
    let check = async |known: bool| {
        fixture.keyring.forget(None);
        assert_eq!(fixture.keyring.look_up(&key).await.unwrap().is_some(), known);
    };
    check(true).await;
    fixture.change(|partner| partner.suspend(Scope::Admin)).await;
    check(false).await;
    fixture.change(|partner| partner.resume()).await;
    check(true).await;
    fixture.change(|partner| partner.keys[0].id = "another".to_owned()).await;
    check(false).await;
    fixture.change(|partner| partner.keys[0].id = id.clone()).await;
    check(true).await;
    assert!(fixture.store.api_keys.revoke(&id, fixture.world.now()).await.unwrap());
    check(false).await;
}

#[tokio::test]
async fn a_change_takes_effect_at_once_with_a_broadcast_and_within_a_minute_without() {
    let fixture = fixture().await;
    let key = fixture.key.expose().to_owned();
    fixture.check(&key, true, 3).await;
    fixture.change(|partner| partner.suspend(Scope::Admin)).await;
    fixture.keyring.forget(Some(&PartnerId::parse("other").unwrap()));
    let before = fixture.operations();
    assert!(fixture.keyring.look_up(&key).await.unwrap().is_some(), "the broadcast was for another partner");
    assert_eq!(fixture.operations(), before, "no store access is needed");
    fixture.keyring.forget(Some(&shop()));
    fixture.check(&key, false, 2).await;
    fixture.change(|partner| partner.resume()).await;
    fixture.check(&key, false, 0).await;
    fixture.keyring.forget(Some(&shop()));
    fixture.check(&key, true, 2).await;
    fixture.change(|partner| partner.suspend(Scope::Admin)).await;
    fixture.world.advance(GRANT_FRESH);
    fixture.check(&key, false, 2).await;
}

/// Records with slow reads: a read returns the state from before a concurrent change.
struct SlowRecords {
    inner: Arc<dyn Records>,
    gate: tokio::sync::Semaphore,
    is_unavailable: AtomicBool,
}

#[async_trait::async_trait]
impl RecordsDecorator for SlowRecords {
    fn inner(&self) -> &dyn Records {
        &*self.inner
    }

    async fn find(&self, collection: Collection, id: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        if self.is_unavailable.load(Ordering::Relaxed) {
            return Err(StoreFault::Unavailable {
                doing: "reading a record",
                source: "the store is unavailable".into(),
            });
        }
        let found = self.inner.find(collection, id).await;
        self.gate.acquire().await.unwrap().forget();
        found
    }
}

async fn late_fixture() -> (Fixture, Arc<SlowRecords>) {
    let mut fixture = fixture().await;
    let late = Arc::new(SlowRecords {
        inner: Arc::clone(&fixture.store.records),
        gate: tokio::sync::Semaphore::new(0),
        is_unavailable: AtomicBool::new(false),
    });
    fixture.keyring =
        Keyring::new(&Store { records: late.clone(), ..fixture.store.clone() }, fixture.world.clone());
    (fixture, late)
}

#[tokio::test]
async fn a_look_up_that_began_before_an_invalidation_is_not_cached() {
    let (fixture, late) = late_fixture().await;
    let key = fixture.key.expose();
    let mut begun = std::pin::pin!(fixture.keyring.look_up(key));
    assert!(futures::poll!(begun.as_mut()).is_pending(), "it has read the old state");
    fixture.change(|partner| partner.suspend(Scope::Admin)).await;
    fixture.keyring.forget(Some(&shop()));
    late.gate.add_permits(2);
    assert!(begun.await.unwrap().is_some(), "it started before the change");
    assert!(fixture.keyring.look_up(key).await.unwrap().is_none(), "and the result is not cached");
}

#[tokio::test]
async fn a_cached_grant_survives_a_short_outage_but_not_a_long_one() {
    let (fixture, late) = late_fixture().await;
    let key = fixture.key.expose();
    late.gate.add_permits(1);
    let begun_at = fixture.world.uptime();
    assert!(fixture.keyring.look_up(key).await.unwrap().is_some());
    late.is_unavailable.store(true, Ordering::Relaxed);
    let mut lasted = Duration::ZERO;
    while fixture.keyring.look_up(key).await.is_ok_and(|grant| grant.is_some()) {
        lasted = fixture.world.uptime().saturating_sub(begun_at);
        fixture.world.advance(Duration::from_secs(1));
        assert!(lasted < Duration::from_secs(300), "a cached grant must expire within five minutes");
    }
    assert!(
        lasted > GRANT_FRESH.saturating_mul(2),
        "an outage of one minute must not refuse valid keys, but one of {lasted:?} did"
    );
}

#[tokio::test]
async fn an_outage_after_an_invalidation_refuses_the_key() {
    let (fixture, late) = late_fixture().await;
    late.gate.add_permits(1);
    assert!(fixture.keyring.look_up(fixture.key.expose()).await.unwrap().is_some());
    late.is_unavailable.store(true, Ordering::Relaxed);
    fixture.keyring.forget(Some(&shop()));
    assert!(fixture.keyring.look_up(fixture.key.expose()).await.is_err());
}

#[test]
fn the_whole_hash_has_to_match() {
    let world = TestWorld::new(1);
    let key = NewKey::random();
    let record = key.record(PartnerId::parse("shop").unwrap(), &[], &world);
    let mut forged = hash(key.expose());
    assert!(is_valid(&record, &forged));
    forged[31] ^= 1;
    assert_eq!(id_of(&forged), record.id);
    assert!(!is_valid(&record, &forged));
}

/// Adds a second key to the partner. Returns the key.
async fn add(fixture: &Fixture, expires_at: Option<Timestamp>) -> NewKey {
    let key = NewKey::random();
    let record = key.record(shop(), &[Scope::Read], &*fixture.world);
    let record = ApiKeyRecord { expires_at, ..record };
    fixture.store.api_keys.add(&record).await.unwrap();
    let active = ActiveKey { id: record.id, created_at: record.created_at };
    fixture.change(|partner| partner.keys.push(active.clone())).await;
    fixture.keyring.forget(None);
    key
}

#[tokio::test]
async fn a_key_expires_also_in_the_cache() {
    let fixture = fixture().await;
    let second = Duration::from_secs(1);
    let key = add(&fixture, Some(fixture.world.now().after(second))).await;
    let works = async || fixture.keyring.look_up(key.expose()).await.unwrap().is_some();
    assert!(works().await);
    fixture.world.advance(second.saturating_sub(Duration::from_millis(1)));
    assert!(works().await, "until its last millisecond");
    fixture.world.advance(Duration::from_millis(1));
    // The grant is still cached, so nothing is read.
    fixture.check(key.expose(), false, 0).await;
    fixture.keyring.forget(None);
    assert!(!works().await, "and not after it was read again");
    fixture.world.advance(GRANT_FRESH);
    assert!(fixture.keyring.look_up(fixture.key.expose()).await.unwrap().is_some(), "the other key works");
}

#[tokio::test]
async fn the_use_of_a_key_is_recorded_once_a_day() {
    let fixture = fixture().await;
    let key = add(&fixture, None).await;
    let use_once = async || {
        assert!(fixture.keyring.look_up(key.expose()).await.unwrap().is_some());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        fixture.store.api_keys.find(&key.id()).await.unwrap().unwrap().last_used_at
    };
    assert_eq!(fixture.store.api_keys.find(&key.id()).await.unwrap().unwrap().last_used_at, None);
    let first = fixture.world.now();
    assert_eq!(use_once().await, Some(first));
    for _ in 0..3 {
        fixture.world.advance(Duration::from_secs(7 * 60 * 60));
        assert_eq!(use_once().await, Some(first), "not again on this day");
    }
    fixture.world.advance(Duration::from_secs(3 * 60 * 60));
    let second = fixture.world.now();
    assert_eq!(use_once().await, Some(second));
    // Another process sees in the row that a use is recorded.
    fixture.world.advance(Duration::from_secs(60));
    let other = Keyring::new(&fixture.store, fixture.world.clone());
    assert!(other.look_up(key.expose()).await.unwrap().is_some());
    assert_eq!(use_once().await, Some(second));
}

#[tokio::test]
async fn a_grant_is_confirmed_without_the_store_until_its_partner_changes() {
    let fixture = fixture().await;
    let mut key = fixture.keyring.look_up(fixture.key.expose()).await.unwrap().unwrap();
    let mut check = async |expected: Confirmed, operations: u64| {
        let before = fixture.operations();
        assert_eq!(fixture.keyring.confirm(&mut key).await.unwrap(), expected);
        assert_eq!(fixture.operations().saturating_sub(before), operations, "{expected:?}");
    };
    check(Confirmed::Unchanged, 0).await;
    // The cache still has the grant.
    fixture.world.advance(Duration::from_secs(2));
    check(Confirmed::Unchanged, 0).await;
    fixture.keyring.forget(Some(&PartnerId::parse("mill").unwrap()));
    check(Confirmed::Unchanged, 0).await;
    fixture.change(|partner| partner.format = Some("xml".to_owned())).await;
    check(Confirmed::Unchanged, 0).await;
    fixture.keyring.forget(Some(&shop()));
    // Reads the key and its partner.
    check(Confirmed::Replaced, 2).await;
    check(Confirmed::Unchanged, 0).await;
    fixture.change(|partner| partner.suspend(Scope::Admin)).await;
    fixture.keyring.forget(Some(&shop()));
    check(Confirmed::Ended, 2).await;
    check(Confirmed::Ended, 0).await;
}

#[tokio::test]
async fn a_change_of_another_partner_does_not_end_the_standing_of_a_grant() {
    let fixture = fixture().await;
    let lasts = async |partner: Option<&PartnerId>| {
        let key = fixture.keyring.look_up(fixture.key.expose()).await.unwrap().unwrap();
        fixture.keyring.forget(partner);
        key.standing.is_unchanged()
    };
    let mut lasting = Vec::new();
    for number in 0..20 {
        let other = PartnerId::parse(&format!("other{number}")).unwrap();
        lasting.push(lasts(Some(&other)).await);
    }
    let lasting = lasting.iter().filter(|lasts| **lasts).count();
    assert!(lasting > 10, "{lasting} of 20: few have the place of the partner");
    assert!(!lasts(Some(&shop())).await);
    assert!(!lasts(None).await);
}
