//! Pages in the background: they give up their stream of values after a while, and are current again when they are shown.

use postonce_tests::prelude::*;
use reqwest::Response;
use serde_json::json;

use super::http_visit::HttpVisit;
use super::streams::PARTNER_STREAMS_MAX;
use super::visit::Visit;

/// Whether the stream of the page is closed, which the extension of htmx keeps with the element.
const IS_CLOSED: &str =
    "const {sseEventSource} = document.querySelector('[sse-connect]')['htmx-internal-data'];
    return sseEventSource.readyState === EventSource.CLOSED";

on_sqlite![
    a_hidden_page_gives_up_its_stream_and_is_current_when_shown,
    a_form_is_kept_when_its_page_is_shown_again
];

async fn a_hidden_page_gives_up_its_stream_and_is_current_when_shown(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 0).start().await;
    let visit = open_gate(&bank).await;
    let mut another = HttpVisit::of(&bank, 0);
    another.sign_in(bank.key()).await;
    let others = all_other_streams(&another).await;
    let browser = &visit.browser;
    browser.hide().await;
    browser.wait_until("the page is hidden", "return document.hidden").await;
    wait::until("the stream of the hidden page ends", wait::TIMEOUT, async || {
        match another.get("/console/live/gate").await.status().as_u16() {
            200 => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
    drop(others);
    // The hidden page receives no event of this change.
    let held = json!({"state": "held", "reason": "while hidden"});
    drop(bank.client(0).set_gate(&held).await.expect(200));
    assert_eq!(browser.attribute(".gate-panel", "data-state").await.as_deref(), Some("released"));
    assert!(visit.is_marked().await);

    browser.unhide().await;
    browser.wait_text(".gate-panel", "while hidden").await;
    visit.until_live().await;
    assert!(!visit.is_marked().await, "the page was loaded again");
    drop(bank.client(0).set_gate(&json!({"state": "released"})).await.expect(200));
    browser.wait_for(".gate-panel[data-state='released']").await;
}

async fn a_form_is_kept_when_its_page_is_shown_again(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 0).start().await;
    let visit = open_gate(&bank).await;
    let browser = &visit.browser;
    // Back within a moment: nothing happens.
    browser.hide().await;
    browser.wait_until("the page is hidden", "return document.hidden").await;
    browser.unhide().await;
    browser.wait_until("the page is shown", "return !document.hidden").await;
    drop(bank.client(0).set_gate(&json!({"state": "held", "reason": "one"})).await.expect(200));
    browser.wait_text(".gate-panel", "one").await;
    drop(bank.client(0).set_gate(&json!({"state": "released"})).await.expect(200));
    browser.wait_for(".gate-panel[data-state='released']").await;
    assert!(visit.is_marked().await);

    visit.open("/console/gate?confirm=hold").await;
    visit.until_live().await;
    visit.mark().await;
    browser.fill("#field-reason", "a reason that took time").await;
    browser.hide().await;
    browser.wait_until("its stream ends", IS_CLOSED).await;
    browser.unhide().await;
    browser.wait_for("[data-live-status][data-state='problem']").await;
    assert!(visit.is_marked().await);
    let entered = browser.run("return document.querySelector('#field-reason').value").await;
    assert_eq!(entered, "a reason that took time");
    browser.click("form[action='/console/gate'] button[type='submit']").await;
    browser.wait_for(".gate-panel[data-state='held']").await;
    assert_eq!(bank.client(0).gate().await.text_at("/reason"), "a reason that took time");
    visit.until_live().await;
}

/// The page of the gate, with a mark.
async fn open_gate(bank: &Scenario) -> Visit {
    let visit = Visit::sign_in(bank, 0, bank.key()).await;
    visit.open("/console/gate").await;
    visit.until_live().await;
    visit.mark().await;
    visit
}

/// Opens streams until the page in front has the only other one; those of earlier pages end soon.
async fn all_other_streams(visit: &HttpVisit) -> Vec<Response> {
    let mut open = Vec::new();
    wait::until("all streams are in use", wait::TIMEOUT, async || {
        let stream = visit.get("/console/live/gate").await;
        match stream.status().as_u16() {
            200 => open.push(stream),
            429 if open.len() == PARTNER_STREAMS_MAX.saturating_sub(1) => return Ok(()),
            _ => {}
        }
        Err(format!("{} are open", open.len()))
    })
    .await;
    open
}
