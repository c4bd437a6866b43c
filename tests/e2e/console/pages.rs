//! Every page in Chromium: nothing is loaded from elsewhere or forbidden by the policy, axe-core finds nothing, it fits a phone, and
//! is not heavy. Screenshots are kept in the target directory.

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::browser::screenshot_path;
use postonce_tests::client::{Client, Submission};
use postonce_tests::dead_letters::{one_letter, poison};
use postonce_tests::scenario::{Plan, Scenario, StoreKind, fresh_account, fresh_id};
use reqwest::Method;
use serde_json::{Value, json};

use super::visit::Visit;

/// Largest size of a page with everything that it loads, in bytes as sent.
const PAGE_BYTES_MAX: u64 = 150 * 1024;
/// Widths of a desk and of a phone.
const WIDTHS: [u32; 2] = [1280, 390];
/// Returns whether the page is wider than its window.
const IS_TOO_WIDE: &str =
    "return document.documentElement.scrollWidth > document.documentElement.clientWidth";
/// Returns whether each plot is drawn.
const ARE_DRAWN: &str =
    "return [...document.querySelectorAll('[data-plot]')].every((plot) => plot.querySelector('canvas'))";

on_both_stores![every_page_is_complete_and_accessible, pages_can_be_read_and_used_without_scripts];

/// The pages of a bank with this account.
fn paths(account: AccountKey, id: &str) -> Vec<(String, String)> {
    let account = format!("/console/accounts/{}/{}", account.user, account.account);
    let pages = [
        ("overview", "/console"),
        ("gate", "/console/gate"),
        ("gate-confirm", "/console/gate?confirm=hold"),
        ("queues", "/console/queues"),
        ("batches", "/console/batches"),
        ("dead-letters", "/console/dead-letters"),
        ("accounts", "/console/accounts"),
        ("account", &account),
        ("transaction", &format!("{account}/{id}")),
        ("partners", "/console/partners"),
        ("partner", "/console/partners/bootstrap"),
        ("order-numbers", "/console/order-numbers"),
        ("scrubber", "/console/scrubber"),
        ("anchors", "/console/anchors"),
        ("audit", "/console/audit"),
        ("costs", "/console/costs"),
        ("unknown", "/console/nothing-here"),
    ];
    pages.map(|(name, path)| (name.to_owned(), path.to_owned())).to_vec()
}

async fn every_page_is_complete_and_accessible(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).polling_often().processes(1, 1).receipts(1, 2).start().await;
    bank.until_workers_ready().await;
    let client = bank.client(0);
    let account = fresh_account();
    let of_store = format!("{store_kind:?}").to_lowercase();
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    visit.browser.without_cache().await;
    for state in ["empty", "busy"] {
        let id = if state == "empty" {
            prepare(&client, account).await
        } else {
            fill(&bank, &client, account).await
        };
        for (name, path) in paths(account, &id) {
            visit.open(&path).await;
            if ["overview", "gate", "queues"].contains(&&*name) {
                visit.until_live().await;
                visit.browser.wait_until("the plots are drawn", ARE_DRAWN).await;
            }
            check(&visit, &format!("{of_store}-{state}-{name}"), name == "unknown").await;
        }
    }
    for (name, path) in
        ["/console/batches", "/console/dead-letters"].map(|path| (path.rsplit('/').next(), path))
    {
        // The first one in the list.
        visit.open(path).await;
        visit.browser.click(&format!("main table a[href^='{path}/']")).await;
        visit
            .browser
            .wait_until("its page is shown", &format!("return location.pathname.startsWith('{path}/')"))
            .await;
        check(&visit, &format!("{of_store}-busy-one-of-{}", name.unwrap_or_default()), false).await;
    }
}

