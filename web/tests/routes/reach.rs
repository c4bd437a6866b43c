//! What a partner may touch: everything else looks as if it did not exist, in every operation.

use std::collections::BTreeSet;

use actix_web::http::Method;
use actix_web::test::TestRequest;
use postonce_shared::domain::ids::{AccountKey, UserId};
use postonce_shared::domain::partner::Reach;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use serde_json::Value;

use super::desk::{ACCOUNT, Answer, Desk, USER, id, json, with_key};

const BUSINESS: [Scope; 4] = [Scope::Deposit, Scope::Withdraw, Scope::Read, Scope::Accounts];
/// Accounts that nobody opened: one of the user whom all know, and one of another user.
const UNOPENED: &str = "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e23";
const STRANGER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d12";

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

/// A key of a new partner with that reach, without the scope `admin`.
async fn partner(desk: &Desk, name: &str, reach: Reach) -> NewKey {
    let key = NewKey::random();
    desk.admit_within(reach, &key, name, &BUSINESS).await;
    key
}

async fn get(desk: &Desk, key: &NewKey, path: &str) -> Answer {
    desk.call(with_key(TestRequest::get().uri(path), key)).await
}

async fn deposit(desk: &Desk, key: &NewKey, number: u32) -> Answer {
    let request = super::desk::submission("deposits", number, r#"{"amount":"1","currency":"EUR"}"#);
    desk.call(with_key(request, key)).await
}

/// Every operation of the document on one account: its method, its path and a body that it takes.
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
            assert_eq!(body.is_some(), operation.get("requestBody").is_some(), "{name}: how is it asked?");
            operations.push((method, path.clone(), body));
        }
    }
    operations
}

fn request(method: &Method, path: &str, body: Option<&str>) -> TestRequest {
    let request = TestRequest::default().method(method.clone()).uri(path);
    let request = request.insert_header(("idempotency-key", id(1)));
    match body {
        Some(body) => json(request, body),
        None => request,
    }
}

