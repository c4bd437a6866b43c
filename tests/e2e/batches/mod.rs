//! Batches, from the document to the results.

#![expect(clippy::arithmetic_side_effects, reason = "test code")]

mod command;
mod hostile;
mod inputs;
mod million;
mod shares;

use std::time::Duration;

use futures::future::join_all;
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

on_both_stores![
    a_batch_is_posted_and_reported_to_the_line,
    items_and_single_requests_share_their_ids,
    a_batch_waits_for_the_gate_and_can_be_cancelled_until_then,
    a_batch_in_progress_stops_when_the_gate_is_held,
    processes_that_are_killed_post_each_item_once,
    a_partner_reaches_only_its_own_batches_and_accounts;
    on_sqlite:
    the_same_content_in_another_format_is_the_same_batch,
    invalid_items_refuse_the_batch_or_are_skipped,
    other_control_totals_refuse_the_batch,
    control_totals_can_be_in_the_first_record,
];

/// An item of a document.
#[derive(Debug, Clone)]
struct Item {
    account: AccountKey,
    message: MessageId,
    kind: &'static str,
    amount: String,
}

impl Item {
    fn new(account: AccountKey, kind: &'static str, amount: &str) -> Self {
        Self { account, message: fresh_id(), kind, amount: amount.to_owned() }
    }

    fn json(&self) -> Value {
        let Self { account, message, kind, amount } = self;
        json!({
            "user_id": account.user.to_string(), "account_id": account.account.to_string(),
            "message_id": message.to_string(), "type": kind, "amount": amount, "currency": "EUR",
            "reference": "a, \"quoted\" text",
        })
    }
}

fn ndjson(items: &[Item]) -> String {
    items.iter().map(|item| format!("{}\n", item.json())).collect()
}

fn csv(items: &[Item]) -> String {
    let mut text = "reference,currency,amount,type,message_id,account_id,user_id\r\n".to_owned();
    for Item { account: AccountKey { user, account }, message, kind, amount } in items {
        let reference = "\"a, \"\"quoted\"\" text\"";
        text.push_str(&format!("{reference},EUR,{amount},{kind},{message},{account},{user}\r\n"));
    }
    text
}

/// With the namespace on the batch or on each item.
fn xml(items: &[Item], is_outside: bool) -> String {
    let namespace = " xmlns=\"urn:postonce:xml:1\"";
    let (outer, inner) =
        if is_outside { (namespace, "") } else { (" xmlns:p=\"urn:postonce:xml:1\"", namespace) };
    let item = |Item { account: AccountKey { user, account }, message, kind, amount }: &Item| {
        format!(
            "<TransactionRequest{inner}><Reference>a, \"quoted\" text</Reference><Currency>EUR</Currency>\n\
             <Amount>{amount}</Amount><Type>{kind}</Type><MessageId>{message}</MessageId>\n\
             <AccountId>{account}</AccountId><UserId>{user}</UserId></TransactionRequest>\n"
        )
    };
    let prefix = if is_outside { "" } else { "p:" };
    let items: String = items.iter().map(item).collect();
    format!("<{prefix}BatchRequest{outer}>\n{items}</{prefix}BatchRequest>\n")
}

fn batch_request(
    client: &Client,
    id: MessageId,
    media_type: &str,
    body: impl Into<reqwest::Body>,
) -> RequestBuilder {
    let request = client.request(Method::POST, "/v1/batches").header("Idempotency-Key", id.to_string());
    request.header("Content-Type", media_type).header("Accept", "application/json").body(body)
}

async fn submit(client: &Client, id: MessageId, items: &[Item]) -> Answer {
    client.send(batch_request(client, id, "application/x-ndjson", ndjson(items))).await
}

/// Waits until a batch is completed.
async fn completed(client: &Client, id: MessageId) -> Answer {
    wait::until("the batch is completed", wait::TIMEOUT, async || {
        let request = client.request(Method::GET, &format!("/v1/batches/{id}"));
        let answer = client.send(request.header("Prefer", "wait=5")).await;
        if answer.text_at("/phase") == "completed" { Ok(answer) } else { Err(format!("{answer:?}")) }
    })
    .await
}

