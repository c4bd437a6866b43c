//! Every page in Chromium: nothing is loaded from elsewhere or forbidden by the policy, axe-core finds nothing, it fits a phone, and
//! is not heavy. Screenshots are kept in the target directory.

use postonce_shared::domain::ids::{AccountKey, MessageId};
use postonce_tests::browser::screenshot_path;
use postonce_tests::dead_letters::{one_letter, poison};
use postonce_tests::prelude::*;
use serde_json::{Value, json};

use super::batch_operations::submit_batch;
use super::session::key_id;
use super::shown::text;
use super::visit::Visit;

/// Largest size of a page with everything that it loads, in bytes as sent.
const PAGE_BYTES_MAX: u64 = 150 * 1024;
/// The width of a desk.
const DESK: u32 = 1280;
/// Each width, of a desk and of a phone, and each color scheme. The layout of a page does not depend on the scheme.
const VIEWS: [(u32, bool); 3] = [(DESK, false), (DESK, true), (390, true)];
/// The pages with more on Azure than on SQLite: several queues, and other kinds of operations.
const OF_THE_STORE: [&str; 3] = ["overview", "queues", "costs"];
/// Returns whether the page is wider than its window.
const IS_TOO_WIDE: &str =
    "return document.documentElement.scrollWidth > document.documentElement.clientWidth";
/// Returns whether each plot is drawn.
const ARE_DRAWN: &str =
    "return [...document.querySelectorAll('[data-plot]')].every((plot) => plot.querySelector('canvas'))";
/// Returns whether the page has the colors that it keeps.
const IS_SETTLED: &str = "return !document.getAnimations().some((it) => it instanceof CSSTransition)";

on_sqlite![every_page_is_complete_and_accessible, pages_can_be_read_and_used_without_scripts];

#[tokio::test]
async fn pages_about_azure_storage_are_complete_and_accessible() {
    let bank = Plan::on(StoreKind::Azurite).polling_often().processes(1, 1).receipts(1, 2).start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    let id = prepare(&client, account).await;
    drop(fill(&bank, &client, account).await);
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    visit.browser.without_cache().await;
    let mut pages = paths(account, id);
    pages.retain(|(name, _)| OF_THE_STORE.contains(&name.as_str()));
    assert_eq!(pages.len(), OF_THE_STORE.len());
    look_at(&visit, "azurite-busy", &pages).await;
}

/// The pages of a bank with this account.
fn paths(account: AccountKey, id: MessageId) -> Vec<(String, String)> {
    let AccountKey { user, account } = account;
    let account = format!("/console/accounts/{user}/{account}");
    let pages = [
        ("overview", "/console"),
        ("gate", "/console/gate"),
        ("queues", "/console/queues"),
        ("batches", "/console/batches"),
        ("dead-letters", "/console/dead-letters"),
        ("accounts", "/console/accounts"),
        ("accounts-found", &format!("/console/accounts?user_id={user}")),
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
        ("sign-in", "/console/sign-in"),
        ("sign-in-again", "/console/sign-in?expired=1&next=%2Fconsole%2Fgate"),
        ("gate-hold", "/console/gate?confirm=hold"),
    ];
    pages.map(|(name, path)| (name.to_owned(), path.to_owned())).to_vec()
}

/// What a bank contains in which much has happened.
struct Busy {
    transaction: MessageId,
    letter: String,
    batch: MessageId,
    key_id: String,
}

