//! What a caller may ask for: requests in a second, wrong keys, the size of a head.

use std::net::SocketAddr;
use std::time::Duration;

use actix_web::test::TestRequest;
use postonce_shared::access::partner_cache::{ABSENT_TTL, GRANT_TTL};
use postonce_shared::config::HttpLimits;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;

use super::desk::{ACCOUNT, Answer, Desk, with_key};

async fn desk_with(limits: HttpLimits) -> Desk {
    let mut desk = Desk::with_account().await;
    desk.app = desk.app.clone().within(limits);
    desk
}

#[actix_web::test]
async fn a_partner_that_asks_too_often_is_told_when_to_come_again() {
    let limits = HttpLimits { requests_per_second: 1, requests_burst: 3, ..HttpLimits::default() };
    let desk = desk_with(limits).await;
    let told = |answer: &Answer| {
        let of = |name| answer.header(name).unwrap_or_default().to_owned();
        (of("ratelimit-policy"), of("ratelimit"), of("retry-after"))
    };
    let expect = |remaining: &str, retry_after: &str| {
        (r#""default";q=3;w=3"#.to_owned(), format!(r#""default";{remaining}"#), retry_after.to_owned())
    };
    // Whatever the answer is: also one that is refused later.
    assert_eq!(told(&desk.get(ACCOUNT).await), expect("r=2;t=1", ""));
    assert_eq!(told(&desk.get("/v1/users/x/accounts").await), expect("r=1;t=2", ""));
    assert_eq!(told(&desk.put(ACCOUNT, "{}").await), expect("r=0;t=3", ""));
    let refused = desk.get(ACCOUNT).await;
    assert_eq!(refused.problem(), (429, "rate_limited"));
    assert_eq!(told(&refused), expect("r=0;t=3", "1"));
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("1 requests a second and 3 at once"), "{detail}");
    // The others do not notice.
    let other = NewKey::random();
    desk.admit(&other, "other", &[Scope::Read]).await;
    assert_eq!(desk.call(with_key(TestRequest::get().uri(ACCOUNT), &other)).await.status, 200);
    // Without a key there is no partner whose rate could be told.
    let anonymous = desk.call(TestRequest::get().uri(ACCOUNT)).await;
    assert_eq!(told(&anonymous), (String::new(), String::new(), String::new()));
    desk.world.advance(Duration::from_secs(1));
    assert_eq!(desk.get(ACCOUNT).await.status, 200);
    assert_eq!(desk.get(ACCOUNT).await.status, 429);
}

#[actix_web::test]
async fn a_flood_of_wrong_keys_does_not_reach_the_store() {
    let limits = HttpLimits { wrong_keys_per_second: 1, wrong_keys_burst: 3, ..HttpLimits::default() };
    let desk = desk_with(limits).await;
    let [home, elsewhere] = ["192.0.2.7:1000", "192.0.2.8:1000"].map(|it| it.parse::<SocketAddr>().unwrap());
    let [known, late] = [NewKey::random(), NewKey::random()];
    for key in [&known, &late] {
        desk.admit(key, "other", &[Scope::Read]).await;
    }
    let get = async |key: &NewKey, from: SocketAddr| {
        let before = desk.operations();
        let answer =
            desk.call(with_key(TestRequest::get().uri("/v1/users/x/accounts"), key).peer_addr(from)).await;
        (answer, desk.operations() - before)
    };
    let status = async |key: &NewKey, from| get(key, from).await.0.status;
    // A right key costs nothing, however often.
    for _ in 0..5 {
        assert_eq!(status(&known, home).await, 400);
    }
    let wrong: Vec<NewKey> = (0..20).map(|_| NewKey::random()).collect();
    let mut asked = 0;
    for (number, key) in wrong.iter().enumerate() {
        let (answer, operations) = get(key, home).await;
        asked += operations;
        let expected = if number < 3 { (401, "api_key_invalid") } else { (429, "rate_limited") };
        assert_eq!(answer.problem(), expected);
        assert_eq!(answer.header("retry-after").is_some(), number >= 3);
    }
    assert_eq!(asked, 3, "the store is asked for the first ones only");
    // One that is known to be wrong is called wrong, at no cost.
    let (answer, operations) = get(&wrong[0], home).await;
    assert_eq!((answer.status, operations), (401, 0));
    // Meanwhile a key that was right before stays right, also where the store has to be asked again.
    desk.world.advance(GRANT_TTL);
    while status(&NewKey::random(), home).await != 429 {}
    let (answer, operations) = get(&known, home).await;
    assert_eq!((answer.status, operations), (400, 2));
    // One that was never seen has to wait its turn, here but not elsewhere.
    assert_eq!(status(&late, home).await, 429);
    assert_eq!(status(&late, elsewhere).await, 400);
    desk.world.advance(ABSENT_TTL);
    assert_eq!(status(&NewKey::random(), home).await, 401);
}

#[actix_web::test]
async fn a_head_that_is_too_large_is_refused_with_what_is_allowed() {
    let desk = desk_with(HttpLimits { header_bytes_max: 1024, ..HttpLimits::default() }).await;
    let with = |bytes: usize| TestRequest::get().uri(ACCOUNT).insert_header(("x-much", "x".repeat(bytes)));
    assert_eq!(desk.call_as_shop(with(500)).await.status, 200);
    let refused = desk.call_as_shop(with(1024)).await;
    assert_eq!(refused.problem(), (431, "headers_too_large"));
    assert!(refused.body["detail"].as_str().unwrap().contains("1024 are allowed"), "{refused:?}");
    let target = format!("{ACCOUNT}?{}", "x".repeat(1024));
    assert_eq!(desk.get(&target).await.problem(), (431, "headers_too_large"));
    // Also where nobody knows who it is, and what nobody serves.
    let anonymous = TestRequest::get().uri("/livez").insert_header(("x-much", "x".repeat(1024)));
    assert_eq!(desk.call(anonymous).await.problem(), (431, "headers_too_large"));
}

#[actix_web::test]
async fn no_more_requests_are_in_hand_than_there_may_be_connections() {
    let desk = desk_with(HttpLimits { connections_max: 0, ..HttpLimits::default() }).await;
    let refused = desk.get(ACCOUNT).await;
    assert_eq!(refused.problem(), (503, "overloaded"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(desk.call(TestRequest::get().uri("/livez")).await.status, 200);
}
