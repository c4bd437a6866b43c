//! The right to grant credit: new and higher overdraft limits.

use actix_web::test::TestRequest;
use postonce_shared::domain::credit::CreditCeilings;
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;

use super::test_bank::{ACCOUNT, Answer, TestBank, json, with_key};

const HIGHEST: &str = r#"{"currency":"EUR","overdraft_limit":"9999999999999999.99"}"#;

async fn put(bank: &TestBank, key: &NewKey, path: &str, body: &str) -> Answer {
    bank.call(with_key(json(TestRequest::put().uri(path), body), key)).await
}

async fn patch(bank: &TestBank, key: &NewKey, body: &str) -> Answer {
    bank.call(with_key(json(TestRequest::patch().uri(ACCOUNT), body), key)).await
}

/// Creates a partner with a key of these scopes.
async fn partner(bank: &TestBank, name: &str, scopes: &[Scope]) -> NewKey {
    let key = NewKey::random();
    bank.add_key_with_reach(Reach::Everything, &key, name, scopes).await;
    key
}

async fn set_ceilings(bank: &TestBank, partner: &str, credit_ceilings: CreditCeilings) {
    bank.change_partner(partner, |partner| Partner { credit_ceilings, ..partner }).await;
}

#[actix_web::test]
async fn a_key_without_the_scope_credit_neither_sets_nor_raises_an_overdraft_limit() {
    let bank = TestBank::new().await;
    let key = partner(&bank, "mill", &[Scope::Accounts, Scope::Withdraw, Scope::Read]).await;
    let refused = put(&bank, &key, ACCOUNT, HIGHEST).await;
    assert_eq!(refused.problem(), (403, "scope_missing"));
    assert!(refused.text.contains("lacks the scope credit"), "{refused:?}");
    assert_eq!(bank.get(ACCOUNT).await.problem(), (404, "account_unknown"), "nothing was opened");
    // Without a limit, and by a partner with the scope.
    assert_eq!(put(&bank, &key, ACCOUNT, r#"{"currency":"EUR","overdraft_limit":"0.00"}"#).await.status, 201);
    assert_eq!(patch(&bank, &key, r#"{"overdraft_limit":"0.01"}"#).await.problem(), (403, "scope_missing"));
    assert_eq!(bank.patch(ACCOUNT, r#"{"overdraft_limit":"500"}"#).await.status, 200);
    // Its present limit is not a new one, and lowering it is no credit.
    let same = r#"{"currency":"EUR","overdraft_limit":"500.00"}"#;
    assert_eq!(put(&bank, &key, ACCOUNT, same).await.status, 200);
    assert_eq!(put(&bank, &key, ACCOUNT, HIGHEST).await.problem(), (409, "account_exists"));
    assert_eq!(patch(&bank, &key, r#"{"overdraft_limit":"500.01"}"#).await.problem(), (403, "scope_missing"));
    assert_eq!(patch(&bank, &key, r#"{"overdraft_limit":"500.00","status":"frozen"}"#).await.status, 200);
    assert_eq!(patch(&bank, &key, r#"{"overdraft_limit":"499.99"}"#).await.status, 200);
    assert_eq!(patch(&bank, &key, r#"{"overdraft_limit":"500.00"}"#).await.problem(), (403, "scope_missing"));
    assert_eq!(bank.get(ACCOUNT).await.body["overdraft_limit"], "499.99");
}

#[actix_web::test]
async fn credit_is_limited_by_the_ceilings_of_the_partner() {
    let bank = TestBank::new().await;
    let key = partner(&bank, "mill", &[Scope::Accounts, Scope::Credit]).await;
    let euro = Currency::parse("EUR").unwrap();
    let ceiling = OverdraftLimit::parse("1000.00", euro).unwrap();
    set_ceilings(&bank, "mill", CreditCeilings::up_to([ceiling])).await;
    let refused = put(&bank, &key, ACCOUNT, r#"{"currency":"EUR","overdraft_limit":"1000.01"}"#).await;
    assert_eq!(refused.problem(), (403, "credit_ceiling_exceeded"));
    assert!(refused.text.contains("at most 1000.00 EUR"), "{refused:?}");
    let refused = put(&bank, &key, ACCOUNT, r#"{"currency":"USD","overdraft_limit":"1"}"#).await;
    assert!(refused.text.contains("at most 0.00 USD"), "{refused:?}");
    assert_eq!(put(&bank, &key, ACCOUNT, r#"{"currency":"EUR","overdraft_limit":"1000"}"#).await.status, 201);
    // A limit that another partner set above the ceiling stays, and can be lowered.
    assert_eq!(bank.patch(ACCOUNT, r#"{"overdraft_limit":"5000"}"#).await.status, 200);
    assert_eq!(
        patch(&bank, &key, r#"{"overdraft_limit":"5000.01"}"#).await.problem(),
        (403, "credit_ceiling_exceeded")
    );
    assert_eq!(patch(&bank, &key, r#"{"overdraft_limit":"4000"}"#).await.status, 200);
    set_ceilings(&bank, "mill", CreditCeilings::Unlimited).await;
    assert_eq!(patch(&bank, &key, r#"{"overdraft_limit":"9999999999999999.99"}"#).await.status, 200);
}