/// The results of a batch, one for each line.
async fn results(client: &Client, id: MessageId) -> Vec<Value> {
    let answer = client.get(&format!("/v1/batches/{id}/results")).await.expect(200);
    answer.text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// Items for some accounts, of which every fourth withdraws more than its account has.
fn mixed(accounts: &[AccountKey], count: usize) -> Vec<Item> {
    let of = |(index, account): (usize, &AccountKey)| match index % 4 {
        3 => Item::new(*account, "withdrawal", "1000.00"),
        _ => Item::new(*account, "deposit", "1.25"),
    };
    accounts.iter().cycle().take(count).enumerate().map(of).collect()
}

async fn bank_with_accounts(store_kind: StoreKind, count: usize) -> (Scenario, Client, Vec<AccountKey>) {
    let bank = Plan::on(store_kind).start().await;
    let (client, accounts) = (bank.client(0), (0..count).map(|_| fresh_account()).collect::<Vec<_>>());
    for account in &accounts {
        client.open(*account).await;
    }
    (bank, client, accounts)
}

async fn a_batch_is_posted_and_reported_to_the_line(store_kind: StoreKind) {
    let (_bank, client, mut accounts) = bank_with_accounts(store_kind, 7).await;
    accounts.push(fresh_account());
    let unknown = accounts.len() - 1;
    let (items, id) = (mixed(&accounts, 400), fresh_id());
    let accepted = submit(&client, id, &items).await.expect(202);
    assert_eq!(accepted.header("location"), format!("/v1/batches/{id}"));
    assert_eq!(accepted.number_at("/items"), 400);
    let batch = completed(&client, id).await;
    let results = results(&client, id).await;
    assert_eq!(results.len(), items.len());
    let mut posted = 0;
    for (index, (item, result)) in items.iter().zip(&results).enumerate() {
        assert_eq!(result.get("line"), Some(&json!(index + 1)));
        assert_eq!(text(result, "message_id"), item.message.to_string());
        let row = client.transaction(item.account, item.message).await;
        if index % accounts.len() == unknown {
            assert_eq!((text(result, "status"), text(result, "reason")), ("rejected", "account_unknown"));
            assert_eq!(row.expect(200).text_at("/reason"), "account_unknown", "it is final");
            continue;
        }
        let row = row.expect(200);
        assert_eq!(text(result, "status"), row.transaction_status());
        assert_eq!(text(result, "reason"), row.text_at("/reason"));
        assert_eq!(text(result, "order_number"), row.text_at("/order_number"));
        assert_eq!(text(result, "balance_after"), row.text_at("/balance_after"));
        posted += u64::from(row.transaction_status() == "posted");
    }
    assert_eq!((batch.number_at("/posted"), batch.number_at("/rejected")), (posted, 400 - posted));
    let [cents, sum] = [posted * 125, posted * 125 / 100].map(|number| number.to_string());
    assert_eq!(batch.text_at("/sums/0/posted"), format!("{sum}.{}", &cents[cents.len() - 2..]));
    // The rest after a line, as CSV.
    let rest = client.request(Method::GET, &format!("/v1/batches/{id}/results?after=398"));
    let rest = client.send(rest.header("Accept", "text/csv")).await.expect(200);
    let lines: Vec<&str> = rest.text.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with(&format!("399,{}", items[398].message)));
    let listed = client.get("/v1/batches?phase=completed").await.expect(200);
    assert_eq!(listed.text_at("/batches/0/batch_id"), id.to_string());
    assert_eq!(client.get("/v1/batches?phase=posting").await.body.pointer("/batches"), Some(&json!([])));
}

