//! The gate in the browser: held and released while work waits, and what a key shows that has no right to act.

use std::time::Duration;

use postonce_shared::domain::time::Timestamp;
use postonce_tests::prelude::*;
use serde_json::json;

use super::visit::Visit;

/// Far more than the time from the release in the browser to the first posting, which is shown: machines differ.
const FIRST_POSTING_WITHIN: Duration = Duration::from_secs(20);
/// Deposits that wait.
const WAITING: usize = 20;

on_both_stores![
    work_moves_when_the_gate_is_released_in_the_browser;
    on_sqlite:
    a_viewer_sees_the_gate_and_has_no_button,
];

async fn work_moves_when_the_gate_is_released_in_the_browser(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(2, 1).start().await;
    bank.until_workers_ready().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let visit = Visit::sign_in(&bank, 1, bank.key()).await;
    let browser = &visit.browser;

    visit.open("/console/gate").await;
    visit.until_live().await;
    assert_eq!(browser.attribute(".gate-panel", "data-state").await.as_deref(), Some("released"));
    visit.open("/console/gate?confirm=hold").await;
    browser.fill("#field-reason", "<script>document.title='run'</script>").await;
    browser.click("form[action='/console/gate'] button[type='submit']").await;
    browser.wait_for(".gate-panel[data-state='held']").await;
    assert_eq!(client.gate().await.text_at("/state"), "held");
    assert_eq!(
        client.gate().await.text_at("/reason"),
        "<script>document.title='run'</script>",
        "the reason is text"
    );
    browser.wait_text(".gate-panel", "<script>").await;
    assert!(!browser.run("return document.title").await.as_str().unwrap_or_default().contains("run"));

    let sent = client.queue_up(&[account], WAITING, bank.queue_count()).await;
    browser
        .wait_until(
            "the page shows the waiting messages",
            "return /[1-9]/.test(document.querySelector('#waiting').innerText.split('\\n').join(' '))",
        )
        .await;
    assert_eq!(client.balance(account).await, "0.00");

    visit.open("/console/gate?confirm=release").await;
    browser.wait_text(".consequence", "at once").await;
    browser.click("form[action='/console/gate'] button[type='submit']").await;
    browser.wait_for(".gate-panel[data-state='released']").await;
    for (account, id) in &sent {
        assert_eq!(client.until_final(*account, *id).await.transaction_status(), "posted");
    }
    assert_eq!(client.balance(account).await, format!("{WAITING}.00"));
    browser.wait_text("main", "3 of 3").await;
    assert!(visit.path().await.starts_with("/console/gate?done=released"), "{}", visit.path().await);

    let released = time(client.gate().await.text_at("/since"));
    let first = client.listing(account, None, 1).await;
    let first = time(first[0]["posted_at"].as_str().expect("it is posted"));
    let took = first.since(released);
    println!("from the release in the browser to the first posting: {took:?}");
    assert!(took < FIRST_POSTING_WITHIN, "{took:?}");
    let messages = browser.messages().await;
    assert!(messages.is_empty(), "{messages:?}");
}

fn time(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap_or_else(|| panic!("{text} is no time"))
}

async fn a_viewer_sees_the_gate_and_has_no_button(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 0).start().await;
    let client = bank.client(0);
    let key = bank.add_partner("viewer", &["metrics"]);
    let visit = Visit::sign_in(&bank, 0, &key).await;
    assert_eq!(visit.sections().await, ["Overview", "Gate", "Queues"]);
    visit.open("/console/gate").await;
    visit.until_live().await;
    assert_eq!(visit.browser.count("form[action='/console/gate']").await, 0);
    visit.open("/console/gate?confirm=hold").await;
    assert_eq!(visit.browser.count("form[action='/console/gate']").await, 0);
    visit.browser.wait_text("main", "operate").await;

    // A link of another site: the browser does not send the cookie with it.
    visit.browser.open(&bank.webs[0].address().replace("127.0.0.1", "localhost")).await;
    let link = format!("location.assign('{}/console/gate')", bank.webs[0].address());
    let _moved = visit.browser.run(&link).await;
    visit.browser.wait_for(".gate-panel").await;

    // Another operator changes the gate, and the open page follows.
    visit.open("/console/gate").await;
    visit.until_live().await;
    drop(client.set_gate(&json!({"state": "held", "reason": "nightly close"})).await.expect(200));
    visit.browser.wait_for(".gate-panel[data-state='held']").await;
    visit.browser.wait_text(".gate-panel", "nightly close").await;
    drop(client.set_gate(&json!({"state": "released"})).await.expect(200));
    visit.browser.wait_for(".gate-panel[data-state='released']").await;

    // The key is revoked: the page leaves by itself.
    bank.operate(&["partners", "suspend", "viewer"]);
    visit.browser.wait_for("#field-key").await;
    assert!(visit.path().await.starts_with("/console/sign-in?expired=1"), "{}", visit.path().await);
    let account = fresh_account();
    client.open(account).await;
    drop(client.submit_until_accepted(account, fresh_id(), &Submission::deposit("1.00")).await);
}
