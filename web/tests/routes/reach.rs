//! The reach of a partner: in every operation, all other accounts look as if they did not exist.

use std::collections::BTreeSet;

use actix_web::http::Method;
use actix_web::test::TestRequest;
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use serde_json::Value;

use super::test_bank::{ACCOUNT, Answer, TestBank, USER, id, json, with_key};

const BUSINESS: [Scope; 4] = [Scope::Deposit, Scope::Withdraw, Scope::Read, Scope::Accounts];
/// An account of the known user that was never opened, and an unknown user.
const UNOPENED: &str = "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e23";
const UNKNOWN_USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d12";

fn user() -> UserId {
    "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11".parse().unwrap()
}

fn account() -> AccountKey {
    AccountKey { user: user(), account: "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22".parse().unwrap() }
}

fn users(users: impl IntoIterator<Item = UserId>) -> Reach {
    Reach::Named { users: users.into_iter().collect(), accounts: BTreeSet::new() }
}

fn accounts(accounts: impl IntoIterator<Item = AccountKey>) -> Reach {
    Reach::Named { users: BTreeSet::new(), accounts: accounts.into_iter().collect() }
}

/// Creates a partner with that reach. Returns a key of it without the scope `admin`.
async fn partner(bank: &TestBank, name: &str, reach: Reach) -> NewKey {
    let key = NewKey::random();
    bank.add_key_with_reach(reach, &key, name, &BUSINESS).await;
    key
}

async fn get(bank: &TestBank, key: &NewKey, path: &str) -> Answer {
    bank.call(with_key(TestRequest::get().uri(path), key)).await
}