async fn the_same_content_in_another_format_is_the_same_batch(store_kind: StoreKind) {
    let (_bank, client, accounts) = bank_with_accounts(store_kind, 2).await;
    let (items, id) = (mixed(&accounts, 10), fresh_id());
    drop(submit(&client, id, &items).await.expect(202));
    drop(completed(&client, id).await);
    let again = client.send(batch_request(&client, id, "text/csv", csv(&items))).await.expect(202);
    assert_eq!((again.header("idempotent-replayed"), again.text_at("/phase")), ("true", "completed"));
    for is_outside in [true, false] {
        let document = xml(&items, is_outside);
        let again = client.send(batch_request(&client, id, "application/xml", document)).await.expect(202);
        assert_eq!((again.header("idempotent-replayed"), again.text_at("/phase")), ("true", "completed"));
    }
    for (media_type, other) in [("text/csv", csv(&items[1..])), ("application/xml", xml(&items[1..], true))] {
        let other = client.send(batch_request(&client, id, media_type, other)).await.expect(422);
        assert_eq!(other.code(), "idempotency_key_reused");
    }
    let before = results(&client, id).await;
    // In another batch, every item is a replay with the same outcome.
    let second = fresh_id();
    let document = xml(&items, true);
    drop(client.send(batch_request(&client, second, "application/xml", document)).await.expect(202));
    assert_eq!(completed(&client, second).await.number_at("/replayed"), 10);
    for (before, after) in before.iter().zip(results(&client, second).await) {
        assert_eq!(text(&after, "status"), "replayed");
        for member in ["message_id", "order_number", "balance_after", "reason"] {
            assert_eq!(text(&after, member), text(before, member));
        }
    }
}

async fn items_and_single_requests_share_their_ids(store_kind: StoreKind) {
    let (_bank, client, accounts) = bank_with_accounts(store_kind, 1).await;
    let account = accounts[0];
    let items: Vec<Item> = (0..3).map(|_| Item::new(account, "deposit", "2.00")).collect();
    let same = Submission::deposit("2.00").with("reference", "a, \"quoted\" text");
    drop(client.post(account, items[0].message, &same).await);
    drop(client.post(account, items[1].message, &Submission::deposit("3.00")).await);
    let id = fresh_id();
    drop(submit(&client, id, &items).await.expect(202));
    drop(completed(&client, id).await);
    let results = results(&client, id).await;
    let statuses: Vec<&str> = results.iter().map(|result| text(result, "status")).collect();
    assert_eq!(statuses, ["replayed", "refused", "posted"]);
    assert_eq!(client.balance(account).await, "7.00");
    let single = client.submit(account, items[2].message, &same).await.expect(200);
    assert_eq!(single.header("idempotent-replayed"), "true");
}

async fn a_batch_waits_for_the_gate_and_can_be_cancelled_until_then(store_kind: StoreKind) {
    let (_bank, client, accounts) = bank_with_accounts(store_kind, 1).await;
    let processes = match store_kind {
        StoreKind::Sqlite => 1,
        StoreKind::Azurite => 2,
    };
    drop(client.hold(processes).await);
    let items = mixed(&accounts, 8);
    let [cancelled, kept] = [fresh_id(), fresh_id()];
    for id in [cancelled, kept] {
        drop(submit(&client, id, &items).await.expect(202));
    }
    let path = format!("/v1/batches/{cancelled}");
    let answer = client.send(client.request(Method::DELETE, &path)).await.expect(200);
    assert_eq!(answer.text_at("/phase"), "cancelled");
    drop(client.release(processes).await);
    assert_eq!(completed(&client, kept).await.number_at("/posted"), 6);
    assert_eq!(client.get(&path).await.text_at("/phase"), "cancelled");
    assert_eq!(client.get(&format!("{path}/results")).await.expect(409).code(), "batch_not_completed");
    let late = client.send(client.request(Method::DELETE, &format!("/v1/batches/{kept}"))).await.expect(409);
    assert_eq!(late.code(), "batch_not_cancellable");
    assert_eq!(client.balance(accounts[0]).await, "7.50");
}

