//! Partners and their keys, managed by operators.

use actix_web::test::TestRequest;
use futures::future::join_all;
use postonce_shared::ports::world::World as _;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use serde_json::{Value, json};

use super::test_bank::{ACCOUNT, Answer, TestBank, json as with_json};

const PARTNERS: &str = "/v1/admin/partners";
const EVERYTHING: &str = r#"{"reach":{"everything":true}}"#;
const USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";
const SECRET: &str = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U=";
const OTHER_SECRET: &str = "b3RoZXJvdGhlcm90aGVyb3RoZXJvdGhlcm90aGVyb3Q=";

async fn post(bank: &TestBank, path: &str, body: &str) -> Answer {
    bank.call_as_shop(with_json(TestRequest::post().uri(&format!("{PARTNERS}/{path}")), body)).await
}

async fn delete(bank: &TestBank, path: &str) -> Answer {
    bank.call_as_shop(TestRequest::delete().uri(&format!("{PARTNERS}/{path}"))).await
}

async fn put(bank: &TestBank, id: &str, body: &str) -> Answer {
    bank.put(&format!("{PARTNERS}/{id}"), body).await
}

/// Adds a key with that scope. Returns the key and its id.
async fn new_key(bank: &TestBank, id: &str, scope: &str) -> (String, String) {
    let added = post(bank, &format!("{id}/keys"), &json!({ "scopes": [scope] }).to_string()).await;
    assert_eq!(added.status, 201, "{added:?}");
    assert_eq!(added.header("cache-control"), Some("no-store"));
    (added.body["key"].as_str().unwrap().to_owned(), added.body["key_id"].as_str().unwrap().to_owned())
}

async fn status_with(bank: &TestBank, key: &str, path: &str) -> u16 {
    let request = TestRequest::get().uri(path).insert_header(("authorization", format!("Bearer {key}")));
    bank.call(request).await.status
}

