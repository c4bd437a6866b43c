use std::time::Duration;

use postonce_shared::access::partner_cache::{ABSENT_TTL, GRANT_FRESH};
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::domain::account::{Revision, Versioned};
use postonce_shared::domain::partner::{ActiveKey, PartnerStatus, Reach};
use postonce_shared::ports::sync_store::Swapped;

use super::*;
use crate::access::api_keys::NewKey;

fn shop() -> PartnerId {
    PartnerId::parse("shop").unwrap()
}

struct Desk {
    store: Store,
    world: Arc<TestWorld>,
    keyring: Keyring,
    key: NewKey,
}

async fn desk() -> Desk {
    let world = Arc::new(TestWorld::new(1));
    let store = MemoryStore::new(world.clone());
    let key = NewKey::random();
    let record = key.record(shop(), &[Scope::Read], &*world);
    store.api_keys.add(&record).await.unwrap();
    let keys = vec![ActiveKey { id: record.id, created_at: record.created_at }];
    let partner = Partner { keys, ..Partner::active(shop(), Reach::Everything, world.now()) };
    assert!(matches!(store.partners.save(&partner, None).await.unwrap(), Swapped::Done(_)));
    let keyring = Keyring::new(&store, world.clone());
    Desk { store, world, keyring, key }
}

impl Desk {
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

impl Desk {
    /// Changes the record of the partner, without telling the keyring.
    async fn change(&self, change: impl Fn(&mut Partner)) {
        let mut stored = self.store.partners.find(&shop()).await.unwrap().unwrap();
        change(&mut stored.value);
        let saved = self.store.partners.save(&stored.value, Some(&stored.revision)).await.unwrap();
        assert!(matches!(saved, Swapped::Done(_)));
    }
}

#[tokio::test]
async fn the_store_is_asked_once_for_a_good_key_and_once_for_a_wrong_one() {
    let desk = desk().await;
    let key = desk.key.expose().to_owned();
    desk.check(&key, true, 2).await;
    desk.check(&key, true, 0).await;
    desk.check("wrong", false, 1).await;
    desk.check("wrong", false, 0).await;
    desk.world.advance(ABSENT_TTL);
    desk.check("wrong", false, 1).await;
    desk.check(&key, true, 0).await;
    desk.check(&"long".repeat(100), false, 0).await;
}

#[tokio::test]
async fn a_key_works_only_while_its_row_its_listing_and_its_partner_do() {
    let desk = desk().await;
    let key = desk.key.expose().to_owned();
    let id = id_of(&hash(&key));
    let check = async |known: bool| {
        desk.keyring.forget(None);
        assert_eq!(desk.keyring.look_up(&key).await.unwrap().is_some(), known);
    };
    check(true).await;
    desk.change(|partner| partner.status = PartnerStatus::Suspended).await;
    check(false).await;
    desk.change(|partner| partner.status = PartnerStatus::Active).await;
    check(true).await;
    desk.change(|partner| partner.keys[0].id = "another".to_owned()).await;
    check(false).await;
    desk.change(|partner| partner.keys[0].id = id.clone()).await;
    check(true).await;
    assert!(desk.store.api_keys.revoke(&id, desk.world.now()).await.unwrap());
    check(false).await;
}

#[tokio::test]
async fn a_change_counts_at_once_where_the_ring_is_heard_and_in_a_minute_where_not() {
    let desk = desk().await;
    let key = desk.key.expose().to_owned();
    let suspend = |status| move |partner: &mut Partner| partner.status = status;
    desk.check(&key, true, 2).await;
    desk.change(suspend(PartnerStatus::Suspended)).await;
    desk.keyring.forget(Some(&PartnerId::parse("other").unwrap()));
    let before = desk.operations();
    assert!(desk.keyring.look_up(&key).await.unwrap().is_some(), "the ring was for another partner");
    assert_eq!(desk.operations(), before, "which costs nothing");
    desk.keyring.forget(Some(&shop()));
    desk.check(&key, false, 2).await;
    desk.change(suspend(PartnerStatus::Active)).await;
    desk.check(&key, false, 0).await;
    desk.keyring.forget(Some(&shop()));
    desk.check(&key, true, 2).await;
    desk.change(suspend(PartnerStatus::Suspended)).await;
    desk.world.advance(GRANT_FRESH);
    desk.check(&key, false, 2).await;
}

/// Partners that are read and then told about late: whoever asks gets what was true before the ring.
struct Late {
    inner: Arc<dyn Partners>,
    gate: tokio::sync::Semaphore,
    is_away: AtomicBool,
}

#[async_trait::async_trait]
impl Partners for Late {
    async fn list(&self, after: Option<&PartnerId>, limit: usize) -> Result<Vec<Partner>, StoreFault> {
        self.inner.list(after, limit).await
    }

