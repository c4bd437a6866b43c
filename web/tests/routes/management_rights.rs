//! What keys below the scope `admin` may do: each scope of operators allows its own operations only, and a key that manages
//! partners gives away no more than it has.

use std::collections::BTreeSet;
use std::time::Duration;

use actix_web::test::TestRequest;
use postonce_shared::domain::credit::CreditCeilings;
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::test_bank::{ACCOUNT, Answer, TestBank, json as with_json, with_key};

const PARTNERS: &str = "/v1/admin/partners";
const USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";
const OTHER_USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d12";
const SECRET: &str = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U=";

/// The reach of one user.
fn reach() -> Reach {
    let user: UserId = USER.parse().unwrap();
    Reach::Named { users: [user].into(), accounts: BTreeSet::new() }
}

/// A manager of partners, with its key.
struct Manager<'a> {
    bank: &'a TestBank,
    key: NewKey,
}

impl<'a> Manager<'a> {
    async fn new(bank: &'a TestBank, scopes: &[Scope]) -> Self {
        let key = NewKey::random();
        bank.add_key_with_reach(reach(), &key, "manager", scopes).await;
        Self { bank, key }
    }

    async fn call(&self, request: TestRequest) -> Answer {
        self.bank.call(with_key(request, &self.key)).await
    }

    async fn put(&self, partner: &str, body: Value) -> Answer {
        let request = TestRequest::put().uri(&format!("{PARTNERS}/{partner}"));
        self.call(with_json(request, &body.to_string())).await
    }

    async fn add_key(&self, partner: &str, scopes: &[&str]) -> Answer {
        let request = TestRequest::post().uri(&format!("{PARTNERS}/{partner}/keys"));
        self.call(with_json(request, &json!({ "scopes": scopes }).to_string())).await
    }

    async fn add_signing(&self, partner: &str) -> Answer {
        let request = TestRequest::post().uri(&format!("{PARTNERS}/{partner}/signature-keys"));
        let key = json!({ "key_id": "k1", "algorithm": "hmac-sha256", "material": SECRET });
        self.call(with_json(request, &key.to_string())).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.call(TestRequest::delete().uri(&format!("{PARTNERS}/{path}"))).await
    }
}

fn narrow() -> Value {
    json!({ "reach": { "users": [USER] } })
}

fn assert_beyond(answer: &Answer, reason: &str) {
    assert_eq!(answer.problem(), (403, "scope_missing"), "{reason}");
    assert!(answer.text.contains(reason) && answer.text.contains("the scope admin"), "{reason}: {answer:?}");
}

/// The id of the only key of a partner.
async fn key_of(bank: &TestBank, partner: &str) -> String {
    let found = bank.get(&format!("{PARTNERS}/{partner}")).await;
    found.body["keys"][0]["key_id"].as_str().unwrap().to_owned()
}

