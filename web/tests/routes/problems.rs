//! Every error is a problem, also the framework's own.

use std::sync::Arc;

use actix_web::http::Method;
use actix_web::test::TestRequest;
use async_trait::async_trait;
use postonce_shared::domain::account::{Account, Revision, Versioned};
use postonce_shared::domain::decision::AccountCommit;
use postonce_shared::domain::ids::{AccountId, AccountKey, TransactionKey, UserId};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{
    AcceptOutcome, Accounts, Committed, Ledger, Marks, NewTransaction, Opened, StoredTransaction,
};

use super::desk::{ACCOUNT, Desk, json};

#[actix_web::test]
async fn paths_and_methods_that_do_not_exist() {
    let desk = Desk::new().await;
    for path in
        ["/", "/v1", "/v1/users", "/v2/users/x/accounts", "/docs/nothing.js", "/%00", "/v1/admin/queues/"]
    {
        assert_eq!(desk.get(path).await.problem(), (404, "not_found"), "{path}");
    }
    let answer = desk.call_as_shop(TestRequest::delete().uri(ACCOUNT)).await;
    assert_eq!(answer.problem(), (405, "method_not_allowed"));
    assert_eq!(answer.header("allow"), Some("GET, HEAD, PUT, PATCH"));
    let odd = TestRequest::default().method(Method::from_bytes(b"BREW").unwrap()).uri("/livez");
    assert_eq!(desk.call(odd).await.problem(), (405, "method_not_allowed"));
    let head = TestRequest::default().method(Method::HEAD).uri("/livez");
    assert_eq!(desk.call(head).await.status, 200);
}

#[actix_web::test]
async fn ids_in_the_path_are_uuids() {
    let desk = Desk::new().await;
    let answer = desk.get("/v1/users/ada/accounts/1/transactions/2").await;
    assert_eq!(answer.problem(), (400, "path_invalid"));
    assert_eq!(answer.fields(), ["user_id", "account_id", "message_id"]);
    let answer = desk.put(&ACCOUNT.replace("77aa", "zzzz"), "{").await;
    assert_eq!((answer.problem(), answer.fields()), ((400, "path_invalid"), vec!["account_id"]));
    assert_eq!(desk.get("/v1/users/%ff/accounts").await.problem(), (400, "path_invalid"));
}

#[actix_web::test]
async fn bodies_that_cannot_be_read_say_why() {
    let desk = Desk::with_account().await;
    let check = async |body: &str, expected: &str| {
        let answer = desk.submit("deposits", 1, body).await;
        assert_eq!(answer.problem(), (400, "body_invalid"), "{body}");
        assert!(answer.body["detail"].as_str().unwrap().contains(expected), "{body}: {answer:?}");
    };
    check("", "not valid JSON").await;
    check("<deposit/>", "not valid JSON").await;
    check("[]", "must be a JSON object").await;
    check(r#"{"amount":"1","amount":"2","currency":"EUR"}"#, "stands twice").await;
    check(&format!("{}1{}", "[".repeat(5000), "]".repeat(5000)), "must be a JSON object").await;
    check(&format!("{{\"x\":{}1{}}}", "[".repeat(5000), "]".repeat(5000)), "nested deeper").await;
}

/// A ledger and accounts that fail or panic, as told.
struct Broken(fn() -> StoreFault);

fn away() -> StoreFault {
    StoreFault::Unavailable { doing: "testing", source: "secret address".into() }
}

fn corrupt() -> StoreFault {
    StoreFault::Corrupt { doing: "testing", source: "secret content".into() }
}

fn bug() -> StoreFault {
    panic!("secret bug")
}

#[async_trait]
impl Ledger for Broken {
    async fn accept(&self, _: &[NewTransaction]) -> Result<Vec<AcceptOutcome>, StoreFault> {
        Err(self.0())
    }

    async fn commit(&self, _: &AccountCommit) -> Result<Committed, StoreFault> {
        Err(self.0())
    }

    async fn account(&self, _: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        Err(self.0())
    }

    async fn transaction(&self, _: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        Err(self.0())
    }

    async fn mark(&self, _: &TransactionKey, _: &Revision, _: Marks) -> Result<Option<Revision>, StoreFault> {
        Err(self.0())
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        Err(self.0())
    }
}

#[async_trait]
impl Accounts for Broken {
    async fn open(&self, _: &Account) -> Result<Opened, StoreFault> {
        Err(self.0())
    }

    async fn change(&self, _: &Revision, _: &Account) -> Result<Option<Revision>, StoreFault> {
        Err(self.0())
    }

    async fn list(&self, _: UserId, _: Option<AccountId>, _: usize) -> Result<Vec<Account>, StoreFault> {
        Err(self.0())
    }
}

#[actix_web::test]
async fn faults_are_told_without_their_causes() {
    let check = async |fault: fn() -> StoreFault, expected: (u16, &str), ready: u16| {
        let desk = Desk::over(|store| {
            store.ledger = Arc::new(Broken(fault));
            store.accounts = Arc::new(Broken(fault));
        });
        let desk = desk.await;
        let deposit = r#"{"amount":"1","currency":"EUR"}"#;
        for answer in [
            desk.get(ACCOUNT).await,
            desk.get(&format!("{ACCOUNT}/transactions/{}", super::desk::id(1))).await,
            desk.submit("deposits", 1, deposit).await,
            desk.put(ACCOUNT, r#"{"currency":"EUR"}"#).await,
            desk.call_as_shop(json(TestRequest::patch().uri(ACCOUNT), r#"{"status":"open"}"#)).await,
        ] {
            assert_eq!(answer.problem(), expected);
            assert!(!answer.text.contains("secret"), "{answer:?}");
            assert_eq!(answer.header("retry-after"), (expected.0 == 503).then_some("1"));
        }
        let readyz = desk.get("/readyz").await;
        assert_eq!(readyz.status, ready, "{readyz:?}");
    };
    check(away, (503, "storage_unavailable"), 503).await;
    check(corrupt, (500, "internal_error"), 200).await;
    check(bug, (500, "internal_error"), 200).await;
}
