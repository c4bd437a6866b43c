//! Batches in the browser: what hinders one, its progress, totals and results; and the cancellation.

use std::fmt::Write as _;

use postonce_shared::testing::prelude::*;
use postonce_tests::dead_letters::one_letter;
use postonce_tests::faults::CrashPoint;
use postonce_tests::prelude::*;
use reqwest::Method;

use super::shown::text;
use super::visit::Visit;

/// Items of one account for two chunks, of which the second one is posted after the first one.
const ITEMS: usize = 2_000;
/// Items of the first chunk.
const FIRST_CHUNK: u64 = 1_960;

on_sqlite![
    a_hindered_batch_shows_why_and_is_completed_by_a_replay,
    a_batch_is_cancelled_in_the_browser_unless_posting_has_begun,
];

/// Submits a batch of deposits of 1.00. Returns its id.
pub async fn submit_batch(client: &Client, account: AccountKey, deposits: usize) -> MessageId {
    let AccountKey { user, account } = account;
    let mut document = "user_id,account_id,message_id,type,amount,currency\n".to_owned();
    for _ in 0..deposits {
        writeln!(document, "{user},{account},{},deposit,1.00,EUR", fresh_id()).expect("text can be written");
    }
    let id = fresh_id();
    let request = client.request(Method::POST, "/v1/batches").header("content-type", "text/csv");
    let request = request.header("idempotency-key", id.to_string()).body(document);
    drop(client.send(request).await.expect(202));
    id
}

/// The page of a batch of the first partner.
fn page_of(batch: MessageId) -> String {
    format!("/console/batches/bootstrap/{batch}")
}

/// Waits until a batch is as expected.
async fn batch_until(client: &Client, id: MessageId, is: impl Fn(&Answer) -> bool) -> Answer {
    wait::until("the batch is as expected", wait::TIMEOUT, async || {
        let batch = client.get(&format!("/v1/batches/{id}")).await.expect(200);
        if is(&batch) { Ok(batch) } else { Err(format!("{batch:?}")) }
    })
    .await
}

fn is_completed(batch: &Answer) -> bool {
    batch.text_at("/phase") == "completed"
}

/// Removes the second chunk of the only batch from the store. Returns its name and content.
async fn lose_second_chunk(store: &Store) -> (String, Vec<u8>) {
    let found = store.payloads.list("batch-", None, 100).await.expect("the store answers").items;
    let chunk = found.into_iter().find(|it| it.name.contains("-c1-")).expect("there are two chunks");
    let body = store.payloads.get(&chunk.name).await.expect("the store answers").expect("it exists");
    store.payloads.delete(&chunk.name).await.expect("the store answers");
    (chunk.name, body)
}

