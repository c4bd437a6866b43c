use std::sync::Arc;

use postonce_shared::testing::prelude::*;

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
    assert_eq!(one.expose().len(), 51);
    assert!(one.expose().starts_with("po_"));
    assert_ne!(one.expose(), other.expose());
    assert!(!format!("{one:?}").contains(one.expose()), "a key must not be printed by accident");
}

#[test]
fn configured_keys_have_a_minimum_length() {
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
async fn an_empty_store_gets_exactly_one_first_key() {
    let (store, world) = bank();
    let first = FirstKey::try_new(None, FirstKeyPlace::Terminal).unwrap();
    let FirstKeyOutcome::Made(key) = first.establish(&store, &*world).await.unwrap() else {
        panic!("no key was generated")
    };
    assert_eq!(working_keys(&store).await, [id(&key)]);
    let second = FirstKey::try_new(None, FirstKeyPlace::Terminal).unwrap();
    assert!(matches!(second.establish(&store, &*world).await.unwrap(), FirstKeyOutcome::AlreadyPresent));
    assert_eq!(working_keys(&store).await, [id(&key)]);
    // A retry on the same value, as after a lost answer, still returns the key.
    assert!(matches!(first.establish(&store, &*world).await.unwrap(), FirstKeyOutcome::Made(_)));
}

#[tokio::test]
async fn processes_that_start_concurrently_agree_on_one_key() {
    let (store, world) = bank();
    let starts: Vec<FirstKey> =
        (0..5).map(|_| FirstKey::try_new(None, FirstKeyPlace::Terminal).unwrap()).collect();
    let established = futures::future::join_all(starts.iter().map(|it| it.establish(&store, &*world))).await;
    let made: Vec<NewKey> = established
        .into_iter()
        .filter_map(|it| match it.unwrap() {
            FirstKeyOutcome::Made(key) => Some(key),
            FirstKeyOutcome::Configured
            | FirstKeyOutcome::AlreadyPresent
            | FirstKeyOutcome::ConfiguredIgnored
            | FirstKeyOutcome::NotKept(_) => None,
        })
        .collect();
    assert_eq!(made.len(), 1);
    assert_eq!(working_keys(&store).await, [id(&made[0])]);
}

#[tokio::test]
async fn all_processes_with_the_configured_key_establish_it() {
    let (store, world) = bank();
    let configured = SecretString::from("a key of sixteen".replace(' ', "-"));
    for _ in 0..2 {
        let start = FirstKey::try_new(Some(&configured), FirstKeyPlace::Terminal).unwrap();
        assert!(matches!(start.establish(&store, &*world).await.unwrap(), FirstKeyOutcome::Configured));
    }
    let other =
        FirstKey::try_new(Some(&SecretString::from("another-key-of-somebody")), FirstKeyPlace::Terminal)
            .unwrap();
    assert!(matches!(other.establish(&store, &*world).await.unwrap(), FirstKeyOutcome::ConfiguredIgnored));
    assert_eq!(working_keys(&store).await, [id_of(&hash(configured.expose_secret()))]);
}

#[tokio::test]
async fn a_store_with_a_partner_gets_no_first_key() {
    let (store, world) = bank();
    let shop = Partner::active(PartnerId::parse("shop").unwrap(), Reach::Everything, world.now());
    assert!(matches!(PartnerRecords::new(&store).save(&shop, None).await.unwrap(), Swapped::Done(_)));
    let start = FirstKey::try_new(None, FirstKeyPlace::Terminal).unwrap();
    assert!(matches!(start.establish(&store, &*world).await.unwrap(), FirstKeyOutcome::AlreadyPresent));
    assert_eq!(working_keys(&store).await, Vec::<String>::new());
}

#[test]
fn a_typing_error_is_recognized() {
    for _ in 0..20 {
        let key = NewKey::random().expose().to_owned();
        assert!(is_generated_key(&key) && !is_mistyped(&key), "{key}");
        for at in KEY_PREFIX.len()..key.len() {
            let other = if key.as_bytes()[at] == b'A' { "B" } else { "A" };
            let mistyped = format!("{}{other}{}", &key[..at], &key[at + 1..]);
            assert!(is_mistyped(&mistyped), "{key} at {at}");
        }
    }
    let without_checksum = format!("{KEY_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode([7; KEY_BYTES]));
    for other in ["", "po_", "a-key-of-sixteen", "po_not base64", "po_AAAA", &without_checksum] {
        assert!(!is_generated_key(other) && !is_mistyped(other), "{other}");
    }
}

#[tokio::test]
async fn a_generated_key_is_kept_in_a_private_file_before_it_is_stored() {
    let (store, world) = bank();
    let folder = tempfile::tempdir().unwrap();
    let files = || -> Vec<std::path::PathBuf> {
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let place = || FirstKeyPlace::Folder(folder.path().to_owned());
    let missing = FirstKeyPlace::Folder(folder.path().join("missing"));
    let refused = FirstKey::try_new(None, missing).unwrap().establish(&store, &*world).await.unwrap();
    assert!(matches!(refused, FirstKeyOutcome::NotKept(_)), "{refused:?}");
    assert_eq!(working_keys(&store).await, Vec::<String>::new(), "no key was made");

    // With concurrent processes, only the file of the valid key remains.
    let starts: Vec<FirstKey> = (0..5).map(|_| FirstKey::try_new(None, place()).unwrap()).collect();
    for established in futures::future::join_all(starts.iter().map(|it| it.establish(&store, &*world))).await
    {
        drop(established.unwrap());
    }
    let [file] = files().try_into().unwrap();
    let key = std::fs::read_to_string(&file).unwrap();
    assert_eq!(working_keys(&store).await, [id_of(&hash(key.trim_end()))]);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    drop(FirstKey::try_new(None, place()).unwrap().establish(&store, &*world).await.unwrap());
    assert_eq!(files(), [file], "a later start writes no file");
}