#[actix_web::test]
async fn a_partner_is_created_changed_suspended_and_resumed() {
    let bank = TestBank::with_account().await;
    assert_eq!(bank.get(&format!("{PARTNERS}/mill")).await.problem(), (404, "partner_unknown"));
    let made = put(&bank, "mill", EVERYTHING).await;
    assert_eq!((made.status, &made.body["reach"]), (201, &json!({ "everything": true })), "{made:?}");
    assert_eq!((&made.body["status"], &made.body["keys"]), (&json!("active"), &json!([])));
    let (key, key_id) = new_key(&bank, "mill", "read").await;
    assert_eq!(status_with(&bank, &key, ACCOUNT).await, 200);

    let narrow =
        format!(r#"{{"reach":{{"users":["{USER}"]}},"rate":{{"per_second":5,"burst":9}},"format":"wwi"}}"#);
    let changed = put(&bank, "mill", &narrow).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(changed.body["reach"], json!({ "users": [USER], "accounts": [] }));
    assert_eq!(changed.body["keys"][0]["scopes"], json!(["read"]), "the partner keeps its keys");
    assert_eq!(changed.body["keys"][0]["key_id"], json!(key_id));

    let suspended = put(&bank, "mill", r#"{"reach":{"users":[]},"status":"suspended"}"#).await;
    assert_eq!(
        suspended.body["rate"],
        json!({ "per_second": 5, "burst": 9 }),
        "members that are left out keep their value"
    );
    assert_eq!(status_with(&bank, &key, ACCOUNT).await, 401, "refused at once");
    put(&bank, "mill", EVERYTHING).await;
    assert_eq!(
        status_with(&bank, &key, ACCOUNT).await,
        401,
        "a change of the reach does not resume a partner"
    );
    put(&bank, "mill", r#"{"reach":{"everything":true},"status":"active","rate":null,"format":null}"#).await;
    assert_eq!(status_with(&bank, &key, ACCOUNT).await, 200);
    let found = bank.get(&format!("{PARTNERS}/mill")).await.body;
    assert!(found.get("rate").is_none() && found.get("format").is_none(), "null removes a member: {found}");
}

#[actix_web::test]
async fn two_keys_are_valid_at_a_time_for_rotation() {
    let bank = TestBank::with_account().await;
    put(&bank, "mill", EVERYTHING).await;
    let (old, old_id) = new_key(&bank, "mill", "read").await;
    let (new, _) = new_key(&bank, "mill", "read").await;
    let third = post(&bank, "mill/keys", r#"{"scopes":["read"]}"#).await;
    assert_eq!(third.problem(), (409, "keys_too_many"));
    let listed = bank.store.api_keys.list().await.unwrap();
    assert_eq!(
        listed.iter().filter(|key| key.partner.as_str() == "mill").count(),
        2,
        "a refused key is not stored"
    );
    assert_eq!(
        (status_with(&bank, &old, ACCOUNT).await, status_with(&bank, &new, ACCOUNT).await),
        (200, 200)
    );
    let revoked = delete(&bank, &format!("mill/keys/{old_id}")).await;
    assert_eq!((revoked.status, revoked.body["keys"].as_array().unwrap().len()), (200, 1), "{revoked:?}");
    assert_eq!(
        (status_with(&bank, &old, ACCOUNT).await, status_with(&bank, &new, ACCOUNT).await),
        (401, 200)
    );
    assert_eq!(delete(&bank, &format!("mill/keys/{old_id}")).await.status, 200, "repeating changes nothing");
    assert_eq!(delete(&bank, "mill/keys/0123456789abcdef").await.problem(), (404, "key_unknown"));
    let keys = bank.get(&format!("{PARTNERS}/shop")).await.body["keys"].clone();
    let of_another = format!("mill/keys/{}", keys[0]["key_id"].as_str().unwrap());
    assert_eq!(delete(&bank, "nobody/keys/0123456789abcdef").await.problem(), (404, "partner_unknown"));
    // A key of the shop, revoked at the path of the mill.
    let operator = NewKey::random();
    bank.add_key(&operator, "operator", &[Scope::Admin]).await;
    let request = TestRequest::delete().uri(&format!("{PARTNERS}/{of_another}"));
    let answer = bank.call(super::test_bank::with_key(request, &operator)).await;
    assert_eq!(answer.problem(), (404, "key_unknown"));
}

#[actix_web::test]
async fn concurrent_additions_never_create_a_third_key() {
    let bank = TestBank::with_account().await;
    put(&bank, "mill", EVERYTHING).await;
    let added = join_all((0..6).map(|_| post(&bank, "mill/keys", r#"{"scopes":["read"]}"#))).await;
    let keys: Vec<&str> = added.iter().filter_map(|answer| answer.body["key"].as_str()).collect();
    assert_eq!(keys.len(), 2, "{added:?}");
    for key in keys {
        assert_eq!(status_with(&bank, key, ACCOUNT).await, 200, "an issued key is valid");
    }
    assert!(added.iter().all(|it| it.status == 201 || it.problem() == (409, "keys_too_many")));
}

#[actix_web::test]
async fn an_operator_cannot_revoke_its_own_access() {
    let bank = TestBank::new().await;
    let keys = bank.get(&format!("{PARTNERS}/shop")).await.body["keys"].clone();
    let own = format!("shop/keys/{}", keys[0]["key_id"].as_str().unwrap());
    assert_eq!(delete(&bank, &own).await.problem(), (409, "caller_shut_out"));
    let suspend = r#"{"reach":{"everything":true},"status":"suspended"}"#;
    assert_eq!(put(&bank, "shop", suspend).await.problem(), (409, "caller_shut_out"));
    let sign = r#"{"reach":{"everything":true},"signature_required":true}"#;
    assert_eq!(put(&bank, "shop", sign).await.problem(), (409, "caller_shut_out"));
    assert_eq!(bank.get(&format!("{PARTNERS}/shop")).await.status, 200);
}

#[actix_web::test]
async fn a_conditional_change_of_an_outdated_version_is_refused() {
    let bank = TestBank::new().await;
    let made = put(&bank, "mill", EVERYTHING).await;
    let seen = made.header("etag").unwrap().to_owned();
    assert_eq!(bank.get(&format!("{PARTNERS}/mill")).await.header("etag"), Some(seen.as_str()));
    let put_if = async |etag: &str, id: &str, body: &str| {
        let request = TestRequest::put().uri(&format!("{PARTNERS}/{id}")).insert_header(("if-match", etag));
        bank.call_as_shop(with_json(request, body)).await
    };
    let narrow = format!(r#"{{"reach":{{"users":["{USER}"]}}}}"#);
    assert_eq!(put_if(&seen, "mill", &narrow).await.status, 200);
    assert_eq!(put_if(&seen, "mill", EVERYTHING).await.problem(), (412, "precondition_failed"));
    assert_eq!(put_if("*", "nobody", EVERYTHING).await.problem(), (412, "precondition_failed"));
    assert_eq!(bank.get(&format!("{PARTNERS}/nobody")).await.status, 404, "nothing was created");
    assert_eq!(put_if("*", "mill", EVERYTHING).await.status, 200);

    let unsigned = bank.get(&format!("{PARTNERS}/mill")).await.header("etag").unwrap().to_owned();
    let key = json!({ "key_id": "k1", "algorithm": "hmac-sha256", "material": SECRET }).to_string();
    let signing = post(&bank, "mill/signature-keys", &key).await.header("etag").unwrap().to_owned();
    assert_eq!(put_if(&unsigned, "mill", EVERYTHING).await.problem(), (412, "precondition_failed"));
    let same = put_if(&signing, "mill", EVERYTHING).await;
    assert_eq!((same.status, same.header("etag")), (200, Some(signing.as_str())), "nothing changed");

    // A key of the same name and time with other material, which is never shown.
    assert_eq!(delete(&bank, "mill/signature-keys/k1").await.status, 200);
    let key = json!({ "key_id": "k1", "algorithm": "hmac-sha256", "material": OTHER_SECRET }).to_string();
    assert_eq!(post(&bank, "mill/signature-keys", &key).await.status, 200);
    assert_eq!(put_if(&signing, "mill", EVERYTHING).await.problem(), (412, "precondition_failed"));
}

#[actix_web::test]
async fn signature_keys_are_added_removed_and_never_shown() {
    let bank = TestBank::new().await;
    put(&bank, "mill", EVERYTHING).await;
    let key = |id: &str| json!({ "key_id": id, "algorithm": "hmac-sha256", "material": SECRET }).to_string();
    let added = post(&bank, "mill/signature-keys", &key("k1")).await;
    assert_eq!(added.body["signature_keys"], json!([{ "key_id": "k1", "algorithm": "hmac-sha256" }]));
    assert_eq!(post(&bank, "mill/signature-keys", &key("k1")).await.status, 200, "adding the same key again");
    let other = key("k1").replace("c2Vj", "AAAA");
    assert_eq!(post(&bank, "mill/signature-keys", &other).await.problem(), (409, "signature_key_exists"));
    post(&bank, "mill/signature-keys", &key("k2")).await;
    assert_eq!(post(&bank, "mill/signature-keys", &key("k3")).await.problem(), (409, "keys_too_many"));
    assert_eq!(post(&bank, "nobody/signature-keys", &key("k1")).await.problem(), (404, "partner_unknown"));
    let required = put(&bank, "mill", r#"{"reach":{"everything":true},"signature_required":true}"#).await;
    assert_eq!((required.status, &required.body["signature_required"]), (200, &json!(true)));
    assert!(!required.text.contains(SECRET) && !required.text.contains("material"), "{required:?}");
    assert_eq!(delete(&bank, "mill/signature-keys/k1").await.status, 200);
    assert_eq!(delete(&bank, "mill/signature-keys/k1").await.problem(), (404, "key_unknown"));
    assert_eq!(delete(&bank, "mill/signature-keys/k2").await.problem(), (409, "signature_key_needed"));
}

#[actix_web::test]
async fn partners_are_listed_in_pages_by_name() {
    let bank = TestBank::new().await;
    for id in ["mill", "bakery", "zoo"] {
        put(&bank, id, EVERYTHING).await;
    }
    let ids = |page: &Value| -> Vec<String> {
        let partners = page["partners"].as_array().unwrap().iter();
        partners.map(|it| it["partner_id"].as_str().unwrap().to_owned()).collect()
    };
    let whole = bank.get(PARTNERS).await.body;
    assert_eq!(ids(&whole), ["bakery", "mill", "shop", "zoo"]);
    assert_eq!(whole["next_cursor"], Value::Null);
    let first = bank.get(&format!("{PARTNERS}?limit=3")).await.body;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = bank.get(&format!("{PARTNERS}?limit=3&cursor={cursor}")).await.body;
    assert_eq!((ids(&second), &second["next_cursor"]), (vec!["zoo".to_owned()], &Value::Null));
    assert_eq!(bank.get(&format!("{PARTNERS}?cursor=x")).await.problem(), (400, "cursor_invalid"));
}

#[actix_web::test]
async fn violations_name_their_field() {
    let bank = TestBank::new().await;
    let answer = put(&bank, "Mill", EVERYTHING).await;
    assert_eq!((answer.problem(), answer.fields()), ((400, "path_invalid"), vec!["partner_id"]));
    let answer = put(&bank, "mill", r#"{"status":"asleep"}"#).await;
    assert_eq!((answer.problem(), answer.fields()), ((422, "validation_failed"), vec!["reach", "status"]));
    // The number is not rounded to 100.
    let rate = r#"{"reach":{"everything":true},"rate":{"per_second":99.99999999999999999,"burst":100}}"#;
    let answer = put(&bank, "mill", rate).await;
    assert_eq!((answer.problem(), answer.fields()), ((422, "validation_failed"), vec!["rate"]));
    let answer = post(&bank, "shop/keys", r#"{"scopes":["fly"]}"#).await;
    assert_eq!((answer.problem(), answer.fields()), ((422, "validation_failed"), vec!["scopes[0]"]));
    assert_eq!(
        post(&bank, "nobody/keys", r#"{"scopes":["read"]}"#).await.problem(),
        (404, "partner_unknown")
    );
}

#[actix_web::test]
async fn a_key_with_an_expiry_is_refused_from_then_on_as_an_unknown_one() {
    let bank = TestBank::with_account().await;
    put(&bank, "mill", EVERYTHING).await;
    let expires_at = bank.world.now().after(std::time::Duration::from_secs(60));
    let body = json!({ "scopes": ["read"], "expires_at": expires_at.to_string() }).to_string();
    let added = post(&bank, "mill/keys", &body).await;
    assert_eq!((added.status, &added.body["expires_at"]), (201, &json!(expires_at.to_string())), "{added:?}");
    let key = added.body["key"].as_str().unwrap().to_owned();
    assert_eq!(status_with(&bank, &key, ACCOUNT).await, 200);
    // Its use is recorded in the background.
    let key_id = added.body["key_id"].as_str().unwrap();
    while bank.store.api_keys.find(key_id).await.unwrap().unwrap().last_used_at.is_none() {
        actix_web::rt::task::yield_now().await;
    }
    let listed = async || bank.get(&format!("{PARTNERS}/mill")).await.body["keys"][0].clone();
    let listed_key = listed().await;
    assert_eq!(listed_key["expires_at"], json!(expires_at.to_string()));
    assert_eq!(listed_key["last_used_at"], json!(bank.world.now().to_string()));
    bank.world.advance(std::time::Duration::from_secs(60));
    let request = TestRequest::get().uri(ACCOUNT).insert_header(("authorization", format!("Bearer {key}")));
    let (expired, unknown) = (bank.call(request).await, NewKey::random());
    let request = super::test_bank::with_key(TestRequest::get().uri(ACCOUNT), &unknown);
    let unknown = bank.call(request).await;
    assert_eq!(expired.problem(), (401, "api_key_invalid"));
    assert_eq!((expired.problem(), &expired.body["detail"]), (unknown.problem(), &unknown.body["detail"]));
    assert_eq!(
        listed().await["expires_at"],
        json!(expires_at.to_string()),
        "it is listed until it is revoked"
    );
    for wrong in ["1999-01-01T00:00:00Z", "soon"] {
        let body = json!({ "scopes": ["read"], "expires_at": wrong }).to_string();
        assert_eq!(post(&bank, "mill/keys", &body).await.fields(), ["expires_at"], "{wrong}");
    }
}
