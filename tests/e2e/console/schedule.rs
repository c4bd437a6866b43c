//! The gate in the browser: its scheduled release, and which processes apply a change.

use std::time::Duration;

use postonce_tests::gate::in_the_future;
use postonce_tests::scenario::{Plan, StoreKind, fresh_account};

use super::shown::shown_time;
use super::visit::Visit;

/// The button that confirms an act.
const CONFIRM: &str = "form[action='/console/gate'] button[type='submit']";
/// Returns the time of the scheduled release on the page for changing it.
const SO_FAR: &str = "return document.querySelector('.consequence time')?.dateTime ?? ''";
/// Time until a scheduled release; longer than the time until its form is sent, on a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// Time until a release that does not happen.
const LATER: Duration = Duration::from_secs(3600);

on_sqlite![
    a_release_is_scheduled_changed_and_performed_in_the_browser,
    a_process_that_applies_the_gate_late_is_shown_as_it_does,
];

/// The value of the field for a time of the API, to the second; and that time as pages show it.
fn field_and_words(time: &str) -> (String, String) {
    let words = shown_time(time);
    (words.trim_end_matches(" UTC").replace(' ', "T"), words)
}

async fn a_release_is_scheduled_changed_and_performed_in_the_browser(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 1).start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;

    // The gate is held, and its release scheduled, in one step.
    visit.open("/console/gate").await;
    browser.click("a[href='/console/gate?confirm=hold']").await;
    browser.wait_text(".consequence", "Nothing new is posted by 2 processes").await;
    let (later, later_in_words) = field_and_words(&in_the_future(LATER));
    browser.fill("#field-reason", "nightly close").await;
    browser.fill("#field-release_at", &later).await;
    assert_eq!(client.gate().await.text_at("/state"), "released", "nothing is done before it is confirmed");
    browser.click(CONFIRM).await;
    browser.wait_text(".notice", &format!("It is released by itself at {later_in_words}.")).await;
    assert_eq!(visit.value("Releases by itself").await, later_in_words);
    let gate = client.gate().await;
    assert_eq!((gate.text_at("/state"), gate.text_at("/reason")), ("held", "nightly close"));
    assert!(gate.text_at("/release_at").starts_with(&later), "{gate:?}");

    // Without a time there is no schedule any more.
    browser.click("a[href='/console/gate?confirm=schedule']").await;
    browser.wait_text(".consequence", "The gate stays held until the time below").await;
    assert_eq!(browser.run(SO_FAR).await, gate.text_at("/release_at"));
    browser.fill("#field-release_at", "").await;
    browser.fill("#field-reason", "until the audit is done").await;
    browser.click(CONFIRM).await;
    browser.wait_text(".gate-panel", "until the audit is done").await;
    browser.wait_text("a[href='/console/gate?confirm=schedule']", "Schedule the release").await;
    assert!(!browser.text(".gate-panel").await.contains("Releases by itself"));
    let gate = client.gate().await;
    assert_eq!((gate.text_at("/state"), gate.body.get("release_at")), ("held", None), "{gate:?}");

    // With a time that comes, the open page follows, and the work is not posted before.
    let sent = client.queue_up(&[account], 3, bank.queue_count()).await;
    browser.click("a[href='/console/gate?confirm=schedule']").await;
    let (soon, soon_in_words) = field_and_words(&in_the_future(SOON));
    browser.fill("#field-release_at", &soon).await;
    browser.click(CONFIRM).await;
    browser.wait_text(".gate-panel[data-state='held']", &soon_in_words).await;
    browser.wait_for(".gate-panel[data-state='released']").await;
    browser.wait_text(".gate-panel", "schedule").await;
    browser.wait_for("a[href='/console/gate?confirm=hold']").await;
    assert_eq!(client.gate().await.text_at("/by"), "schedule");
    for (account, id) in &sent {
        let posted = client.until_final(*account, *id).await;
        assert!(posted.text_at("/posted_at") >= soon.as_str(), "before {soon}: {posted:?}");
    }
    assert_eq!(client.balance(account).await, "3.00");
}

async fn a_process_that_applies_the_gate_late_is_shown_as_it_does(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 2).start().await;
    bank.until_workers_ready().await;
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;
    visit.open("/console/gate").await;
    browser.wait_text("#acknowledgments", "3 of 3 processes apply epoch 0.").await;

    let late = bank.workers.last_mut().expect("there are two");
    late.suspend();
    visit.open("/console/gate?confirm=hold").await;
    browser.click(CONFIRM).await;
    browser.wait_text(".notice", "The gate was held, but not all processes acknowledged it").await;
    browser.wait_text("#acknowledgments", "2 of 3 processes apply epoch 1.").await;
    browser.wait_text("#acknowledgments", "may still post").await;
    let chips = browser.texts(".ack[data-acknowledged='false']").await;
    let address = late.address().trim_start_matches("http://");
    assert!(chips.len() == 1 && chips[0].contains(address), "{address}: {chips:?}");

    // The page is not loaded again.
    visit.mark().await;
    late.resume();
    browser.wait_text("#acknowledgments", "3 of 3 processes apply epoch 1.").await;
    browser.wait_gone(".ack[data-acknowledged='false']").await;
    assert!(visit.is_marked().await);
}
