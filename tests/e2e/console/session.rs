//! Sessions: who is signed in, where, and for how long; and forms of other sites.

use postonce_tests::prelude::*;
use reqwest::Response;
use reqwest::header::SET_COOKIE;

use super::http_visit::{HttpVisit, location};

/// What protects a page in the browser.
const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", "default-src 'none'; script-src 'self'; style-src 'self';"),
    ("content-security-policy", "frame-ancestors 'none'; base-uri 'none'"),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cache-control", "no-store"),
];

on_both_stores![
    a_session_is_valid_in_each_web_process_and_ends_with_its_key;
    on_sqlite:
    an_act_needs_a_form_of_the_session,
    a_session_ends_when_it_is_not_used,
];

fn is_sign_in(answer: &Response) -> bool {
    answer.status().as_u16() == 303 && location(answer).starts_with("/console/sign-in")
}

async fn a_session_is_valid_in_each_web_process_and_ends_with_its_key(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(2, 0).start().await;
    let key = bank.add_partner("operations", &["operate"]);
    let mut first = HttpVisit::of(&bank, 0);
    let asked = first.get("/console/gate").await;
    assert_eq!(location(&asked), "/console/sign-in?next=%2Fconsole%2Fgate", "{asked:?}");
    let wrong = first.post("/console/sign-in", &[("key", "po_wrong-key-0123456789")]).await;
    assert_eq!((wrong.status().as_u16(), wrong.headers().get(SET_COOKIE)), (401, None));

    first.sign_in(&key).await;
    let page = first.get("/console/gate").await;
    assert_eq!(page.status().as_u16(), 200);
    for (name, expected) in HEADERS {
        let value = page.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        assert!(value.contains(expected), "{name}: {value}");
    }
    let second = HttpVisit { cookie: first.cookie.clone(), ..HttpVisit::of(&bank, 1) };
    assert_eq!(second.get("/console/gate").await.status().as_u16(), 200, "in the other process");
    let beyond = second.get("/console/audit").await;
    assert_eq!(beyond.status().as_u16(), 403, "it needs the scope admin");
    let line = wait::until("the page has a line in the log", wait::TIMEOUT, async || {
        let of_page = |line: &str| line.contains("GET /console/audit answered 403").then(|| line.to_owned());
        bank.webs[1].log().find(of_page).ok_or("it has none".to_owned())
    })
    .await;
    assert!(line.contains("partner=\"operations\"") && line.contains("from=\"\""), "{line}");

    let mut stream = second.get("/console/live/gate").await;
    assert_eq!(stream.status().as_u16(), 200);
    let id = key_id(&bank, "operations").await;
    bank.operate(&["keys", "revoke", &id]);
    assert!(is_sign_in(&first.get("/console/gate").await), "the key is revoked");
    let mut received = String::new();
    while let Some(part) = stream.chunk().await.expect("the stream ends in an orderly way") {
        received.push_str(&String::from_utf8_lossy(&part));
    }
    assert!(received.ends_with("event: signed-out\ndata: 1\n\n"), "{received}");
}

