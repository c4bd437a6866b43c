//! Keys, names and references are never logged, at any log level and for any invalid input. Everything that
//! the test sends contains a mark wherever a client can write text, and no log line of any process may
//! contain it.

use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use postonce_shared::messaging::envelope;
use postonce_tests::prelude::*;
use postonce_tests::raw_http::{RawAnswer, RawConnection};
use reqwest::Method;
use serde_json::{Value, json};

on_both_stores![no_sent_secret_is_in_a_text_log, no_sent_secret_is_in_a_json_log];

/// A mark in all content that must not be logged; no id contains it.
const MARK: &str = "Zq9x";
/// Longest time for an answer on a busy machine.
const SOON: Duration = Duration::from_secs(20);

async fn no_sent_secret_is_in_a_text_log(store_kind: StoreKind) {
    search(store_kind, "text").await;
}

async fn no_sent_secret_is_in_a_json_log(store_kind: StoreKind) {
    search(store_kind, "json").await;
}

async fn search(store_kind: StoreKind, log_format: &str) {
    let mut bank = Plan::on(store_kind)
        .processes(1, 1)
        .polling_often()
        .with("POSTONCE_QUEUE_COUNT", "1")
        .with_ingest("feeder", "feeder")
        .with("POSTONCE_LOG", "trace")
        .with("POSTONCE_LOG_FORMAT", log_format)
        .start()
        .await;
    let account = fresh_account();
    // The key ends in the mark, like a key that somebody has chosen.
    let reader = bank.add_partner("reader", &["read"]);
    let mut statuses = Vec::new();
    for request in requests(&bank, account, &reader) {
        statuses.push(request.send(&bank).await.map(|answer| answer.status));
    }
    for kind in [200, 201, 202, 400, 401, 403, 404, 405, 409, 413, 415, 422] {
        assert!(statuses.contains(&Some(kind)), "no answer {kind} among {statuses:?}");
    }
    write_to_the_queue(&bank, account).await;
    let letters = resolve_letters(&bank).await;
    bank.client(0).until_drained(wait::TIMEOUT).await;
    let printed = [bank.operate(&["recover"]), bank.operate(&["sweep"]), bank.operate(&["keys", "list"])];

    // Read before the processes stop.
    let posted = bank.client(0).listing(account, None, 10).await;
    for process in bank.workers.iter_mut().chain(&mut bank.webs) {
        process.drain().await;
    }

    let secrets = [MARK.to_lowercase(), bank.key().to_lowercase(), reader.to_lowercase()];
    let mut lines: Vec<String> = printed.iter().flat_map(|text| text.lines().map(str::to_owned)).collect();
    for process in bank.webs.iter().chain(&bank.workers) {
        lines.extend(process.log().lines());
    }
    let found: Vec<&String> = lines
        .iter()
        .filter(|line| secrets.iter().any(|secret| line.to_lowercase().contains(secret)))
        .collect();
    assert!(found.is_empty(), "{} of {} lines:\n{found:#?}", found.len(), lines.len());

    // The mark was received, and there were log lines to search.
    assert!(letters.to_string().contains(MARK), "no dead letter contains the mark: {letters}");
    assert!(json!(posted).to_string().contains(MARK), "no mark was posted: {posted:?}");
    for word in
        ["account.open", "dead_letter.discard", "work.recover", "answered 422", "api_key_invalid", "DEBUG"]
    {
        assert!(lines.iter().any(|line| line.contains(word)), "no line has {word}:\n{}", lines.join("\n"));
    }
}

/// A request as bytes.
struct RawRequest {
    method: String,
    target: String,
    headers: String,
    body: String,
}