/// The page of a partner who may get another key, and the confirmations of acts.
fn acts(busy: &Busy) -> Vec<(String, String)> {
    let Busy { letter, batch, key_id, .. } = busy;
    let letters = "/console/dead-letters";
    let pages = [
        ("gate-release", "/console/gate?confirm=release"),
        ("gate-schedule", "/console/gate?confirm=schedule"),
        ("letter-replay", &format!("{letters}/{letter}?confirm=replay")),
        ("letter-discard", &format!("{letters}/{letter}?confirm=discard")),
        ("letters-replay", &format!("{letters}?confirm=replay&like={letter}")),
        ("letters-discard", &format!("{letters}?confirm=discard&like={letter}")),
        ("batch-cancel", &format!("/console/batches/bootstrap/{batch}?confirm=cancel")),
        ("shop", "/console/partners/shop"),
        ("shop-suspend", "/console/partners/shop?confirm=suspend"),
        ("shop-revoke", &format!("/console/partners/shop?confirm=revoke&key={key_id}")),
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
    let first = prepare(&client, account).await;
    look_at(&visit, &format!("{of_store}-empty"), &paths(account, first)).await;
    let busy = fill(&bank, &client, account).await;
    look_at(&visit, &format!("{of_store}-busy"), &paths(account, busy.transaction)).await;
    for (name, path) in acts(&busy) {
        visit.open(&path).await;
        let questions = visit.browser.count("main .confirm form").await;
        assert_eq!(questions == 1, path.contains("confirm="), "{path} asks whether to do it");
        check(&visit, &format!("{of_store}-busy-{name}"), &[]).await;
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
        check(&visit, &format!("{of_store}-busy-one-of-{}", name.unwrap_or_default()), &[]).await;
    }
    let viewer = Visit::sign_in(&bank, 0, &bank.add_partner("viewer", &["metrics"])).await;
    viewer.browser.without_cache().await;
    viewer.open("/console/audit").await;
    viewer.browser.wait_text("main", "Status 403").await;
    check(&viewer, &format!("{of_store}-busy-forbidden"), &["403"]).await;
}

/// Opens each page, and checks it.
async fn look_at(visit: &Visit, prefix: &str, paths: &[(String, String)]) {
    for (name, path) in paths {
        visit.open(path).await;
        if ["overview", "gate", "queues"].contains(&&**name) {
            visit.until_live().await;
            visit.browser.wait_until("the plots are drawn", ARE_DRAWN).await;
        }
        let errors: &[&str] = if name == "unknown" { &["404"] } else { &[] };
        check(visit, &format!("{prefix}-{name}"), errors).await;
    }
}

/// Checks the present page in each width and color scheme. `errors` are parts of the messages that it causes in the browser.
async fn check(visit: &Visit, name: &str, errors: &[&str]) {
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
    for (width, dark) in VIEWS {
        browser.viewport(width, 900).await;
        browser.color_scheme(dark).await;
        browser.wait_until("the colors are settled", IS_SETTLED).await;
        let scheme = if dark { "dark" } else { "light" };
        browser.screenshot(&screenshot_path(&format!("{name}-{width}-{scheme}"))).await;
        assert_eq!(browser.run(IS_TOO_WIDE).await, Value::Bool(false), "{name} at {width}");
        let violations = browser.axe().await;
        assert!(violations.is_empty(), "{name} at {width}, {scheme}:\n{}", violations.join("\n"));
    }
    browser.viewport(DESK, 900).await;
    browser.color_scheme(false).await;
    let messages = browser.messages().await;
    let messages: Vec<_> =
        messages.iter().filter(|it| !errors.iter().any(|part| it.contains(part))).collect();
    assert!(messages.is_empty(), "{name}: {messages:?}");
}

/// Opens an account with one deposit. Returns its id.
async fn prepare(client: &Client, account: AccountKey) -> MessageId {
    client.open(account).await;
    let id = fresh_id();
    drop(client.post(account, id, &Submission::deposit("1.00")).await);
    id
}

/// Posts, rejects, sets aside, holds and queues.
async fn fill(bank: &Scenario, client: &Client, account: AccountKey) -> Busy {
    for number in 1..=30 {
        let deposit =
            Submission::deposit(&format!("{number}.50")).with("reference", format!("invoice {number}"));
        drop(client.post(account, fresh_id(), &deposit).await);
    }
    let transaction = fresh_id();
    drop(client.submit_and_wait(account, transaction, &Submission::withdrawal("1000000.00")).await);
    poison(bank, b"this is no envelope <script>").await;
    let letter = text(&one_letter(client).await, "id").to_owned();
    drop(bank.add_partner("shop", &["deposit", "read"]));
    let reason = json!({"state": "held", "reason": "nightly close"});
    drop(client.set_gate(&reason).await.expect(200));
    drop(client.queue_up(&[account], 12, bank.queue_count()).await);
    let batch = submit_batch(client, account, 1).await;
    Busy { transaction, letter, batch, key_id: key_id(bank, "shop").await }
}

async fn pages_can_be_read_and_used_without_scripts(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 0).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    let id = prepare_accepted(&client, account).await;
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;
    browser.scripts(false).await;
    for (name, path) in paths(account, id) {
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
async fn prepare_accepted(client: &Client, account: AccountKey) -> MessageId {
    client.open(account).await;
    let id = fresh_id();
    drop(client.submit_until_accepted(account, id, &Submission::deposit("1.00")).await);
    id
}