async fn a_batch_in_progress_stops_when_the_gate_is_held(store_kind: StoreKind) {
    /// How long nothing may be posted after the acknowledgments.
    const QUIET_TIME: Duration = Duration::from_secs(3);
    let (_bank, client, accounts) = bank_with_accounts(store_kind, 20).await;
    let (processes, count) = match store_kind {
        StoreKind::Sqlite => (1, 60_000),
        StoreKind::Azurite => (2, 6000),
    };
    let posted = async || {
        let balances = join_all(accounts.iter().map(|account| client.balance(*account))).await;
        let cents =
            balances.iter().map(|balance| balance.replace('.', "").parse::<u64>().expect("a balance"));
        cents.sum::<u64>() / 100
    };
    let items: Vec<Item> =
        accounts.iter().cycle().take(count).map(|account| Item::new(*account, "deposit", "1.00")).collect();
    let id = fresh_id();
    drop(submit(&client, id, &items).await.expect(202));
    wait::until("some items are posted", wait::TIMEOUT, async || {
        if posted().await > 0 { Ok(()) } else { Err("none".to_owned()) }
    })
    .await;
    drop(client.hold(processes).await);
    let held = posted().await;
    wait::throughout("no item is posted after the acknowledgments", QUIET_TIME, async || {
        match posted().await {
            now if now == held => Ok(()),
            now => Err(format!("{held} items were posted before, and {now} now")),
        }
    })
    .await;
    let found = client.get(&format!("/v1/batches/{id}")).await.expect(200);
    assert_eq!(found.text_at("/phase"), "posting", "the batch was not held in its middle: {found:?}");
    drop(client.release(processes).await);
    let done = completed(&client, id).await;
    let count = u64::try_from(count).expect("a small number");
    assert_eq!((done.number_at("/posted"), posted().await), (count, count));
}

async fn invalid_items_refuse_the_batch_or_are_skipped(store_kind: StoreKind) {
    let (_bank, client, accounts) = bank_with_accounts(store_kind, 1).await;
    let mut items = mixed(&accounts, 3);
    items[1].amount = "1.234".to_owned();
    let document = format!("{}not JSON\n{{\"type\":\"gift\"}}\n", ndjson(&items));
    let id = fresh_id();
    let request_with = |id: MessageId, query, document: &str| {
        let path = format!("/v1/batches{query}");
        let request = client.request(Method::POST, &path).header("Idempotency-Key", id.to_string());
        request.header("Content-Type", "application/x-ndjson").body(document.to_owned())
    };
    let request = |query| request_with(id, query, &document);
    let refused = client.send(request("")).await.expect(422);
    let violations = refused.body.pointer("/violations").and_then(Value::as_array).expect("violations");
    let fields: Vec<&str> = violations.iter().map(|violation| text(violation, "field")).collect();
    assert_eq!(fields[..2], ["line 2, amount", "line 4"]);
    assert!(fields[2..].iter().all(|field| field.starts_with("line 5, ")), "{fields:?}");
    assert_eq!(client.get(&format!("/v1/batches/{id}")).await.expect(404).code(), "batch_unknown");
    assert_eq!(client.balance(accounts[0]).await, "0.00", "nothing is posted");
    drop(client.send(request("?on-invalid=skip")).await.expect(202));
    let batch = completed(&client, id).await;
    assert_eq!((batch.number_at("/posted"), batch.number_at("/invalid")), (2, 3));
    let results = results(&client, id).await;
    let statuses: Vec<&str> = results.iter().map(|result| text(result, "status")).collect();
    assert_eq!(statuses, ["posted", "invalid", "posted", "invalid", "invalid"]);
    assert_eq!(text(&results[1], "message_id"), items[1].message.to_string());
    let misspelt = document.replacen("\"type\"", "\"refrence\":\"rent\",\"type\"", 1);
    let new = request_with(fresh_id(), "?on-invalid=skip", &misspelt);
    let refused = client.send(new).await.expect(422);
    assert_eq!(refused.text_at("/violations/0/field"), "line 1, refrence");
    let wrong = client.send(request("?on-invalid=ignore")).await.expect(400);
    assert_eq!(wrong.text_at("/violations/0/field"), "on-invalid");
}

