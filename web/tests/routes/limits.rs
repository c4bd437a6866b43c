//! Limits of callers: requests in a second, wrong keys, size of the head, concurrent requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::test::TestRequest;
use postonce_shared::access::partner_cache::GRANT_TTL;
use postonce_shared::config::{HttpLimits, ProxyHeaders, TrustedProxies};
use postonce_shared::domain::ids::PartnerId;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use postonce_web::access::shares::{Capacity, PartnerShares};
use postonce_web::access::slots::Slots;

use super::test_bank::{ACCOUNT, Answer, TestBank, id, json, submission, with_key};

async fn bank_with(limits: HttpLimits) -> TestBank {
    let mut bank = TestBank::with_account().await;
    bank.app = bank.app.clone().within(limits);
    bank
}

#[actix_web::test]
async fn a_partner_above_its_rate_is_refused_with_the_time_to_retry() {
    let limits = HttpLimits { requests_per_second: 1, requests_burst: 3, ..HttpLimits::default() };
    let bank = bank_with(limits).await;
    let rate_headers = |answer: &Answer| {
        let of = |name| answer.header(name).unwrap_or_default().to_owned();
        (of("ratelimit-policy"), of("ratelimit"), of("retry-after"))
    };
    let expect = |remaining: &str, retry_after: &str| {
        (r#""default";q=3;w=3"#.to_owned(), format!(r#""default";{remaining}"#), retry_after.to_owned())
    };
    // Every response has the headers, also that of a request that is refused later.
    assert_eq!(rate_headers(&bank.get(ACCOUNT).await), expect("r=2;t=1", ""));
    assert_eq!(rate_headers(&bank.get("/v1/users/x/accounts").await), expect("r=1;t=2", ""));
    assert_eq!(rate_headers(&bank.put(ACCOUNT, "{}").await), expect("r=0;t=3", ""));
    let refused = bank.get(ACCOUNT).await;
    assert_eq!(refused.problem(), (429, "rate_limited"));
    assert_eq!(rate_headers(&refused), expect("r=0;t=3", "1"));
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("1 requests per second and bursts of 3"), "{detail}");
    // Other partners are not affected.
    let other = NewKey::random();
    bank.add_key(&other, "other", &[Scope::Read]).await;
    assert_eq!(bank.call(with_key(TestRequest::get().uri(ACCOUNT), &other)).await.status, 200);
    // Without a key, there is no partner whose rate could be shown.
    let anonymous = bank.call(TestRequest::get().uri(ACCOUNT)).await;
    assert_eq!(rate_headers(&anonymous), (String::new(), String::new(), String::new()));
    bank.world.advance(Duration::from_secs(1));
    assert_eq!(bank.get(ACCOUNT).await.status, 200);
    assert_eq!(bank.get(ACCOUNT).await.status, 429);
}

/// A batch of the shop, whose items are not valid, so that none is posted.
fn batch(number: u32, on_invalid: &str, items: usize) -> TestRequest {
    TestRequest::post()
        .uri(&format!("/v1/batches?on-invalid={on_invalid}"))
        .insert_header(("content-type", "application/x-ndjson"))
        .insert_header(("idempotency-key", id(number)))
        .set_payload("not JSON\n".repeat(items))
}

const DEPOSIT: &str = r#"{"amount":"1.00","currency":"EUR"}"#;