#[actix_web::test]
async fn each_scope_of_operators_allows_its_own_operations_only() {
    let bank = TestBank::new().await;
    let operations = [
        ("/v1/admin/scale", "scale"),
        ("/v1/admin/queues", "metrics"),
        ("/v1/admin/overview", "metrics"),
        ("/v1/admin/gate", "metrics"),
        ("/metrics", "metrics"),
        ("/v1/admin/dead-letters", "operate"),
        ("/v1/admin/batches", "operate"),
        ("/v1/admin/scrubber", "operate"),
        ("/v1/admin/storage-operations", "operate"),
        (PARTNERS, "partners"),
        ("/v1/admin/partners/shop", "partners"),
        ("/v1/admin/audit", "admin"),
        ("/v1/admin/anchors", "admin"),
        ("/v1/admin/order-numbers", "admin"),
        (ACCOUNT, "read"),
    ];
    let allowed = [
        (Scope::Scale, &["scale"][..]),
        (Scope::Metrics, &["metrics"]),
        (Scope::Operate, &["scale", "metrics", "operate"]),
        (Scope::Partners, &["partners"]),
        (Scope::Admin, &["scale", "metrics", "operate", "partners", "admin", "read"]),
    ];
    for (scope, allowed) in allowed {
        let key = NewKey::random();
        bank.add_key(&key, scope.code(), &[scope]).await;
        for (path, needed) in operations {
            let answer = bank.call(with_key(TestRequest::get().uri(path), &key)).await;
            // The keys reach no account.
            let found = if path == ACCOUNT { 404 } else { 200 };
            let expected = if allowed.contains(&needed) { found } else { 403 };
            assert_eq!(answer.status, expected, "{scope} at {path}: {answer:?}");
        }
        let hold = with_json(TestRequest::put().uri("/v1/admin/gate"), r#"{"state":"held"}"#);
        let expected = if allowed.contains(&"operate") { 200 } else { 403 };
        assert_eq!(bank.call(with_key(hold, &key)).await.status, expected, "{scope} holds the gate");
    }
}

#[actix_web::test]
async fn a_manager_grants_its_own_scopes_and_no_others() {
    let bank = TestBank::with_account().await;
    let manager = Manager::new(&bank, &[Scope::Partners, Scope::Read, Scope::Operate]).await;
    assert_eq!(manager.put("mill", narrow()).await.status, 201);
    let made = manager.add_key("mill", &["read", "scale"]).await;
    assert_eq!((made.status, &made.body["scopes"]), (201, &json!(["read", "scale"])), "{made:?}");
    for lacking in ["deposit", "accounts", "credit", "admin", "withdraw"] {
        let refused = manager.add_key("mill", &["read", lacking]).await;
        assert_beyond(&refused, "would get a key with the scope");
    }
    let keys = bank.store.api_keys.list().await.unwrap();
    assert_eq!(keys.iter().filter(|key| key.partner.as_str() == "mill").count(), 1, "none was stored");
    // A key for the rotation of its own one.
    assert_eq!(manager.add_key("manager", &["partners", "read", "operate"]).await.status, 201);
    // An operator with `admin` grants every scope.
    let operator = NewKey::random();
    bank.add_key(&operator, "operator", &[Scope::Admin]).await;
    let operator = Manager { bank: &bank, key: operator };
    assert_eq!(operator.add_key("mill", &["deposit"]).await.status, 201);
}

#[actix_web::test]
async fn a_manager_changes_no_partner_that_may_do_more() {
    let bank = TestBank::new().await;
    let manager = Manager::new(&bank, &[Scope::Partners, Scope::Read]).await;
    // `wide` reaches more, `strong` has a key of more scopes.
    for (partner, reach, scope, reason) in [
        ("wide", Reach::Everything, Scope::Read, "does not reach"),
        ("strong", reach(), Scope::Admin, "has a key with the scope admin"),
    ] {
        bank.add_key_with_reach(reach, &NewKey::random(), partner, &[scope]).await;
        let before = bank.get(&format!("{PARTNERS}/{partner}")).await;
        let key = key_of(&bank, partner).await;
        assert_beyond(&manager.add_key(partner, &["read"]).await, reason);
        assert_beyond(&manager.put(partner, narrow()).await, reason);
        let suspend = json!({ "reach": { "users": [USER] }, "status": "suspended" });
        assert_beyond(&manager.put(partner, suspend).await, reason);
        assert_beyond(&manager.add_signing(partner).await, reason);
        assert_beyond(&manager.delete(&format!("{partner}/signature-keys/k1")).await, reason);
        assert_beyond(&manager.delete(&format!("{partner}/keys/{key}")).await, reason);
        let after = bank.get(&format!("{PARTNERS}/{partner}")).await;
        assert_eq!(after.text, before.text, "nothing was changed");
        assert_eq!(bank.store.api_keys.find(&key).await.unwrap().unwrap().revoked_at, None);
        assert_eq!(manager.call(TestRequest::get().uri(&format!("{PARTNERS}/{partner}"))).await.status, 200);
    }
    // A partner within its own rights is managed completely.
    bank.add_key_with_reach(reach(), &NewKey::random(), "mill", &[Scope::Read]).await;
    let key = key_of(&bank, "mill").await;
    assert_eq!(manager.put("mill", narrow()).await.status, 200);
    assert_eq!(manager.add_signing("mill").await.status, 200);
    assert_eq!(manager.delete("mill/signature-keys/k1").await.status, 200);
    assert_eq!(manager.add_key("mill", &["read"]).await.status, 201);
    assert_eq!(manager.delete(&format!("mill/keys/{key}")).await.status, 200);
}

#[actix_web::test]
async fn a_manager_gives_no_reach_beyond_its_own_and_does_not_change_its_own_terms() {
    let bank = TestBank::new().await;
    let manager = Manager::new(&bank, &[Scope::Partners]).await;
    let reaches = [
        json!({ "everything": true }),
        json!({ "users": [USER, OTHER_USER] }),
        json!({ "accounts": [{ "user_id": OTHER_USER, "account_id": OTHER_USER }] }),
    ];
    for reach in reaches {
        assert_beyond(&manager.put("mill", json!({ "reach": reach })).await, "does not reach");
        assert_eq!(bank.get(&format!("{PARTNERS}/mill")).await.status, 404, "nothing was created");
    }
    let account = json!({ "reach": { "accounts": [{ "user_id": USER, "account_id": OTHER_USER }] } });
    assert_eq!(manager.put("mill", account).await.status, 201);
    assert_beyond(&manager.put("mill", json!({ "reach": { "everything": true } })).await, "does not reach");
    for own in [narrow(), json!({ "reach": { "users": [USER] }, "rate": { "per_second": 9, "burst": 9 } })] {
        assert_beyond(&manager.put("manager", own).await, "is that of the API key");
    }
}

#[actix_web::test]
async fn a_manager_gives_credit_only_with_the_scope_and_within_its_own_ceilings() {
    let bank = TestBank::new().await;
    let with_ceiling =
        |limit: &str| json!({ "reach": { "users": [USER] }, "credit_ceilings": { "EUR": limit } });
    let manager = Manager::new(&bank, &[Scope::Partners, Scope::Accounts]).await;
    assert_beyond(&manager.put("mill", with_ceiling("5")).await, "credit_ceilings needs the scope credit");
    assert_eq!(manager.put("mill", narrow()).await.status, 201);
    assert_beyond(&manager.put("mill", with_ceiling("5")).await, "credit_ceilings needs the scope credit");
    assert_beyond(&manager.add_key("mill", &["accounts", "credit"]).await, "the scope credit");

    let lender = NewKey::random();
    let scopes = [Scope::Partners, Scope::Accounts, Scope::Credit];
    bank.add_key_with_reach(reach(), &lender, "lender", &scopes).await;
    let own = OverdraftLimit::parse("100", Currency::parse("EUR").unwrap()).unwrap();
    let ceilings = |partner| Partner { credit_ceilings: CreditCeilings::up_to([own]), ..partner };
    bank.change_partner("lender", ceilings).await;
    let lender = Manager { bank: &bank, key: lender };
    // Without own ceilings a partner could give any credit.
    assert_beyond(&lender.put("bakery", narrow()).await, "allow more than those of partner lender");
    assert_beyond(&lender.put("bakery", with_ceiling("100.01")).await, "allow more");
    assert_beyond(&lender.add_key("mill", &["accounts", "credit"]).await, "allow more");
    assert_eq!(lender.put("bakery", with_ceiling("100")).await.status, 201);
    assert_eq!(lender.add_key("bakery", &["accounts", "credit"]).await.status, 201);
    // The bakery has a right now that the first manager lacks.
    assert_beyond(&manager.put("bakery", narrow()).await, "has a key with the scope credit");
}

#[actix_web::test]
async fn an_account_of_the_own_reach_does_not_give_its_user() {
    let bank = TestBank::new().await;
    let key = NewKey::random();
    let account = AccountKey { user: USER.parse().unwrap(), account: OTHER_USER.parse().unwrap() };
    let reach = Reach::Named { users: BTreeSet::new(), accounts: [account].into() };
    bank.add_key_with_reach(reach, &key, "manager", &[Scope::Partners]).await;
    let manager = Manager { bank: &bank, key };
    assert_beyond(&manager.put("mill", narrow()).await, "does not reach");
    let accounts = json!({ "reach": { "accounts": [{ "user_id": USER, "account_id": OTHER_USER }] } });
    assert_eq!(manager.put("mill", accounts).await.status, 201);
}

#[actix_web::test]
async fn a_manager_whose_key_expires_creates_no_key_that_lives_longer() {
    let bank = TestBank::new().await;
    let now = bank.world.now();
    let later = |seconds| now.after(Duration::from_secs(seconds)).to_string();
    bank.add_key_with_reach(reach(), &NewKey::random(), "manager", &[Scope::Partners]).await;
    let body = json!({ "scopes": ["partners"], "expires_at": later(60) }).to_string();
    let path = format!("{PARTNERS}/manager/keys");
    let made = bank.call_as_shop(with_json(TestRequest::post().uri(&path), &body)).await;
    let key = SecretString::from(made.body["key"].as_str().unwrap().to_owned());
    let manager = Manager { bank: &bank, key: NewKey::configured(&key).unwrap() };
    assert_eq!(manager.put("mill", narrow()).await.status, 201);
    let add = async |expires_at: Value| {
        let body = json!({ "scopes": ["partners"], "expires_at": expires_at }).to_string();
        manager.call(with_json(TestRequest::post().uri(&format!("{PARTNERS}/mill/keys")), &body)).await
    };
    assert_beyond(&add(Value::Null).await, "must not be later than that of the API key");
    assert_beyond(&add(json!(later(61))).await, "must not be later than that of the API key");
    assert_eq!(add(json!(later(60))).await.status, 201);
}

#[actix_web::test]
async fn a_manager_resumes_no_partner_that_an_administrator_suspended() {
    let bank = TestBank::with_account().await;
    let manager = Manager::new(&bank, &[Scope::Partners, Scope::Read]).await;
    assert_eq!(manager.put("mill", narrow()).await.status, 201);
    let with_status = |status: &str| json!({ "reach": { "users": [USER] }, "status": status });
    let as_admin = async |status: &str| {
        let request = TestRequest::put().uri(&format!("{PARTNERS}/mill"));
        bank.call_as_shop(with_json(request, &with_status(status).to_string())).await
    };
    // A manager resumes what a manager suspended.
    let suspended = manager.put("mill", with_status("suspended")).await;
    assert_eq!((suspended.status, &suspended.body["resume_needs"]), (200, &json!("partners")));
    let resumed = manager.put("mill", with_status("active")).await;
    assert_eq!((resumed.status, &resumed.body["resume_needs"]), (200, &Value::Null));

    // It does not resume what an administrator suspended, also if a manager suspended it before, or does so again.
    assert_eq!(manager.put("mill", with_status("suspended")).await.status, 200);
    assert_eq!(as_admin("suspended").await.body["resume_needs"], "admin");
    assert_eq!(manager.put("mill", with_status("suspended")).await.body["resume_needs"], "admin");
    assert_beyond(&manager.put("mill", with_status("active")).await, "was suspended with the scope admin");
    // Its other terms can be changed meanwhile.
    assert_eq!(manager.put("mill", narrow()).await.body["status"], "suspended");
    assert_eq!(manager.add_key("mill", &["read"]).await.status, 201);
    let found = bank.get(&format!("{PARTNERS}/mill")).await;
    assert_eq!((&found.body["status"], &found.body["resume_needs"]), (&json!("suspended"), &json!("admin")));
    assert_eq!(as_admin("active").await.body["status"], "active");

    let rows = bank.app.audit.list(None, 20).await.unwrap();
    let targets: Vec<&str> = rows.iter().map(|row| row.done.target.as_str()).collect();
    assert!(targets.iter().any(|on| on.contains("status=suspended with=admin")), "{targets:?}");
    assert!(targets.iter().any(|on| on.contains("status=suspended with=partners")), "{targets:?}");
}