async fn other_control_totals_refuse_the_batch(store_kind: StoreKind) {
    let (_bank, client, accounts) = bank_with_accounts(store_kind, 1).await;
    let (items, id) = (mixed(&accounts, 4), fresh_id());
    let send = async |count: &str, sums: &str| {
        let request = batch_request(&client, id, "application/x-ndjson", ndjson(&items));
        client.send(request.header("Batch-Count", count).header("Batch-Sums", sums)).await
    };
    let check = async |count: &str, sums: &str, fields: &[&str]| {
        let answer = send(count, sums).await.expect(422);
        let violations = answer.body.pointer("/violations").and_then(Value::as_array).expect("violations");
        let found: Vec<&str> = violations.iter().map(|violation| text(violation, "field")).collect();
        assert_eq!(found, fields, "{answer:?}");
    };
    check("5", "EUR=1003.75", &["Batch-Count"]).await;
    check("4", "EUR=1003.74", &["Batch-Sums"]).await;
    check("4", "EUR=1003.75, USD=1.00", &["Batch-Sums"]).await;
    check("3", "USD=1.00", &["Batch-Count", "Batch-Sums", "Batch-Sums"]).await;
    check("many", "EUR", &["Batch-Count", "Batch-Sums"]).await;
    drop(send("4", "EUR=1003.75").await.expect(202));
    assert_eq!(completed(&client, id).await.number_at("/posted"), 3);
}

