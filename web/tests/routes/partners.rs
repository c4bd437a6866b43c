//! Operators decide who may do what.

use actix_web::test::TestRequest;
use futures::future::join_all;
use postonce_web::access::scopes::Scope;
use serde_json::{Value, json};

use super::desk::{ACCOUNT, Answer, Desk, json as with_json};

const PARTNERS: &str = "/v1/admin/partners";
const EVERYTHING: &str = r#"{"reach":{"everything":true}}"#;
const USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";
const SECRET: &str = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U=";

async fn post(desk: &Desk, path: &str, body: &str) -> Answer {
    desk.call_as_shop(with_json(TestRequest::post().uri(&format!("{PARTNERS}/{path}")), body)).await
}

async fn delete(desk: &Desk, path: &str) -> Answer {
    desk.call_as_shop(TestRequest::delete().uri(&format!("{PARTNERS}/{path}"))).await
}

async fn put(desk: &Desk, id: &str, body: &str) -> Answer {
    desk.put(&format!("{PARTNERS}/{id}"), body).await
}

/// Adds a key with that scope; what calls with it, and its id.
async fn new_key(desk: &Desk, id: &str, scope: &str) -> (String, String) {
    let added = post(desk, &format!("{id}/keys"), &json!({ "scopes": [scope] }).to_string()).await;
    assert_eq!(added.status, 201, "{added:?}");
    assert_eq!(added.header("cache-control"), Some("no-store"));
    (added.body["key"].as_str().unwrap().to_owned(), added.body["key_id"].as_str().unwrap().to_owned())
}

async fn status_with(desk: &Desk, key: &str, path: &str) -> u16 {
    let request = TestRequest::get().uri(path).insert_header(("authorization", format!("Bearer {key}")));
    desk.call(request).await.status
}