/// Checks the present page in each width and color scheme.
async fn check(visit: &Visit, name: &str, is_error: bool) {
    let browser = &visit.browser;
    let requests = browser.requests().await;
    let origin = browser.run("return location.origin").await;
    let origin = origin.as_str().expect("a text");
    for (url, _) in &requests {
        assert!(url.starts_with(origin) || url.starts_with("data:"), "{name} loads {url}");
    }
    let bytes: u64 = requests.iter().map(|(_, bytes)| bytes).sum();
    println!("{name}: {bytes} bytes");
    assert!(bytes <= PAGE_BYTES_MAX, "{name} has {bytes} bytes: {requests:?}");
    println!("{name}: first paint after {:.0} ms", browser.first_contentful_paint_ms().await);
    for width in WIDTHS {
        browser.viewport(width, 900).await;
        for dark in [false, true] {
            browser.color_scheme(dark).await;
            let scheme = if dark { "dark" } else { "light" };
            browser.screenshot(&screenshot_path(&format!("{name}-{width}-{scheme}"))).await;
            assert_eq!(browser.run(IS_TOO_WIDE).await, Value::Bool(false), "{name} at {width}");
            let violations = browser.axe().await;
            assert!(violations.is_empty(), "{name} at {width}, {scheme}:\n{}", violations.join("\n"));
        }
    }
    browser.viewport(WIDTHS[0], 900).await;
    browser.color_scheme(false).await;
    let messages = browser.messages().await;
    let messages: Vec<_> = messages.iter().filter(|it| !(is_error && it.contains("404"))).collect();
    assert!(messages.is_empty(), "{name}: {messages:?}");
}

/// Opens an account with one deposit. Returns its id.
async fn prepare(client: &Client, account: AccountKey) -> String {
    client.open(account).await;
    let id = fresh_id();
    drop(client.post(account, id, &Submission::deposit("1.00")).await);
    id.to_string()
}

/// Posts, rejects, sets aside, holds and queues. Returns the id of a transaction.
async fn fill(bank: &Scenario, client: &Client, account: AccountKey) -> String {
    for number in 1..=30 {
        let deposit =
            Submission::deposit(&format!("{number}.50")).with("reference", format!("invoice {number}"));
        drop(client.post(account, fresh_id(), &deposit).await);
    }
    let rejected = fresh_id();
    drop(client.submit_and_wait(account, rejected, &Submission::withdrawal("1000000.00")).await);
    poison(bank, b"this is no envelope <script>").await;
    let _letter = one_letter(client).await;
    drop(bank.add_partner("shop", &["deposit", "read"]));
    let reason = json!({"state": "held", "reason": "nightly close"});
    drop(client.set_gate(&reason).await.expect(200));
    drop(client.queue_up(&[account], 12, bank.queue_count()).await);
    let batch = format!(
        "user_id,account_id,message_id,type,amount,currency\n{},{},{},deposit,12.50,EUR\n",
        account.user,
        account.account,
        fresh_id()
    );
    let request = client.request(Method::POST, "/v1/batches").header("content-type", "text/csv");
    let request = request.header("idempotency-key", fresh_id().to_string()).body(batch);
    drop(client.send(request).await.expect(202));
    rejected.to_string()
}

async fn pages_can_be_read_and_used_without_scripts(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 0).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    let id = prepare_accepted(&client, account).await;
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;
    browser.scripts(false).await;
    for (name, path) in paths(account, &id) {
        visit.open(&path).await;
        assert!(browser.text("main").await.len() > 40, "{name} says something");
    }
    visit.open("/console/gate").await;
    browser.wait_text("noscript, .live-note", "Reload the page").await;
    // By keyboard: the first stop skips to the content, and the form is sent by Enter.
    browser.press_focused("Tab").await;
    assert_eq!(browser.run("return document.activeElement.className").await, json!("skip"));
    visit.open("/console/gate?confirm=hold").await;
    browser.fill("#field-reason", "by keyboard").await;
    browser.press("#field-reason", "Enter").await;
    browser.wait_for(".gate-panel[data-state='held']").await;
    assert_eq!(client.gate().await.text_at("/reason"), "by keyboard");
}

/// Opens an account with a deposit that no worker posts.
async fn prepare_accepted(client: &Client, account: AccountKey) -> String {
    client.open(account).await;
    let id = fresh_id();
    drop(client.submit(account, id, &Submission::deposit("1.00")).await.expect(202));
    id.to_string()
}