async fn a_hindered_batch_shows_why_and_is_completed_by_a_replay(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 0).receipts(1, 2).start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let id = submit_batch(&client, account, ITEMS).await;
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;

    // A worker divides the batch into chunks, and ends before it commits anything.
    assert_eq!(bank.run_crashing_worker(CrashPoint::BeforeCommit), Some(9), "the worker crashes");
    visit.open(&page_of(id)).await;
    browser.wait_text(".progress-text", "0 of 2\u{202f}000 (0.0 %)").await;
    browser.wait_text("main", "The batch cannot be cancelled: posting has begun").await;
    browser.wait_text("main", "No money is posted").await;
    let store = bank.store().await;
    let (name, body) = lose_second_chunk(&store).await;
    bank.start_worker();
    let batch =
        batch_until(&client, id, |it| it.body.get("hindrance").is_some() && it.body["posted"] == FIRST_CHUNK)
            .await;
    let letter = one_letter(&client).await;

    // The list leads to it, and the page says why, and how far it is.
    visit.open("/console/batches").await;
    browser.wait_text(".notice", "A batch on this page is hindered").await;
    let rows = visit.rows("Batches").await;
    assert!(rows[0][2].contains("posting") && rows[0][2].contains("hindered"), "{rows:?}");
    assert_eq!(rows[0][4], "1\u{202f}960 (98.0 %)");
    browser.click(&format!("a[href='{}']", page_of(id))).await;
    assert_eq!(batch.text_at("/hindrance/code"), "data_missing");
    browser.wait_text(".notice", batch.text_at("/hindrance/message")).await;
    browser.wait_text(".progress-text", "1\u{202f}960 of 2\u{202f}000 (98.0 %)").await;
    let outcomes = visit.rows("Items by outcome").await;
    assert_eq!(outcomes[0][..3], ["posted", "1\u{202f}960", "98.0 %"]);
    assert_eq!(outcomes[5][..3], ["open", "40", "2.0 %"]);
    let money = visit.rows("Posted money by currency and type").await;
    assert_eq!(money, [["EUR", "deposit", "1\u{202f}960.00"]]);
    assert_eq!(batch.text_at("/sums/0/posted"), "1960.00");

    // The cause is corrected, and the dead letter that names the batch replayed.
    store.payloads.put(&name, &body).await.expect("the store answers");
    browser.click(".notice a[href='/console/dead-letters']").await;
    browser.click(&format!("main table a[href='/console/dead-letters/{}']", text(&letter, "id"))).await;
    browser.wait_for(&format!("main a[href='{}']", page_of(id))).await;
    browser.click("a[href$='?confirm=replay']").await;
    browser.wait_text(".consequence", "the work of the batch continues").await;
    browser.click("#confirm").await;
    browser.click("form[action^='/console/dead-letters/'] button[type='submit']").await;
    browser.wait_text(".notice", "The dead letter is replayed").await;
    let batch = batch_until(&client, id, is_completed).await;
    assert_eq!((batch.number_at("/posted"), batch.text_at("/sums/0/posted")), (2_000, "2000.00"));
    assert_eq!(client.balance(account).await, "2000.00");

    visit.open(&page_of(id)).await;
    browser.wait_text(".progress-text", "2\u{202f}000 of 2\u{202f}000 (100.0 %)").await;
    assert_eq!(browser.count(".notice").await, 0, "nothing hinders it any more");
    let money = visit.rows("Posted money by currency and type").await;
    assert_eq!(money, [["EUR", "deposit", "2\u{202f}000.00"]]);
    let (name, content) = browser.download("main a[href$='/results']").await;
    assert_eq!(name, format!("batch-{id}.csv"));
    let results = client.request(Method::GET, &format!("/v1/batches/{id}/results"));
    let results = client.send(results.header("accept", "text/csv")).await.expect(200);
    assert_eq!(results.text.lines().count(), ITEMS.saturating_add(1), "{results:?}");
    assert!(content == results.text.as_bytes(), "other results than those of the API are downloaded");
}

async fn a_batch_is_cancelled_in_the_browser_unless_posting_has_begun(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 1).start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    drop(client.hold(2).await);
    let (cancelled, kept) =
        (submit_batch(&client, account, 2).await, submit_batch(&client, account, 3).await);
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;

    visit.open("/console/batches").await;
    browser.click(&format!("main table a[href='{}']", page_of(cancelled))).await;
    browser.wait_text("main", "Phase received").await;
    browser.wait_text(".notice", "The gate is held").await;
    browser.click("a[href$='?confirm=cancel']").await;
    browser.wait_text(".consequence", "2 items will not be posted").await;
    let cancel = |batch| format!("form[action='{}/cancel'] button[type='submit']", page_of(batch));
    assert!(browser.attribute(&cancel(cancelled), "disabled").await.is_some(), "it is not confirmed");
    browser.click("#confirm").await;
    browser.click(&cancel(cancelled)).await;
    browser.wait_text(".notice", "The batch is cancelled").await;
    browser.wait_text("main", "The batch has ended, so it cannot be cancelled.").await;
    assert_eq!(client.get(&format!("/v1/batches/{cancelled}")).await.text_at("/phase"), "cancelled");

    // The other one is posted after its form was shown.
    visit.open(&format!("{}?confirm=cancel", page_of(kept))).await;
    browser.click("#confirm").await;
    drop(client.release(2).await);
    drop(batch_until(&client, kept, is_completed).await);
    browser.click(&cancel(kept)).await;
    browser.wait_text("main", "Status 409").await;
    let refused = client.send(client.request(Method::DELETE, &format!("/v1/batches/{kept}"))).await;
    browser.wait_text("main", refused.expect(409).text_at("/detail")).await;
    assert!(is_completed(&client.get(&format!("/v1/batches/{kept}")).await));
    assert_eq!(client.balance(account).await, "3.00", "nothing of the cancelled batch is posted");

    // Both are listed by their partner.
    visit.open("/console/batches").await;
    browser.fill("#field-partner_id", "bootstrap").await;
    browser.click(".form-search button").await;
    browser.wait_text("main", "Batches of bootstrap").await;
    let rows = visit.rows("Batches").await;
    let mut phases: Vec<[&str; 2]> = rows.iter().map(|row| [row[0].as_str(), row[2].as_str()]).collect();
    let (cancelled, kept) = (cancelled.to_string(), kept.to_string());
    let mut expected = [[cancelled.as_str(), "cancelled"], [kept.as_str(), "completed"]];
    phases.sort_unstable();
    expected.sort_unstable();
    assert_eq!(phases, expected);
}