    async fn save(&self, partner: &Partner, expected: Option<&Revision>) -> Result<Swapped, StoreFault> {
        self.inner.save(partner, expected).await
    }

    async fn find(&self, id: &PartnerId) -> Result<Option<Versioned<Partner>>, StoreFault> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(StoreFault::Unavailable { doing: "reading a partner", source: "it is away".into() });
        }
        let found = self.inner.find(id).await;
        self.gate.acquire().await.unwrap().forget();
        found
    }
}

async fn late_desk() -> (Desk, Arc<Late>) {
    let mut desk = desk().await;
    let late = Arc::new(Late {
        inner: Arc::clone(&desk.store.partners),
        gate: tokio::sync::Semaphore::new(0),
        is_away: AtomicBool::new(false),
    });
    desk.keyring = Keyring::new(&Store { partners: late.clone(), ..desk.store.clone() }, desk.world.clone());
    (desk, late)
}

#[tokio::test]
async fn a_look_up_that_began_before_a_ring_is_not_remembered_after_it() {
    let (desk, late) = late_desk().await;
    let key = desk.key.expose();
    let mut begun = std::pin::pin!(desk.keyring.look_up(key));
    assert!(futures::poll!(begun.as_mut()).is_pending(), "it has read the partner as it was");
    desk.change(|partner| partner.status = PartnerStatus::Suspended).await;
    desk.keyring.forget(Some(&shop()));
    late.gate.add_permits(2);
    assert!(begun.await.unwrap().is_some(), "it was asked before the change");
    assert!(desk.keyring.look_up(key).await.unwrap().is_none(), "and nobody after it gets that answer");
}

#[tokio::test]
async fn a_grant_outlives_a_short_outage_and_no_long_one() {
    let (desk, late) = late_desk().await;
    let key = desk.key.expose();
    late.gate.add_permits(1);
    let begun_at = desk.world.uptime();
    assert!(desk.keyring.look_up(key).await.unwrap().is_some());
    late.is_away.store(true, Ordering::Relaxed);
    let mut lasted = Duration::ZERO;
    while desk.keyring.look_up(key).await.is_ok_and(|grant| grant.is_some()) {
        lasted = desk.world.uptime().saturating_sub(begun_at);
        desk.world.advance(Duration::from_secs(1));
        assert!(lasted < Duration::from_secs(300), "five minutes are the most that is promised");
    }
    assert!(
        lasted > GRANT_FRESH.saturating_mul(2),
        "an outage of a minute refuses nobody, but {lasted:?} did"
    );
}

#[tokio::test]
async fn an_outage_after_a_ring_lets_nobody_in() {
    let (desk, late) = late_desk().await;
    late.gate.add_permits(1);
    assert!(desk.keyring.look_up(desk.key.expose()).await.unwrap().is_some());
    late.is_away.store(true, Ordering::Relaxed);
    desk.keyring.forget(Some(&shop()));
    assert!(desk.keyring.look_up(desk.key.expose()).await.is_err());
}

#[test]
fn the_whole_hash_has_to_match() {
    let world = TestWorld::new(1);
    let key = NewKey::random();
    let record = key.record(PartnerId::parse("shop").unwrap(), &[], &world);
    let mut forged = hash(key.expose());
    assert!(opens(&record, &forged));
    forged[31] ^= 1;
    assert_eq!(id_of(&forged), record.id);
    assert!(!opens(&record, &forged));
}