async fn deposit(bank: &TestBank, key: &NewKey, number: u32) -> Answer {
    let request = super::test_bank::submission("deposits", number, r#"{"amount":"1","currency":"EUR"}"#);
    bank.call(with_key(request, key)).await
}

/// All documented operations on one account: method, path and a valid body.
fn operations_on_accounts() -> Vec<(Method, String, Option<&'static str>)> {
    let document: Value = serde_json::from_str(postonce_schemas::OPENAPI_JSON).unwrap();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        if !path.contains("{account_id}") {
            continue;
        }
        for (method, operation) in methods.as_object().unwrap() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let name = operation["operationId"].as_str().unwrap();
            let body = match name {
                "open_account" => Some(r#"{"currency":"EUR"}"#),
                "change_account" => Some(r#"{"status":"closed"}"#),
                "submit_deposit" | "submit_withdrawal" => Some(r#"{"amount":"1","currency":"EUR"}"#),
                _ => None,
            };
            assert_eq!(
                body.is_some(),
                operation.get("requestBody").is_some(),
                "{name} needs a body in this test"
            );
            operations.push((method, path.clone(), body));
        }
    }
    operations
}

fn request(method: &Method, path: &str, body: Option<&str>) -> TestRequest {
    let request = TestRequest::default().method(method.clone()).uri(path);
    // One request id and one trace, so that problem documents can be compared.
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = request.insert_header(("idempotency-key", id(1))).insert_header(("x-request-id", "1"));
    let request = request.insert_header(("traceparent", trace));
    match body {
        Some(body) => json(request, body),
        None => request,
    }
}

#[actix_web::test]
async fn an_account_out_of_reach_looks_like_one_that_does_not_exist() {
    let bank = TestBank::with_account().await;
    // A transaction of the shop on the account, so that there is something to find.
    let posted = bank.submit("deposits", 1, r#"{"amount":"5","currency":"EUR"}"#).await;
    assert_eq!(posted.status, 202, "{posted:?}");
    let elsewhere = AccountKey { user: user(), account: UNOPENED.parse().unwrap() };
    let key = partner(&bank, "elsewhere", accounts([elsewhere])).await;
    let anywhere = partner(&bank, "anywhere", Reach::Everything).await;
    // Both partners are cached from here on.
    assert_eq!(get(&bank, &key, USER).await.status, 200);
    let operations = operations_on_accounts();
    assert!(operations.len() >= 7, "{operations:?}");
    let of = |path: &str, account: &str| {
        let path = path.replace("{user_id}", "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11");
        path.replace("{account_id}", account).replace("{message_id}", &id(1))
    };
    for (method, path, body) in operations {
        let name = format!("{method} {path}");
        let existing = of(&path, "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22");
        let before = bank.operations();
        let refused = bank.call(with_key(request(&method, &existing, body), &key)).await;
        assert_eq!(bank.operations(), before, "{name}: refused before any read of the store");
        // PUT would open an account that does not exist, so its refusal is compared with that of PATCH.
        let (asked, body) = match method {
            Method::PUT => (Method::PATCH, Some(r#"{"status":"closed"}"#)),
            _ => (method.clone(), body),
        };
        let unknown = of(&path, "ffffffff-7c2f-4c35-8f0d-0a4f6f1f2e22");
        let unknown = bank.call(with_key(request(&asked, &unknown, body), &anywhere)).await;
        assert_eq!(refused.status, 404, "{name}: {refused:?}");
        assert_eq!((refused.status, &refused.text), (unknown.status, &unknown.text), "{name}");
        let headers = |answer: &Answer| {
            let mut names: Vec<String> = answer.headers.keys().map(ToString::to_string).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(headers(&refused), headers(&unknown), "{name}");
    }
    assert_eq!(bank.get(ACCOUNT).await.body["status"], "open", "no request had an effect");
}

#[actix_web::test]
async fn syntax_errors_are_reported_before_the_reach_is_checked() {
    let bank = TestBank::with_account().await;
    let key = partner(&bank, "nobody", users([])).await;
    let check = async |request: TestRequest, expected: (u16, &str)| {
        assert_eq!(bank.call(with_key(request, &key)).await.problem(), expected);
    };
    let deposits = format!("{ACCOUNT}/deposits");
    let post = |body: &str| json(TestRequest::post().uri(&deposits), body);
    check(TestRequest::get().uri("/v1/users/7/accounts/8"), (400, "path_invalid")).await;
    check(post("{}"), (422, "validation_failed")).await;
    check(post(r#"{"amount":"1","currency":"EUR"}"#), (400, "idempotency_key_missing")).await;
    check(TestRequest::get().uri(&format!("{ACCOUNT}/transactions?limit=0")), (400, "query_invalid")).await;
    check(TestRequest::get().uri(&format!("{ACCOUNT}/transactions")), (404, "account_unknown")).await;
}

#[actix_web::test]
async fn the_list_of_accounts_shows_only_those_within_reach() {
    let bank = TestBank::with_account().await;
    let other = format!("{USER}/{UNOPENED}");
    assert_eq!(bank.put(&other, r#"{"currency":"EUR"}"#).await.status, 201);
    let check = async |name: &str, reach: Reach, user: &str, expected: Result<&[&str], &str>| {
        let key = partner(&bank, name, reach).await;
        let answer = get(&bank, &key, &format!("/v1/users/{user}/accounts")).await;
        match expected {
            Ok(expected) => {
                let accounts = answer.body["accounts"].as_array().unwrap();
                let ids: Vec<&str> = accounts.iter().map(|it| it["account_id"].as_str().unwrap()).collect();
                assert_eq!(ids, expected, "{name}");
            }
            Err(code) => assert_eq!(answer.problem(), (404, code), "{name}"),
        }
    };
    let known = user().to_string();
    let both = ["77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22", UNOPENED];
    let unopened =
        AccountKey { account: "00000000-7c2f-4c35-8f0d-0a4f6f1f2e22".parse().unwrap(), ..account() };
    check("everything", Reach::Everything, &known, Ok(&both)).await;
    check("everything2", Reach::Everything, UNKNOWN_USER, Ok(&[])).await;
    check("user", users([user()]), &known, Ok(&both)).await;
    check("user2", users([user()]), UNKNOWN_USER, Err("user_unknown")).await;
    check("account", accounts([account()]), &known, Ok(&both[..1])).await;
    check("unopened", accounts([unopened, account()]), &known, Ok(&both[..1])).await;
    check("ghost2", accounts([unopened]), &known, Ok(&[])).await;
    check("nothing", users([]), &known, Err("user_unknown")).await;

    // Page by page, across an account in the reach that was never opened.
    let key = partner(&bank, "pages", accounts([unopened, account()])).await;
    let first = get(&bank, &key, &format!("{USER}?limit=1")).await.body;
    assert_eq!(first["accounts"].as_array().unwrap().len(), 0);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = get(&bank, &key, &format!("{USER}?limit=1&cursor={cursor}")).await.body;
    assert_eq!(
        (&second["accounts"][0]["account_id"], &second["next_cursor"]),
        (&both[0].into(), &Value::Null)
    );
}

#[actix_web::test]
async fn an_account_within_reach_is_opened_and_used() {
    let bank = TestBank::new().await;
    let key = partner(&bank, "opener", users([user()])).await;
    let open = json(TestRequest::put().uri(ACCOUNT), r#"{"currency":"EUR"}"#);
    assert_eq!(bank.call(with_key(open, &key)).await.status, 201);
    assert_eq!(deposit(&bank, &key, 1).await.status, 202);
    assert_eq!(get(&bank, &key, &format!("{ACCOUNT}/transactions/{}", id(1))).await.status, 200);
}

fn ids(page: &Answer) -> Vec<String> {
    let transactions = page.body["transactions"].as_array().unwrap_or_else(|| panic!("{page:?}"));
    transactions.iter().map(|it| it["message_id"].as_str().unwrap().to_owned()).collect()
}

#[actix_web::test]
async fn a_partner_never_sees_the_transactions_of_another_on_the_same_account() {
    let bank = TestBank::with_account().await;
    let one = partner(&bank, "one", users([user()])).await;
    let other = partner(&bank, "other", accounts([account()])).await;
    let operator = NewKey::random();
    bank.add_key_with_reach(Reach::Everything, &operator, "operator", &[Scope::Read, Scope::Admin]).await;
    for (number, key) in [(1, &one), (2, &other), (3, &one)] {
        assert_eq!(deposit(&bank, key, number).await.status, 202);
        bank.post_all().await;
    }
    assert_eq!(deposit(&bank, &one, 4).await.status, 202);
    assert_eq!(deposit(&bank, &other, 5).await.status, 202);
    let check = async |key: &NewKey, query: &str, expected: &[u32]| {
        let page = get(&bank, key, &format!("{ACCOUNT}/transactions{query}")).await;
        let expected: Vec<String> = expected.iter().map(|number| id(*number)).collect();
        assert_eq!(ids(&page), expected, "{query}");
        assert_eq!(page.body["next_cursor"], Value::Null, "{query}");
    };
    check(&one, "", &[1, 3]).await;
    check(&other, "", &[2]).await;
    check(&operator, "", &[1, 2, 3]).await;
    check(&one, "?status=accepted", &[4]).await;
    check(&other, "?status=accepted", &[5]).await;
    check(&operator, "?status=accepted", &[4, 5]).await;
    check(&one, "?status=rejected", &[]).await;
    for (number, status) in [(2, 404), (5, 404), (1, 200), (4, 200)] {
        let answer = get(&bank, &one, &format!("{ACCOUNT}/transactions/{}", id(number))).await;
        assert_eq!(answer.status, status, "{number}");
    }
}

#[actix_web::test]
async fn a_page_skips_a_limited_number_of_hidden_transactions() {
    let bank = TestBank::with_account().await;
    let (one, other) =
        (partner(&bank, "one", users([user()])).await, partner(&bank, "other", users([user()])).await);
    for number in 1..=25 {
        assert_eq!(deposit(&bank, &other, number).await.status, 202);
    }
    bank.post_all().await;
    assert_eq!(deposit(&bank, &one, 26).await.status, 202);
    bank.post_all().await;
    let page = async |limit: u32, cursor: Option<&str>| {
        let cursor = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        get(&bank, &one, &format!("{ACCOUNT}/transactions?limit={limit}{cursor}")).await
    };
    assert_eq!(ids(&page(3, None).await), [id(26)], "nine pages of another partner are skipped");
    let before = bank.operations();
    let first = page(1, None).await;
    let cost = bank.operations() - before;
    assert!(cost <= 25, "one request must read only a few pages, but made {cost} operations");
    let mut found = ids(&first);
    assert_eq!(found, [""; 0]);
    let mut cursor = first.body["next_cursor"].as_str().map(str::to_owned);
    while let Some(at) = cursor {
        let next = page(1, Some(&at)).await;
        found.extend(ids(&next));
        cursor = next.body["next_cursor"].as_str().map(str::to_owned);
    }
    assert_eq!(found, [id(26)], "all pages lead to the last transaction");
}