#[actix_web::test]
async fn a_debt_delays_submissions_and_nothing_else() {
    let bank =
        bank_with(HttpLimits { requests_per_second: 10, requests_burst: 100, ..HttpLimits::default() }).await;
    assert_eq!(bank.call_as_shop(batch(1, "skip", 300)).await.status, 202);
    for refused in [
        bank.submit("deposits", 2, DEPOSIT).await,
        bank.submit("withdrawals", 2, DEPOSIT).await,
        bank.call_as_shop(batch(3, "skip", 1)).await,
    ] {
        assert_eq!((refused.problem(), refused.header("retry-after")), ((429, "rate_limited"), Some("20")));
    }
    assert_eq!(bank.get(ACCOUNT).await.status, 200);
    assert_eq!(bank.get(&format!("/v1/batches/{}", id(1))).await.status, 200);
    assert_eq!(bank.put(&ACCOUNT.replace('7', "8"), r#"{"currency":"EUR"}"#).await.status, 201);
    bank.world.advance(Duration::from_secs(20));
    assert_eq!(bank.submit("deposits", 2, DEPOSIT).await.status, 202);
}

#[actix_web::test]
async fn a_refused_document_is_a_debt_for_its_bytes() {
    let bank =
        bank_with(HttpLimits { requests_per_second: 10, requests_burst: 100, ..HttpLimits::default() }).await;
    // 9 bytes an item, so 200 KiB.
    let refused = bank.call_as_shop(batch(1, "refuse", 200 * 1024 / 9)).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    let refused = bank.submit("deposits", 2, DEPOSIT).await;
    assert_eq!((refused.problem(), refused.header("retry-after")), ((429, "rate_limited"), Some("10")));
}

#[actix_web::test]
async fn an_operator_acts_while_its_partner_has_used_up_its_rate() {
    let bank =
        bank_with(HttpLimits { requests_per_second: 1, requests_burst: 4, ..HttpLimits::default() }).await;
    let [operator, reader] = [[Scope::Admin], [Scope::Read]].map(|scopes| (NewKey::random(), scopes));
    for (key, scopes) in [&operator, &reader] {
        bank.add_key(key, "shop", scopes).await;
    }
    assert_eq!(bank.call_as_shop(batch(1, "skip", 300)).await.status, 202);
    while bank.get(ACCOUNT).await.status != 429 {}
    let act =
        |key, path: &str, body: &str| bank.call(with_key(json(TestRequest::put().uri(path), body), key));
    let held = act(&operator.0, "/v1/admin/gate", r#"{"state":"held"}"#).await;
    assert_eq!(held.status, 200, "{held:?}");
    let suspended = act(&operator.0, "/v1/admin/partners/mill", r#"{"reach":{"everything":true}}"#).await;
    assert_eq!(suspended.status, 201, "{suspended:?}");
    // A key without a right of operators has no share of theirs, whatever path it uses.
    let other = bank.call(with_key(TestRequest::get().uri("/v1/admin/gate"), &reader.0)).await;
    assert_eq!(other.problem(), (429, "rate_limited"));
}

#[actix_web::test]
async fn a_flood_of_wrong_keys_neither_reaches_the_store_nor_harms_its_neighbours() {
    let limits = HttpLimits { wrong_keys_per_second: 1, wrong_keys_burst: 3, ..HttpLimits::default() };
    let bank = bank_with(limits).await;
    let [home, elsewhere] = ["192.0.2.7:1000", "192.0.2.8:1000"].map(|it| it.parse::<SocketAddr>().unwrap());
    let known = NewKey::random();
    bank.add_key(&known, "other", &[Scope::Read]).await;
    let get = async |key: &NewKey, from: SocketAddr| {
        let before = bank.operations();
        let answer =
            bank.call(with_key(TestRequest::get().uri("/v1/users/x/accounts"), key).peer_addr(from)).await;
        (answer, bank.operations() - before)
    };
    let status = async |key: &NewKey, from| get(key, from).await.0.status;
    assert_eq!(status(&known, home).await, 400);
    let mut reads = 0;
    for number in 0..200 {
        let (answer, operations) = get(&NewKey::random(), home).await;
        reads += operations;
        let expected = if number < 3 { (401, "api_key_invalid") } else { (429, "rate_limited") };
        assert_eq!(answer.problem(), expected);
        assert_eq!(answer.header("retry-after").is_some(), number >= 3);
    }
    assert!(reads <= 1, "the ids of the keys are read once, but {reads} operations were counted");
    // Valid keys behind the same address: one that is cached, one that must be read again, and a new one.
    assert_eq!(status(&known, home).await, 400);
    bank.world.advance(GRANT_TTL);
    while status(&NewKey::random(), home).await != 429 {}
    let (answer, operations) = get(&known, home).await;
    assert_eq!((answer.status, operations), (400, 2));
    let late = NewKey::random();
    bank.add_key(&late, "late", &[Scope::Read]).await;
    assert_eq!(status(&late, home).await, 400);
    // Wrong keys of other addresses have a budget of their own.
    assert_eq!(status(&NewKey::random(), home).await, 429);
    assert_eq!(status(&NewKey::random(), elsewhere).await, 401);
}

#[actix_web::test]
async fn a_mistyped_key_is_refused_with_that_reason() {
    let bank = TestBank::with_account().await;
    let key = bank.key().expose();
    let mistyped = format!("{}{}", &key[..key.len() - 1], if key.ends_with('A') { "B" } else { "A" });
    let request =
        TestRequest::get().uri(ACCOUNT).insert_header(("authorization", format!("Bearer {mistyped}")));
    let refused = bank.call(request).await;
    assert_eq!(refused.problem(), (401, "api_key_invalid"));
    assert!(refused.text.contains("typing error"), "{refused:?}");
}

/// A client could name another address in each request. A trusted proxy names those of its clients.
#[actix_web::test]
async fn wrong_keys_are_counted_by_the_address_that_a_trusted_proxy_names() {
    let limits = HttpLimits { wrong_keys_per_second: 1, wrong_keys_burst: 3, ..HttpLimits::default() };
    for (header, is_trusted) in [
        ("forwarded", false),
        ("x-forwarded-for", false),
        ("x-real-ip", true),
        ("forwarded", true),
        ("x-forwarded-for", true),
    ] {
        let mut bank = bank_with(limits).await;
        if is_trusted {
            let proxies = TrustedProxies::parse("192.0.2.0/24").unwrap();
            let headers =
                if header == "forwarded" { ProxyHeaders::Forwarded } else { ProxyHeaders::XForwarded };
            bank.app.trusted_proxies = Arc::new(proxies.with_headers(headers));
        }
        let is_believed = is_trusted && header != "x-real-ip";
        for number in 0..6 {
            let named = format!("198.51.100.{number}");
            let value = if header == "forwarded" { format!("for={named}") } else { named };
            let request = TestRequest::get().uri("/v1/users/x/accounts").insert_header((header, value));
            let from = "192.0.2.7:1000".parse::<SocketAddr>().unwrap();
            let answer = bank.call(with_key(request, &NewKey::random()).peer_addr(from)).await;
            assert_eq!(
                answer.status,
                if number < 3 || is_believed { 401 } else { 429 },
                "{header} {is_trusted}"
            );
        }
    }
}

#[actix_web::test]
async fn a_head_that_is_too_large_is_refused_with_the_limit() {
    let bank = bank_with(HttpLimits { header_bytes_max: 1024, ..HttpLimits::default() }).await;
    let with = |bytes: usize| TestRequest::get().uri(ACCOUNT).insert_header(("x-much", "x".repeat(bytes)));
    assert_eq!(bank.call_as_shop(with(500)).await.status, 200);
    let refused = bank.call_as_shop(with(1024)).await;
    assert_eq!(refused.problem(), (431, "headers_too_large"));
    assert!(refused.body["detail"].as_str().unwrap().contains("1024 are allowed"), "{refused:?}");
    let target = format!("{ACCOUNT}?{}", "x".repeat(1024));
    assert_eq!(bank.get(&target).await.problem(), (431, "headers_too_large"));
    // Also without a key, and on unknown paths.
    let anonymous = TestRequest::get().uri("/livez").insert_header(("x-much", "x".repeat(1024)));
    assert_eq!(bank.call(anonymous).await.problem(), (431, "headers_too_large"));
}

#[actix_web::test]
async fn bodies_that_arrive_at_the_same_time_are_limited_for_each_partner_and_in_all() {
    for (slots, expected) in [
        (Slots::new(1000, usize::MAX), (429, "rate_limited")),
        (Slots::new(usize::MAX, 1000), (503, "overloaded")),
    ] {
        let mut bank = bank_with(HttpLimits::default()).await;
        let shares = PartnerShares::of(&HttpLimits::default());
        let of_partners = Capacity { body_bytes: Arc::clone(&slots), ..shares.of_partners };
        bank.app.shares = Arc::new(PartnerShares { of_partners, ..shares });
        let of = |length: usize| {
            let body = format!("{:length$}", r#"{"amount":"1.00","currency":"EUR"}"#);
            submission("deposits", 1, &body)
        };
        let in_chunks = |length: usize| of(length).insert_header(("content-length", ""));
        // Others are received meanwhile.
        let others = slots.take(&PartnerId::parse("shop").unwrap(), 600).unwrap();
        let refused = bank.call_as_shop(of(500)).await;
        assert_eq!(refused.problem(), expected, "{refused:?}");
        assert!(refused.header("retry-after").is_some());
        let refused = bank.call_as_shop(in_chunks(300)).await;
        assert_eq!(refused.problem(), expected, "its length is not known: {refused:?}");
        assert_eq!(bank.call_as_shop(of(300)).await.status, 202);
        drop(others);
        assert_eq!(bank.call_as_shop(of(1000)).await.status, 202, "all are given back");
    }
}

#[actix_web::test]
async fn the_number_of_concurrent_requests_is_limited() {
    let bank = bank_with(HttpLimits { connections_max: 0, ..HttpLimits::default() }).await;
    let refused = bank.get(ACCOUNT).await;
    assert_eq!(refused.problem(), (503, "overloaded"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(bank.call(TestRequest::get().uri("/livez")).await.status, 200);
}