#[actix_web::test]
async fn an_account_out_of_reach_looks_as_one_that_does_not_exist() {
    let desk = Desk::with_account().await;
    // A transaction of the shop's stands on it, so that there is something to find.
    let posted = desk.submit("deposits", 1, r#"{"amount":"5","currency":"EUR"}"#).await;
    assert_eq!(posted.status, 202, "{posted:?}");
    let elsewhere = AccountKey { user: user(), account: UNOPENED.parse().unwrap() };
    let key = partner(&desk, "elsewhere", accounts([elsewhere])).await;
    let anywhere = partner(&desk, "anywhere", Reach::Everything).await;
    // Both are known from here on.
    assert_eq!(get(&desk, &key, USER).await.status, 200);
    let operations = operations_on_accounts();
    assert!(operations.len() >= 7, "{operations:?}");
    let of = |path: &str, account: &str| {
        let path = path.replace("{user_id}", "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11");
        path.replace("{account_id}", account).replace("{message_id}", &id(1))
    };
    for (method, path, body) in operations {
        let name = format!("{method} {path}");
        let existing = of(&path, "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22");
        let before = desk.operations();
        let refused = desk.call(with_key(request(&method, &existing, body), &key)).await;
        assert_eq!(desk.operations(), before, "{name}: decided before anything is asked of the store");
        // Opening an account that does not exist would open it: it is refused as changing it is.
        let (asked, body) = match method {
            Method::PUT => (Method::PATCH, Some(r#"{"status":"closed"}"#)),
            _ => (method.clone(), body),
        };
        let unknown = of(&path, "ffffffff-7c2f-4c35-8f0d-0a4f6f1f2e22");
        let unknown = desk.call(with_key(request(&asked, &unknown, body), &anywhere)).await;
        assert_eq!(refused.status, 404, "{name}: {refused:?}");
        assert_eq!((refused.status, &refused.text), (unknown.status, &unknown.text), "{name}");
        let headers = |answer: &Answer| {
            let mut names: Vec<String> = answer.headers.keys().map(ToString::to_string).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(headers(&refused), headers(&unknown), "{name}");
    }
    assert_eq!(desk.get(ACCOUNT).await.body["status"], "open", "nothing of it was done");
}

#[actix_web::test]
async fn what_breaks_the_syntax_is_told_before_the_reach() {
    let desk = Desk::with_account().await;
    let key = partner(&desk, "nobody", users([])).await;
    let check = async |request: TestRequest, expected: (u16, &str)| {
        assert_eq!(desk.call(with_key(request, &key)).await.problem(), expected);
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
async fn the_accounts_of_a_user_are_those_within_reach() {
    let desk = Desk::with_account().await;
    let other = format!("{USER}/{UNOPENED}");
    assert_eq!(desk.put(&other, r#"{"currency":"EUR"}"#).await.status, 201);
    let check = async |name: &str, reach: Reach, user: &str, expected: Result<&[&str], &str>| {
        let key = partner(&desk, name, reach).await;
        let answer = get(&desk, &key, &format!("/v1/users/{user}/accounts")).await;
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
    let ghost = AccountKey { account: "00000000-7c2f-4c35-8f0d-0a4f6f1f2e22".parse().unwrap(), ..account() };
    check("everything", Reach::Everything, &known, Ok(&both)).await;
    check("everything2", Reach::Everything, STRANGER, Ok(&[])).await;
    check("user", users([user()]), &known, Ok(&both)).await;
    check("user2", users([user()]), STRANGER, Err("user_unknown")).await;
    check("account", accounts([account()]), &known, Ok(&both[..1])).await;
    check("ghost", accounts([ghost, account()]), &known, Ok(&both[..1])).await;
    check("ghost2", accounts([ghost]), &known, Ok(&[])).await;
    check("nothing", users([]), &known, Err("user_unknown")).await;

    // Page by page, over a name that was never opened.
    let key = partner(&desk, "pages", accounts([ghost, account()])).await;
    let first = get(&desk, &key, &format!("{USER}?limit=1")).await.body;
    assert_eq!(first["accounts"].as_array().unwrap().len(), 0);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = get(&desk, &key, &format!("{USER}?limit=1&cursor={cursor}")).await.body;
    assert_eq!(
        (&second["accounts"][0]["account_id"], &second["next_cursor"]),
        (&both[0].into(), &Value::Null)
    );
}

#[actix_web::test]
async fn an_account_within_reach_is_opened_and_used() {
    let desk = Desk::new().await;
    let key = partner(&desk, "opener", users([user()])).await;
    let open = json(TestRequest::put().uri(ACCOUNT), r#"{"currency":"EUR"}"#);
    assert_eq!(desk.call(with_key(open, &key)).await.status, 201);
    assert_eq!(deposit(&desk, &key, 1).await.status, 202);
    assert_eq!(get(&desk, &key, &format!("{ACCOUNT}/transactions/{}", id(1))).await.status, 200);
}

fn ids(page: &Answer) -> Vec<String> {
    let transactions = page.body["transactions"].as_array().unwrap_or_else(|| panic!("{page:?}"));
    transactions.iter().map(|it| it["message_id"].as_str().unwrap().to_owned()).collect()
}

#[actix_web::test]
async fn a_partner_never_sees_what_another_did_on_the_same_account() {
    let desk = Desk::with_account().await;
    let one = partner(&desk, "one", users([user()])).await;
    let other = partner(&desk, "other", accounts([account()])).await;
    let operator = NewKey::random();
    desk.admit_within(Reach::Everything, &operator, "operator", &[Scope::Read, Scope::Admin]).await;
    for (number, key) in [(1, &one), (2, &other), (3, &one)] {
        assert_eq!(deposit(&desk, key, number).await.status, 202);
        desk.post_all().await;
    }
    assert_eq!(deposit(&desk, &one, 4).await.status, 202);
    assert_eq!(deposit(&desk, &other, 5).await.status, 202);
    let check = async |key: &NewKey, query: &str, expected: &[u32]| {
        let page = get(&desk, key, &format!("{ACCOUNT}/transactions{query}")).await;
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
        let answer = get(&desk, &one, &format!("{ACCOUNT}/transactions/{}", id(number))).await;
        assert_eq!(answer.status, status, "{number}");
    }
}

#[actix_web::test]
async fn pages_pass_over_what_is_not_shown_but_not_for_ever() {
    let desk = Desk::with_account().await;
    let (one, other) =
        (partner(&desk, "one", users([user()])).await, partner(&desk, "other", users([user()])).await);
    for number in 1..=25 {
        assert_eq!(deposit(&desk, &other, number).await.status, 202);
    }
    desk.post_all().await;
    assert_eq!(deposit(&desk, &one, 26).await.status, 202);
    desk.post_all().await;
    let page = async |limit: u32, cursor: Option<&str>| {
        let cursor = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        get(&desk, &one, &format!("{ACCOUNT}/transactions?limit={limit}{cursor}")).await
    };
    assert_eq!(ids(&page(3, None).await), [id(26)], "nine pages of others are passed over");
    let before = desk.operations();
    let first = page(1, None).await;
    let cost = desk.operations() - before;
    assert!(cost <= 25, "one request costs no more than some pages, but cost {cost}");
    let mut found = ids(&first);
    assert_eq!(found, [""; 0]);
    let mut cursor = first.body["next_cursor"].as_str().map(str::to_owned);
    while let Some(at) = cursor {
        let next = page(1, Some(&at)).await;
        found.extend(ids(&next));
        cursor = next.body["next_cursor"].as_str().map(str::to_owned);
    }
    assert_eq!(found, [id(26)], "the end is found from page to page");
}