async fn an_act_needs_a_form_of_the_session(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 0).start().await;
    let client = bank.client(0);
    let (mut one, mut other) = (HttpVisit::of(&bank, 0), HttpVisit::of(&bank, 0));
    one.sign_in(bank.key()).await;
    other.sign_in(bank.key()).await;
    let (own, foreign) = (one.token().await, other.token().await);
    let hold = |token| [("act", "hold"), ("epoch", "0"), ("csrf", token)];
    for refused in [
        one.post("/console/gate", &[("act", "hold")]).await,
        one.post("/console/gate", &hold(foreign.as_str())).await,
        one.with_cookie(one.form("/console/gate", &hold(own.as_str())))
            .header("sec-fetch-site", "cross-site")
            .send()
            .await
            .expect("the process answers"),
        one.with_cookie(one.form("/console/gate", &hold(own.as_str())))
            .header("origin", "null")
            .send()
            .await
            .expect("the process answers"),
    ] {
        assert_eq!(refused.status().as_u16(), 403, "{refused:?}");
    }
    let signed_out = one.form("/console/gate", &hold(own.as_str())).send().await.expect("an answer");
    assert!(is_sign_in(&signed_out), "{signed_out:?}");
    assert_eq!(client.gate().await.text_at("/state"), "released");

    let outdated = one.post("/console/gate", &[("act", "hold"), ("csrf", own.as_str())]).await;
    assert_eq!(location(&outdated), "/console/gate?done=not-done", "a form without the epoch that it shows");
    let held = one
        .with_cookie(one.form("/console/gate", &hold(own.as_str())))
        .header("origin", bank.webs[0].address())
        .send()
        .await
        .expect("the process answers");
    assert_eq!(location(&held), "/console/gate?done=held", "{held:?}");
    assert_eq!(client.gate().await.text_at("/state"), "held");
    let rows = client.get("/v1/admin/audit?limit=1").await.expect(200);
    assert_eq!(rows.text_at("/rows/0/act"), "gate.change");
    assert_eq!(rows.text_at("/rows/0/actor"), "bootstrap");
    let gate = client.gate().await;
    assert!(gate.text_at("/by").contains(rows.text_at("/rows/0/key_id")), "{gate:?}");
    client.release(1).await;

    let out = one.post("/console/sign-out", &[("csrf", own.as_str())]).await;
    let removal = out.headers()[SET_COOKIE].to_str().expect("a cookie is ASCII");
    assert!(removal.starts_with("postonce_console=;") && removal.contains("Max-Age=0"), "{removal}");
    let account = fresh_account();
    client.open(account).await;
    drop(client.submit(account, fresh_id(), &Submission::deposit("1.00")).await);
}

async fn a_session_ends_when_it_is_not_used(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 0).with("POSTONCE_CONSOLE_SESSION_S", "5").start().await;
    let mut visit = HttpVisit::of(&bank, 0);
    visit.sign_in(bank.key()).await;
    assert_eq!(visit.get("/console/gate").await.status().as_u16(), 200);
    let mut stream = visit.get("/console/live/gate").await;
    let mut received = String::new();
    while let Some(part) = stream.chunk().await.expect("the stream ends in an orderly way") {
        received.push_str(&String::from_utf8_lossy(&part));
    }
    // The browser connects again, with the cookie that it has by then.
    assert!(!received.contains("signed-out"), "{received}");
    assert!(is_sign_in(&visit.get("/console/live/gate").await), "reading values does not extend the session");
    let expired = visit.get("/console/gate").await;
    assert_eq!(location(&expired), "/console/sign-in?expired=1&next=%2Fconsole%2Fgate");
}

#[tokio::test]
async fn the_console_is_where_operators_are_and_can_be_turned_off() {
    let bank =
        Plan::on(StoreKind::Sqlite).processes(1, 1).with("POSTONCE_ADMIN_BIND", "127.0.0.1:0").start().await;
    let operators = bank.webs[0].operators_address().expect("it has an address for operators");
    let status = async |address: &str| {
        let answer = HttpVisit::of(&bank, 0).http.get(format!("{address}/console/sign-in")).send().await;
        answer.expect("the process answers").status().as_u16()
    };
    assert_eq!(status(&operators).await, 200);
    assert_eq!(status(bank.webs[0].address()).await, 404, "partners have no console");
    ProcessProbe::of(bank.workers[0].address()).until_ready().await;
    assert_eq!(status(bank.workers[0].address()).await, 404, "a worker serves none");

    let off = Plan::on(StoreKind::Sqlite).processes(1, 0).with("POSTONCE_CONSOLE", "false").start().await;
    assert_eq!(status(off.webs[0].address()).await, 404);
    let greeting = off.client(0).get("/").await.text;
    assert!(!greeting.contains("/console") && greeting.contains("/docs"), "{greeting}");
}

/// The id of the only key of a partner.
pub async fn key_id(bank: &Scenario, partner: &str) -> String {
    let found = bank.client(0).get(&format!("/v1/admin/partners/{partner}")).await.expect(200);
    found.text_at("/keys/0/key_id").to_owned()
}