#[actix_web::test]
async fn a_partner_is_made_changed_suspended_and_resumed() {
    let desk = Desk::with_account().await;
    assert_eq!(desk.get(&format!("{PARTNERS}/mill")).await.problem(), (404, "partner_unknown"));
    let made = put(&desk, "mill", EVERYTHING).await;
    assert_eq!((made.status, &made.body["reach"]), (201, &json!({ "everything": true })), "{made:?}");
    assert_eq!((&made.body["status"], &made.body["keys"]), (&json!("active"), &json!([])));
    let (key, key_id) = new_key(&desk, "mill", "read").await;
    assert_eq!(status_with(&desk, &key, ACCOUNT).await, 200);

    let narrow =
        format!(r#"{{"reach":{{"users":["{USER}"]}},"rate":{{"per_second":5,"burst":9}},"format":"wwi"}}"#);
    let changed = put(&desk, "mill", &narrow).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(changed.body["reach"], json!({ "users": [USER], "accounts": [] }));
    assert_eq!(changed.body["keys"][0]["scopes"], json!(["read"]), "its keys stay");
    assert_eq!(changed.body["keys"][0]["key_id"], json!(key_id));

    let suspended = put(&desk, "mill", r#"{"reach":{"users":[]},"status":"suspended"}"#).await;
    assert_eq!(suspended.body["rate"], json!({ "per_second": 5, "burst": 9 }), "what is left out stays");
    assert_eq!(status_with(&desk, &key, ACCOUNT).await, 401, "from now on");
    put(&desk, "mill", EVERYTHING).await;
    assert_eq!(status_with(&desk, &key, ACCOUNT).await, 401, "a change of the reach resumes nobody");
    put(&desk, "mill", r#"{"reach":{"everything":true},"status":"active","rate":null,"format":null}"#).await;
    assert_eq!(status_with(&desk, &key, ACCOUNT).await, 200);
    let found = desk.get(&format!("{PARTNERS}/mill")).await.body;
    assert!(found.get("rate").is_none() && found.get("format").is_none(), "null takes away: {found}");
}

#[actix_web::test]
async fn two_keys_work_at_a_time_to_change_over() {
    let desk = Desk::with_account().await;
    put(&desk, "mill", EVERYTHING).await;
    let (old, old_id) = new_key(&desk, "mill", "read").await;
    let (new, _) = new_key(&desk, "mill", "read").await;
    let third = post(&desk, "mill/keys", r#"{"scopes":["read"]}"#).await;
    assert_eq!(third.problem(), (409, "keys_too_many"));
    let listed = desk.store.api_keys.list().await.unwrap();
    assert_eq!(
        listed.iter().filter(|key| key.partner.as_str() == "mill").count(),
        2,
        "a refused key leaves no row"
    );
    assert_eq!(
        (status_with(&desk, &old, ACCOUNT).await, status_with(&desk, &new, ACCOUNT).await),
        (200, 200)
    );
    let revoked = delete(&desk, &format!("mill/keys/{old_id}")).await;
    assert_eq!((revoked.status, revoked.body["keys"].as_array().unwrap().len()), (200, 1), "{revoked:?}");
    assert_eq!(
        (status_with(&desk, &old, ACCOUNT).await, status_with(&desk, &new, ACCOUNT).await),
        (401, 200)
    );
    assert_eq!(delete(&desk, &format!("mill/keys/{old_id}")).await.status, 200, "once more changes nothing");
    assert_eq!(delete(&desk, "mill/keys/0123456789abcdef").await.problem(), (404, "key_unknown"));
    let keys = desk.get(&format!("{PARTNERS}/shop")).await.body["keys"].clone();
    let of_another = format!("mill/keys/{}", keys[0]["key_id"].as_str().unwrap());
    assert_eq!(delete(&desk, "nobody/keys/0123456789abcdef").await.problem(), (404, "partner_unknown"));
    // The key of the shop, asked for as one of the mill, by a key of neither.
    let operator = postonce_web::access::api_keys::NewKey::random();
    desk.admit(&operator, "operator", &[Scope::Admin]).await;
    let request = TestRequest::delete().uri(&format!("{PARTNERS}/{of_another}"));
    let answer = desk.call(super::desk::with_key(request, &operator)).await;
    assert_eq!(answer.problem(), (404, "key_unknown"));
}

#[actix_web::test]
async fn operators_who_add_keys_at_once_never_make_three() {
    let desk = Desk::with_account().await;
    put(&desk, "mill", EVERYTHING).await;
    let added = join_all((0..6).map(|_| post(&desk, "mill/keys", r#"{"scopes":["read"]}"#))).await;
    let keys: Vec<&str> = added.iter().filter_map(|answer| answer.body["key"].as_str()).collect();
    assert_eq!(keys.len(), 2, "{added:?}");
    for key in keys {
        assert_eq!(status_with(&desk, key, ACCOUNT).await, 200, "a key that was given out works");
    }
    assert!(added.iter().all(|it| it.status == 201 || it.problem() == (409, "keys_too_many")));
}

#[actix_web::test]
async fn nobody_shuts_itself_out() {
    let desk = Desk::new().await;
    let keys = desk.get(&format!("{PARTNERS}/shop")).await.body["keys"].clone();
    let own = format!("shop/keys/{}", keys[0]["key_id"].as_str().unwrap());
    assert_eq!(delete(&desk, &own).await.problem(), (409, "caller_shut_out"));
    let suspend = r#"{"reach":{"everything":true},"status":"suspended"}"#;
    assert_eq!(put(&desk, "shop", suspend).await.problem(), (409, "caller_shut_out"));
    let sign = r#"{"reach":{"everything":true},"signature_required":true}"#;
    assert_eq!(put(&desk, "shop", sign).await.problem(), (409, "caller_shut_out"));
    assert_eq!(desk.get(&format!("{PARTNERS}/shop")).await.status, 200);
}

#[actix_web::test]
async fn a_change_of_what_somebody_else_changed_is_refused_when_asked_so() {
    let desk = Desk::new().await;
    let made = put(&desk, "mill", EVERYTHING).await;
    let seen = made.header("etag").unwrap().to_owned();
    assert_eq!(desk.get(&format!("{PARTNERS}/mill")).await.header("etag"), Some(seen.as_str()));
    let put_if = async |etag: &str, id: &str, body: &str| {
        let request = TestRequest::put().uri(&format!("{PARTNERS}/{id}")).insert_header(("if-match", etag));
        desk.call_as_shop(with_json(request, body)).await
    };
    let narrow = format!(r#"{{"reach":{{"users":["{USER}"]}}}}"#);
    assert_eq!(put_if(&seen, "mill", &narrow).await.status, 200);
    assert_eq!(put_if(&seen, "mill", EVERYTHING).await.problem(), (412, "precondition_failed"));
    assert_eq!(put_if("*", "nobody", EVERYTHING).await.problem(), (412, "precondition_failed"));
    assert_eq!(desk.get(&format!("{PARTNERS}/nobody")).await.status, 404, "nothing was made");
    assert_eq!(put_if("*", "mill", EVERYTHING).await.status, 200);

    let unsigned = desk.get(&format!("{PARTNERS}/mill")).await.header("etag").unwrap().to_owned();
    let key = json!({ "key_id": "k1", "algorithm": "hmac-sha256", "material": SECRET }).to_string();
    let signing = post(&desk, "mill/signature-keys", &key).await.header("etag").unwrap().to_owned();
    assert_eq!(put_if(&unsigned, "mill", EVERYTHING).await.problem(), (412, "precondition_failed"));
    let same = put_if(&signing, "mill", EVERYTHING).await;
    assert_eq!((same.status, same.header("etag")), (200, Some(signing.as_str())), "nothing changed");
}

#[actix_web::test]
async fn signature_keys_are_added_removed_and_never_shown() {
    let desk = Desk::new().await;
    put(&desk, "mill", EVERYTHING).await;
    let key = |id: &str| json!({ "key_id": id, "algorithm": "hmac-sha256", "material": SECRET }).to_string();
    let added = post(&desk, "mill/signature-keys", &key("k1")).await;
    assert_eq!(added.body["signature_keys"], json!([{ "key_id": "k1", "algorithm": "hmac-sha256" }]));
    assert_eq!(post(&desk, "mill/signature-keys", &key("k1")).await.status, 200, "the same again");
    let other = key("k1").replace("c2Vj", "AAAA");
    assert_eq!(post(&desk, "mill/signature-keys", &other).await.problem(), (409, "signature_key_exists"));
    post(&desk, "mill/signature-keys", &key("k2")).await;
    assert_eq!(post(&desk, "mill/signature-keys", &key("k3")).await.problem(), (409, "keys_too_many"));
    assert_eq!(post(&desk, "nobody/signature-keys", &key("k1")).await.problem(), (404, "partner_unknown"));
    let required = put(&desk, "mill", r#"{"reach":{"everything":true},"signature_required":true}"#).await;
    assert_eq!((required.status, &required.body["signature_required"]), (200, &json!(true)));
    assert!(!required.text.contains(SECRET) && !required.text.contains("material"), "{required:?}");
    assert_eq!(delete(&desk, "mill/signature-keys/k1").await.status, 200);
    assert_eq!(delete(&desk, "mill/signature-keys/k1").await.problem(), (404, "key_unknown"));
    assert_eq!(delete(&desk, "mill/signature-keys/k2").await.problem(), (409, "signature_key_needed"));
}

#[actix_web::test]
async fn partners_come_in_pages_by_name() {
    let desk = Desk::new().await;
    for id in ["mill", "bakery", "zoo"] {
        put(&desk, id, EVERYTHING).await;
    }
    let ids = |page: &Value| -> Vec<String> {
        let partners = page["partners"].as_array().unwrap().iter();
        partners.map(|it| it["partner_id"].as_str().unwrap().to_owned()).collect()
    };
    let whole = desk.get(PARTNERS).await.body;
    assert_eq!(ids(&whole), ["bakery", "mill", "shop", "zoo"]);
    assert_eq!(whole["next_cursor"], Value::Null);
    let first = desk.get(&format!("{PARTNERS}?limit=3")).await.body;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = desk.get(&format!("{PARTNERS}?limit=3&cursor={cursor}")).await.body;
    assert_eq!((ids(&second), &second["next_cursor"]), (vec!["zoo".to_owned()], &Value::Null));
    assert_eq!(desk.get(&format!("{PARTNERS}?cursor=x")).await.problem(), (400, "cursor_invalid"));
}

#[actix_web::test]
async fn what_is_wrong_is_told_with_the_field() {
    let desk = Desk::new().await;
    let answer = put(&desk, "Mill", EVERYTHING).await;
    assert_eq!((answer.problem(), answer.fields()), ((400, "path_invalid"), vec!["partner_id"]));
    let answer = put(&desk, "mill", r#"{"status":"asleep"}"#).await;
    assert_eq!((answer.problem(), answer.fields()), ((422, "validation_failed"), vec!["reach", "status"]));
    let answer = post(&desk, "shop/keys", r#"{"scopes":["fly"]}"#).await;
    assert_eq!((answer.problem(), answer.fields()), ((422, "validation_failed"), vec!["scopes[0]"]));
    assert_eq!(
        post(&desk, "nobody/keys", r#"{"scopes":["read"]}"#).await.problem(),
        (404, "partner_unknown")
    );
}
