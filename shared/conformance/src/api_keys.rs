//! Tests of the API keys of partners.

use super::case::{Case, moment, partner};
use postonce_shared::testing::prelude::*;

/// Tests an implementation of [`postonce_shared::ports::api_keys::ApiKeys`].
pub async fn api_keys_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    a_key_is_read_as_it_was_added(&case().await).await;
    the_first_key_with_an_id_is_kept(&case().await).await;
    a_revoked_key_stays_revoked(&case().await).await;
    keys_are_listed_by_id(&case().await).await;
    the_latest_use_of_a_key_is_kept(&case().await).await;
}

impl Case {
    fn api_key(&self) -> ApiKeyRecord {
        let mut hash = [0; 32];
        for half in hash.chunks_mut(16) {
            half.copy_from_slice(self.world.uuid().as_bytes());
        }
        ApiKeyRecord {
            id: hex::encode(&hash[..8]),
            hash,
            partner: partner("shop_12"),
            scopes: vec!["transactions.submit".to_owned(), "accounts.read".to_owned()],
            created_at: moment(0),
            revoked_at: None,
            expires_at: None,
            last_used_at: None,
        }
    }

    async fn api_key_now(&self, id: &str) -> Option<ApiKeyRecord> {
        self.store.api_keys.find(id).await.unwrap()
    }
}

async fn a_key_is_read_as_it_was_added(case: &Case) {
    let key = case.api_key();
    assert_eq!(case.api_key_now(&key.id).await, None, "the key was not added");
    let bare = ApiKeyRecord { scopes: Vec::new(), ..case.api_key() };
    let expiring = ApiKeyRecord { expires_at: Some(moment(9)), ..case.api_key() };
    let used = ApiKeyRecord { last_used_at: Some(moment(8)), ..case.api_key() };
    for record in [key, bare, expiring, used] {
        case.store.api_keys.add(&record).await.unwrap();
        assert_eq!(case.api_key_now(&record.id).await, Some(record), "the key is read as it was added");
    }
}

async fn the_first_key_with_an_id_is_kept(case: &Case) {
    let first = case.api_key();
    let second = ApiKeyRecord { id: first.id.clone(), partner: partner("thief"), ..case.api_key() };
    for record in [&first, &second, &first] {
        case.store.api_keys.add(record).await.unwrap();
        let stored = case.api_key_now(&first.id).await;
        assert_eq!(stored.as_ref(), Some(&first), "adding the same id again has no effect");
    }
}

async fn a_revoked_key_stays_revoked(case: &Case) {
    let key = case.api_key();
    let api_keys = &case.store.api_keys;
    assert!(!api_keys.revoke(&key.id, moment(1)).await.unwrap(), "the key does not exist");
    assert_eq!(case.api_key_now(&key.id).await, None, "revoking an unknown key creates none");
    api_keys.add(&key).await.unwrap();
    for time in [moment(2), moment(3), moment(1)] {
        assert!(api_keys.revoke(&key.id, time).await.unwrap(), "the key exists");
        let revoked = ApiKeyRecord { revoked_at: Some(moment(2)), ..key.clone() };
        assert_eq!(case.api_key_now(&key.id).await, Some(revoked), "the first time is kept");
    }
    api_keys.add(&key).await.unwrap();
    let stored = case.api_key_now(&key.id).await.unwrap();
    assert_eq!(stored.revoked_at, Some(moment(2)), "adding the key again does not reactivate it");
}

async fn keys_are_listed_by_id(case: &Case) {
    let mut keys: Vec<ApiKeyRecord> = (0..6).map(|_| case.api_key()).collect();
    for key in &keys {
        case.store.api_keys.add(key).await.unwrap();
    }
    assert!(case.store.api_keys.revoke(&keys[2].id, moment(5)).await.unwrap(), "the key exists");
    keys[2].revoked_at = Some(moment(5));
    keys.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    let listed = case.store.api_keys.list().await.unwrap();
    assert!(listed.is_sorted_by(|one, other| one.id < other.id), "each once, ordered by id");
    // Other tests may use the store at the same time.
    let ours: Vec<ApiKeyRecord> =
        listed.into_iter().filter(|listed| keys.iter().any(|key| key.id == listed.id)).collect();
    assert_eq!(ours, keys, "all keys are listed, including revoked ones");
}

async fn the_latest_use_of_a_key_is_kept(case: &Case) {
    let key = ApiKeyRecord { expires_at: Some(moment(9)), ..case.api_key() };
    let api_keys = &case.store.api_keys;
    assert!(!api_keys.mark_used(&key.id, moment(1)).await.unwrap(), "the key does not exist");
    assert_eq!(case.api_key_now(&key.id).await, None, "the use of an unknown key creates none");
    api_keys.add(&key).await.unwrap();
    for (time, expected) in [(2, 2), (5, 5), (3, 5), (5, 5)] {
        assert!(api_keys.mark_used(&key.id, moment(time)).await.unwrap(), "the key exists");
        let used = ApiKeyRecord { last_used_at: Some(moment(expected)), ..key.clone() };
        assert_eq!(case.api_key_now(&key.id).await, Some(used), "the latest time is kept, and all else");
    }
    assert!(api_keys.revoke(&key.id, moment(6)).await.unwrap());
    assert!(api_keys.mark_used(&key.id, moment(7)).await.unwrap());
    let both = ApiKeyRecord { revoked_at: Some(moment(6)), last_used_at: Some(moment(7)), ..key.clone() };
    assert_eq!(case.api_key_now(&key.id).await, Some(both.clone()), "a use does not reactivate it");
    assert!(case.store.api_keys.list().await.unwrap().contains(&both), "the list shows both");
}
