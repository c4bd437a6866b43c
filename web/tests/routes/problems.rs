//! Every error is a problem document, also the errors of the framework.

use std::sync::Arc;

use actix_web::http::Method;
use actix_web::test::TestRequest;
use async_trait::async_trait;
use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::prelude::*;

use super::test_bank::{ACCOUNT, TestBank, json};

#[actix_web::test]
async fn unknown_paths_and_methods_are_problems() {
    let bank = TestBank::new().await;
    for path in ["/v1", "/v1/users", "/v2/users/x/accounts", "/docs/nothing.js", "/%00", "/v1/admin/queues/"]
    {
        assert_eq!(bank.get(path).await.problem(), (404, "not_found"), "{path}");
    }
    let answer = bank.call_as_shop(TestRequest::delete().uri(ACCOUNT)).await;
    assert_eq!(answer.problem(), (405, "method_not_allowed"));
    assert_eq!(answer.header("allow"), Some("GET, HEAD, PUT, PATCH"));
    let odd = TestRequest::default().method(Method::from_bytes(b"BREW").unwrap()).uri("/livez");
    assert_eq!(bank.call(odd).await.problem(), (405, "method_not_allowed"));
    let head = TestRequest::default().method(Method::HEAD).uri("/livez");
    assert_eq!(bank.call(head).await.status, 200);
}

#[actix_web::test]
async fn ids_in_the_path_must_be_uuids() {
    let bank = TestBank::new().await;
    let answer = bank.get("/v1/users/ada/accounts/1/transactions/2").await;
    assert_eq!(answer.problem(), (400, "path_invalid"));
    assert_eq!(answer.fields(), ["user_id", "account_id", "message_id"]);
    let answer = bank.put(&ACCOUNT.replace("77aa", "zzzz"), "{").await;
    assert_eq!((answer.problem(), answer.fields()), ((400, "path_invalid"), vec!["account_id"]));
    assert_eq!(bank.get("/v1/users/%ff/accounts").await.problem(), (400, "path_invalid"));
}

#[actix_web::test]
async fn unreadable_bodies_are_refused_with_their_reason() {
    let bank = TestBank::with_account().await;
    let check = async |body: &str, expected: &str| {
        let answer = bank.submit("deposits", 1, body).await;
        assert_eq!(answer.problem(), (400, "body_invalid"), "{body}");
        assert!(answer.body["detail"].as_str().unwrap().contains(expected), "{body}: {answer:?}");
    };
    check("", "not valid JSON").await;
    check("<deposit/>", "not valid JSON").await;
    check("[]", "must be a JSON object").await;
    check(r#"{"amount":"1","amount":"2","currency":"EUR"}"#, "occurs twice").await;
    check(&format!("{}1{}", "[".repeat(5000), "]".repeat(5000)), "must be a JSON object").await;
    check(&format!("{{\"x\":{}1{}}}", "[".repeat(5000), "]".repeat(5000)), "nested deeper").await;
}

/// A ledger and accounts that fail or panic.
struct FailingStore(fn() -> StoreFault);

fn outage() -> StoreFault {
    StoreFault::Unavailable { doing: "testing", source: "secret address".into() }
}

fn corrupt() -> StoreFault {
    StoreFault::Corrupt { doing: "testing", source: "secret content".into() }
}

fn bug() -> StoreFault {
    panic!("secret bug")
}

#[async_trait]
impl Ledger for FailingStore {
    async fn accept(&self, _: &[Submission], _: Nonce) -> Result<Vec<AcceptOutcome>, StoreFault> {
        Err(self.0())
    }

    async fn commit(&self, _: &AccountCommit) -> Result<Committed, StoreFault> {
        Err(self.0())
    }

    async fn reject_unknown(&self, _: &UnknownAccountCommit) -> Result<Committed, StoreFault> {
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
impl Accounts for FailingStore {
    async fn open(&self, _: &AccountDecision) -> Result<Opened, StoreFault> {
        Err(self.0())
    }

    async fn change(&self, _: &Revision, _: &AccountDecision) -> Result<Option<Revision>, StoreFault> {
        Err(self.0())
    }

    async fn list(&self, _: UserId, _: Option<AccountId>, _: usize) -> Result<Vec<Account>, StoreFault> {
        Err(self.0())
    }
}

#[actix_web::test]
async fn faults_are_reported_without_their_causes() {
    let check = async |fault: fn() -> StoreFault, expected: (u16, &str), ready: u16| {
        let bank = TestBank::over(|store| {
            store.ledger = Arc::new(FailingStore(fault));
            store.accounts = Arc::new(FailingStore(fault));
        });
        let bank = bank.await;
        let deposit = r#"{"amount":"1","currency":"EUR"}"#;
        for answer in [
            bank.get(ACCOUNT).await,
            bank.get(&format!("{ACCOUNT}/transactions/{}", super::test_bank::id(1))).await,
            bank.submit("deposits", 1, deposit).await,
            bank.put(ACCOUNT, r#"{"currency":"EUR"}"#).await,
            bank.call_as_shop(json(TestRequest::patch().uri(ACCOUNT), r#"{"status":"open"}"#)).await,
        ] {
            assert_eq!(answer.problem(), expected);
            assert!(!answer.text.contains("secret"), "{answer:?}");
            assert_eq!(answer.header("retry-after"), (expected.0 == 503).then_some("1"));
        }
        let readyz = bank.get("/readyz").await;
        assert_eq!(readyz.status, ready, "{readyz:?}");
    };
    check(outage, (503, "storage_unavailable"), 503).await;
    check(corrupt, (500, "internal_error"), 200).await;
    check(bug, (500, "internal_error"), 200).await;
}

#[actix_web::test]
async fn a_request_of_the_console_that_fails_counts_once_whatever_its_page_shows() {
    let failing = |store: &mut Store| {
        store.ledger = Arc::new(FailingStore(outage));
        store.accounts = Arc::new(FailingStore(outage));
    };
    let bank = TestBank::over(failing).await;
    let form = TestRequest::post().uri("/console/sign-in").peer_addr("127.0.0.1:9".parse().unwrap());
    let form = form.insert_header(("content-type", "application/x-www-form-urlencoded"));
    let signed_in = bank.call(form.set_payload(format!("key={}", bank.key().expose()))).await;
    assert_eq!((signed_in.status, signed_in.header("location")), (303, Some("/console")), "{signed_in:?}");
    let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let page = async |path: &str| {
        let answer = bank.call(TestRequest::get().uri(path).insert_header(("cookie", cookie.as_str()))).await;
        (answer.status, bank.meter.request_errors.get())
    };
    let (_, user_and_account) = ACCOUNT.split_once("/v1/users/").unwrap();
    let (user, account) = user_and_account.split_once("/accounts/").unwrap();
    assert_eq!(page("/console/partners").await, (200, 0));
    assert_eq!(
        page(&format!("/console/accounts?user_id={user}")).await,
        (200, 1),
        "the page shows the problem"
    );
    assert_eq!(
        page(&format!("/console/accounts/{user}/{account}")).await,
        (503, 2),
        "it fails with its request"
    );
}