/// The document in each format, with totals in its first record.
fn with_totals(items: &[Item], count: &str, sum: &str) -> [(&'static str, String); 3] {
    let json =
        format!("{{\"control\":{{\"count\":{count},\"sums\":{{\"EUR\":\"{sum}\"}}}}}}\n{}", ndjson(items));
    let record = format!(",,,,,,,{count},{sum}\r\n");
    let (head, records) =
        csv(items).split_once("\r\n").map(|(a, b)| (a.to_owned(), b.to_owned())).expect("lines");
    let records = records.replace("\r\n", ",,\r\n");
    let csv = format!("{head},control.count,control.sums.EUR\r\n{record}{records}");
    let sums = format!("<Sums><Sum><Currency>EUR</Currency><Amount>{sum}</Amount></Sum></Sums>");
    let start = "<BatchRequest xmlns=\"urn:postonce:xml:1\">";
    let control = format!("{start}<Control><Count>{count}</Count>{sums}</Control>");
    let xml = xml(items, true).replace(start, &control);
    [("application/x-ndjson", json), ("text/csv", csv), ("application/xml", xml)]
}

async fn control_totals_can_be_in_the_first_record(store_kind: StoreKind) {
    let (_bank, client, accounts) = bank_with_accounts(store_kind, 1).await;
    let (items, id) = (mixed(&accounts, 4), fresh_id());
    for (media_type, document) in with_totals(&items, "5", "1003.74") {
        let answer = client.send(batch_request(&client, id, media_type, document)).await.expect(422);
        let fields = ["/violations/0/field", "/violations/1/field"].map(|field| answer.text_at(field));
        assert_eq!(fields, ["control.count", "control.sums"], "{media_type}: {answer:?}");
    }
    let [right, ..] = with_totals(&items, "4", "1003.75");
    let request = batch_request(&client, id, right.0, right.1.clone()).header("Batch-Count", "3");
    let contradiction = client.send(request).await.expect(422);
    assert_eq!(contradiction.text_at("/violations/0/field"), "Batch-Count", "{contradiction:?}");
    assert_eq!(client.get(&format!("/v1/batches/{id}")).await.expect(404).code(), "batch_unknown");
    assert_eq!(client.balance(accounts[0]).await, "0.00", "nothing is posted");
    // The totals are not a part of the content, and have no line.
    let with = with_totals(&items, "4", "1003.75");
    let without = [("application/x-ndjson", ndjson(&items))];
    for (place, (media_type, document)) in with.into_iter().chain(without).enumerate() {
        let answer = client.send(batch_request(&client, id, media_type, document)).await.expect(202);
        assert_eq!(answer.header("idempotent-replayed") == "true", place > 0, "{media_type}: {answer:?}");
    }
    assert_eq!(completed(&client, id).await.number_at("/posted"), 3);
    let results = results(&client, id).await;
    let lines: Vec<(Option<u64>, &str)> =
        results.iter().map(|it| (it.get("line").and_then(Value::as_u64), text(it, "message_id"))).collect();
    let messages = items.iter().map(|item| item.message.to_string()).collect::<Vec<_>>();
    assert!(lines.into_iter().eq((1..).map(Some).zip(messages.iter().map(String::as_str))), "{results:?}");
}

async fn processes_that_are_killed_post_each_item_once(store_kind: StoreKind) {
    let (mut bank, client, accounts) = bank_with_accounts(store_kind, 20).await;
    let items: Vec<Item> =
        accounts.iter().cycle().take(12_000).map(|account| Item::new(*account, "deposit", "0.01")).collect();
    let id = fresh_id();
    drop(submit(&client, id, &items).await.expect(202));
    for _ in 0..3 {
        // The kill hits another step each time: the machine decides.
        match store_kind {
            StoreKind::Sqlite => {
                bank.webs.remove(0).kill();
                bank.start_web();
            }
            StoreKind::Azurite => {
                bank.workers.remove(0).kill();
                bank.start_worker();
            }
        }
    }
    let client = bank.client(0);
    let batch = completed(&client, id).await;
    assert_eq!((batch.number_at("/posted"), batch.text_at("/sums/0/posted")), (12_000, "120.00"));
    let results = results(&client, id).await;
    assert_eq!(results.len(), 12_000);
    assert!(results.iter().all(|result| text(result, "status") == "posted"));
    for account in &accounts {
        assert_eq!(client.balance(*account).await, "6.00");
    }
}

async fn a_partner_reaches_only_its_own_batches_and_accounts(store_kind: StoreKind) {
    let (_bank, client, accounts) = bank_with_accounts(store_kind, 2).await;
    let reach = json!({"accounts": [{"user_id": accounts[0].user.to_string(), "account_id": accounts[0].account.to_string()}]});
    let partner = client.call(Method::PUT, "/v1/admin/partners/shop", &json!({"reach": reach})).await;
    assert!([200, 201].contains(&partner.status), "{partner:?}");
    let key = async |scopes: &[&str]| {
        let answer =
            client.call(Method::POST, "/v1/admin/partners/shop/keys", &json!({"scopes": scopes})).await;
        client.with_key(answer.expect(201).text_at("/key"))
    };
    let shop = key(&["batch", "deposit"]).await;
    let id = fresh_id();
    let outside = [Item::new(accounts[0], "deposit", "1.00"), Item::new(accounts[1], "deposit", "1.00")];
    let refused = submit(&shop, id, &outside).await.expect(422);
    assert_eq!(refused.text_at("/violations/0/field"), "line 2, account_id");
    let withdrawal = submit(&shop, id, &[Item::new(accounts[0], "withdrawal", "1.00")]).await.expect(403);
    assert_eq!(withdrawal.code(), "scope_missing");
    drop(submit(&shop, id, &outside[..1]).await.expect(202));
    drop(completed(&shop, id).await);
    assert_eq!(client.get(&format!("/v1/batches/{id}")).await.expect(404).code(), "batch_unknown");
    let without = key(&["deposit"]).await;
    assert_eq!(without.get("/v1/batches").await.expect(403).code(), "scope_missing");
}
