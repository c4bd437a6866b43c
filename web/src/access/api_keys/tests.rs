use std::sync::Arc;

use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::memory::world::TestWorld;

use super::*;

fn bank() -> (Store, Arc<TestWorld>) {
    let world = Arc::new(TestWorld::new(1));
    (MemoryStore::new(world.clone()), world)
}

async fn working_keys(store: &Store) -> Vec<String> {
    let records = store.api_keys.list().await.unwrap();
    records.into_iter().filter(|record| record.revoked_at.is_none()).map(|record| record.id).collect()
}

fn id(key: &NewKey) -> String {
    id_of(&hash(key.expose()))
}

#[test]
fn a_random_key_is_long_and_never_the_same() {
    let (one, other) = (NewKey::random(), NewKey::random());
    assert_eq!(one.expose().len(), 46);
    assert!(one.expose().starts_with("po_"));
    assert_ne!(one.expose(), other.expose());
    assert!(!format!("{one:?}").contains(one.expose()), "a key must not be printed by accident");
}

#[test]
fn configured_keys_have_a_minimum_of_length() {
    let check = |text: &str, sound: bool| {
        assert_eq!(NewKey::configured(&SecretString::from(text)).is_ok(), sound, "{text}");
    };
    check("", false);
    check("fifteen-letters", false);
    check("sixteen-letters!", true);
    check("with white space in it", false);
    check("mit-ümläuten-drin", false);
    check(&"a".repeat(256), true);
    check(&"a".repeat(257), false);
}

#[tokio::test]
async fn an_empty_store_gets_one_key_once() {
    let (store, world) = bank();
    let first = FirstKey::try_new(None).unwrap();
    let Established::Made(key) = first.establish(&store, &*world).await.unwrap() else { panic!("not made") };
    assert_eq!(working_keys(&store).await, [id(&key)]);
    let second = FirstKey::try_new(None).unwrap();
    assert!(matches!(second.establish(&store, &*world).await.unwrap(), Established::Before));
    assert_eq!(working_keys(&store).await, [id(&key)]);
    // The same value asked again, as after an unclear answer, still knows its key.
    assert!(matches!(first.establish(&store, &*world).await.unwrap(), Established::Made(_)));
}

#[tokio::test]
async fn processes_that_start_at_once_agree() {
    let (store, world) = bank();
    let starts: Vec<FirstKey> = (0..5).map(|_| FirstKey::try_new(None).unwrap()).collect();
    let established = futures::future::join_all(starts.iter().map(|it| it.establish(&store, &*world))).await;
    let made: Vec<NewKey> = established
        .into_iter()
        .filter_map(|it| match it.unwrap() {
            Established::Made(key) => Some(key),
            Established::Configured | Established::Before | Established::ConfiguredIgnored => None,
        })
        .collect();
    assert_eq!(made.len(), 1);
    assert_eq!(working_keys(&store).await, [id(&made[0])]);
}

#[tokio::test]
async fn a_configured_key_is_taken_up_by_all_who_have_it() {
    let (store, world) = bank();
    let configured = SecretString::from("a key of sixteen".replace(' ', "-"));
    for _ in 0..2 {
        let start = FirstKey::try_new(Some(&configured)).unwrap();
        assert!(matches!(start.establish(&store, &*world).await.unwrap(), Established::Configured));
    }
    let other = FirstKey::try_new(Some(&SecretString::from("another-key-of-somebody"))).unwrap();
    assert!(matches!(other.establish(&store, &*world).await.unwrap(), Established::ConfiguredIgnored));
    assert_eq!(working_keys(&store).await, [id_of(&hash(configured.expose_secret()))]);
}

#[tokio::test]
async fn a_store_with_keys_of_partners_needs_no_first_one() {
    let (store, world) = bank();
    let record = NewKey::random().record(PartnerId::parse("shop").unwrap(), &[Scope::Admin], &*world);
    store.api_keys.add(&record).await.unwrap();
    let start = FirstKey::try_new(None).unwrap();
    assert!(matches!(start.establish(&store, &*world).await.unwrap(), Established::Before));
    assert_eq!(working_keys(&store).await, [record.id]);
}