impl RawRequest {
    async fn send(&self, bank: &Scenario) -> Option<RawAnswer> {
        let Self { method, target, headers, body } = self;
        let mut connection = RawConnection::open(bank.webs.first().expect("a web process").address()).await;
        let length = body.len();
        let text = format!(
            "{method} {target} HTTP/1.1\r\nHost: {MARK}host\r\nUser-Agent: {MARK}agent\r\nCookie: {MARK}=cookie\r\n\
             X-{MARK}: 1\r\nReferer: http://{MARK}.example\r\nForwarded: for={MARK}\r\ntraceparent: {MARK}\r\n\
             Connection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        connection.send(text).await;
        connection.answer(SOON).await
    }
}

fn request(
    method: &str,
    target: impl Into<String>,
    headers: impl Into<String>,
    body: impl Into<String>,
) -> RawRequest {
    RawRequest {
        method: method.to_owned(),
        target: target.into(),
        headers: headers.into(),
        body: body.into(),
    }
}

/// Requests with a mark in every possible position.
fn requests(bank: &Scenario, account: AccountKey, reader: &str) -> Vec<RawRequest> {
    let bearer = format!("Authorization: Bearer {}\r\n", bank.key());
    let path = path_of(account);
    let json = format!("{bearer}Content-Type: application/json\r\n");
    let deposit = |id: &str, body: String| {
        let headers = format!("{json}Idempotency-Key: {id}\r\nPrefer: wait=5, {MARK}=1\r\n");
        request("POST", format!("{path}/deposits"), headers, body)
    };
    let fresh = || fresh_id().to_string();
    let terms = format!(
        r#"{{"currency":"EUR","holder":{{"given_name":"{MARK}given","family_name":"{MARK}family"}}}}"#
    );
    let good = format!(
        r#"{{"amount":"2.00","currency":"EUR","reference":"{MARK}reference","metadata":{{"{MARK}k":"{MARK}v"}},"{MARK}unknown":["{MARK}"]}}"#
    );
    let once = fresh();
    let mut all = vec![
        request("PUT", &path, &json, &terms),
        request("PUT", &path, &json, terms.replace("EUR", "USD")),
        request("PATCH", &path, &json, format!(r#"{{"overdraft_limit":"{MARK}"}}"#)),
        deposit(&once, good.clone()),
        deposit(&once, good.clone()),
        deposit(&once, good.replace("2.00", "3.00")),
        deposit(&format!("{MARK}id"), good.clone()),
        request("POST", format!("{path}/deposits"), &json, &good),
        request(
            "POST",
            format!("{}/deposits", path_of(fresh_account())),
            format!("{json}Idempotency-Key: {}\r\n", fresh()),
            &good,
        ),
        request(
            "POST",
            format!("{path}/withdrawals"),
            format!("{json}Idempotency-Key: {}\r\n", fresh()),
            good.replace("2.00", "900.00"),
        ),
        request("GET", format!("{path}/transactions/{once}"), &bearer, ""),
        request("GET", &path, &bearer, ""),
        request("POST", format!("{path}/deposits"), format!("{bearer}Content-Type: text/{MARK}\r\n"), &good),
        request("POST", format!("{path}/deposits"), format!("{json}Content-Encoding: {MARK}\r\n"), &good),
        request("POST", format!("{path}/deposits"), format!("{json}Accept: {MARK}/{MARK}\r\n"), &good),
        request("GET", &path, format!("Authorization: Bearer {MARK}key-that-nobody-knows\r\n"), ""),
        request("GET", &path, format!("Authorization: Bearer po_{MARK}{}\r\n", "A".repeat(39)), ""),
        request("GET", &path, format!("Authorization: Basic {MARK}\r\n"), ""),
        request("GET", &path, format!("Authorization: {MARK}\r\n"), ""),
        request("GET", "/v1/admin/queues", format!("Authorization: Bearer {reader}\r\n"), ""),
        request("GET", format!("/v1/users/{MARK}/accounts"), &bearer, ""),
        request("GET", format!("{path}{MARK}"), &bearer, ""),
        request("GET", format!("{path}/transactions/{MARK}"), &bearer, ""),
        request(
            "GET",
            format!("{path}/transactions?limit={MARK}&cursor={MARK}&status={MARK}&{MARK}={MARK}"),
            &bearer,
            "",
        ),
        request("GET", format!("/{MARK}"), &bearer, ""),
        request("GET", format!("/docs/{MARK}"), &bearer, ""),
        request("DELETE", format!("/v1/admin/dead-letters/{MARK}"), &bearer, ""),
        request("POST", format!("/v1/admin/dead-letters/{MARK}/replay"), &bearer, ""),
        request("PUT", "/v1/admin/gate", &json, format!(r#"{{"state":"{MARK}","{MARK}":1}}"#)),
        request("PUT", "/v1/admin/gate", &json, format!(r#"{{"state":"held","release_at":"{MARK}"}}"#)),
        request(&MARK.to_uppercase(), &path, &bearer, ""),
        request("POST", "/internal/ring", format!("X-Postonce-Signature: {MARK}\r\n"), MARK),
        // Bytes that are not HTTP.
        request(&format!("{MARK} {MARK}"), &path, &bearer, ""),
        request("GET", &path, format!("{bearer}{MARK}\r\n"), ""),
        request("GET", &path, format!("{bearer}X-Large: {}\r\n", MARK.repeat(20_000)), ""),
    ];
    all.extend(bodies().into_iter().map(|body| deposit(&fresh(), body)));
    all.extend(of_operators(&bearer));
    all
}

/// Requests for batches of partners, and of the console.
fn of_operators(bearer: &str) -> [RawRequest; 5] {
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    [
        request("DELETE", format!("/v1/admin/batches/{MARK}/{MARK}"), bearer, ""),
        request("GET", format!("/v1/admin/batches?partner_id={MARK}"), bearer, ""),
        request(
            "POST",
            "/console/sign-in",
            form,
            format!("key=po_{MARK}{}&next=/console/{MARK}", "A".repeat(39)),
        ),
        request("GET", format!("/console/{MARK}?{MARK}"), format!("Cookie: postonce_console={MARK}\r\n"), ""),
        request(
            "POST",
            "/console/gate",
            format!("{form}Cookie: {MARK}={MARK}\r\n"),
            format!("reason={MARK}"),
        ),
    ]
}

/// Bodies with all kinds of errors.
fn bodies() -> Vec<String> {
    vec![
        MARK.to_owned(),
        format!(r#"{{"amount":"{MARK}","currency":"{MARK}"}}"#),
        format!(r#"{{"amount":{{"{MARK}":1}},"currency":["{MARK}"],"reference":7,"metadata":"{MARK}"}}"#),
        format!(r#"{{"amount":"1.00","currency":"EUR","reference":"{}"}}"#, MARK.repeat(100)),
        format!(
            r#"{{"amount":"1.00","currency":"EUR","metadata":{{"{MARK}":{{"a":1}},"{}":"x"}}}}"#,
            MARK.repeat(50)
        ),
        format!(r#"{{"amount":"1.00","amount":"{MARK}","currency":"EUR"}}"#),
        format!(r#"{{"amount":"1.00","currency":"EUR","reference":"{MARK}"#),
        format!("<{MARK}>{MARK}</{MARK}>"),
        MARK.repeat(30_000),
    ]
}

/// Writes valid and invalid bodies of direct producers to a work queue and to an ingest queue.
async fn write_to_the_queue(bank: &Scenario, account: AccountKey) {
    let AccountKey { user, account } = account;
    let bodies = [
        MARK.to_owned(),
        format!("{MARK}|{MARK}|{MARK}|{MARK}"),
        format!("{user}|{account}|{}|{MARK}", fresh_id()),
        format!("{user}|{account}|{}|1.00|{MARK}", fresh_id()),
        format!("<UserAccountTransaction><{MARK}>{MARK}</{MARK}></UserAccountTransaction>"),
        format!(
            "<UserAccountTransaction><UserId>{MARK}</UserId><Amount>{MARK}</Amount></UserAccountTransaction>"
        ),
        format!(r#"{{"{MARK}":"{MARK}"}}"#),
        format!(r#"{{"v":1,"items":[{{"{MARK}":"{MARK}","reference":"{MARK}"}}],"reference":"{MARK}"}}"#),
    ];
    let store = bank.store().await;
    for queue in [envelope::queues(1).swap_remove(0), bank.ingest_queue("feeder")] {
        for body in &bodies {
            store.queue.send(&queue, body.as_bytes(), Duration::ZERO).await.expect("a queue takes any body");
        }
    }
}

/// Replays one of the dead letters and discards the others. Returns their content.
async fn resolve_letters(bank: &Scenario) -> Value {
    let client = bank.client(0);
    let letters = wait::until("unreadable messages are set aside", wait::TIMEOUT, async || {
        let letters = client.dead_letters().await;
        if letters.len() >= 14 { Ok(letters) } else { Err(format!("{letters:?}")) }
    })
    .await;
    for (index, letter) in letters.iter().enumerate() {
        let id = letter["id"].as_str().expect("a letter has an id");
        let path = format!("/v1/admin/dead-letters/{id}");
        let answer = if index == 0 {
            client.call(Method::POST, &format!("{path}/replay"), &json!({})).await
        } else {
            client.call(Method::DELETE, &path, &json!({})).await
        };
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    json!(letters)
}
