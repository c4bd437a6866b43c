//! Sessions that end while a page is open in the browser.

use postonce_tests::prelude::*;

use super::http_visit::HttpVisit;
use super::session::key_id;
use super::visit::Visit;

/// How long a session may be unused, in seconds; longer than the time until a page is open, on a busy machine.
const UNUSED_S: &str = "10";

on_sqlite![
    a_page_leads_to_the_sign_in_when_its_session_ends_and_back,
    a_page_of_a_revoked_key_leads_to_the_sign_in_and_does_nothing,
];

/// Waits until the page for signing in is shown, which leads back to that page.
async fn until_signed_out(visit: &Visit, next: &str) {
    visit.browser.wait_for("#field-key").await;
    visit.browser.wait_text(".notice", "The session has ended").await;
    let next = if next == "/console" { String::new() } else { format!("&next={}", super::encoded(next)) };
    assert_eq!(visit.path().await, format!("/console/sign-in?expired=1{next}"));
}

/// Waits until the session of the browser has ended, without its help: requests with a copy of its cookie do not extend it.
async fn until_ended(bank: &Scenario, visit: &Visit) {
    let cookies = visit.browser.cookies().await;
    let cookie = cookies.iter().find(|it| it.name == "postonce_console").expect("it has a session");
    let cookie = Some(format!("{}={}", cookie.name, cookie.value));
    let copy = HttpVisit { cookie, ..HttpVisit::of(bank, 0) };
    wait::until("the session has ended", wait::TIMEOUT, async || {
        match copy.get("/console/accounts").await.status().as_u16() {
            303 => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
}

async fn a_page_leads_to_the_sign_in_when_its_session_ends_and_back(store_kind: StoreKind) {
    let plan = Plan::on(store_kind).processes(1, 0).with("POSTONCE_CONSOLE_SESSION_S", UNUSED_S);
    let bank = plan.start().await;
    drop(bank.add_partner("shop", &["deposit"]));
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;

    // A page with current values leaves by itself: receiving them is no use of the session.
    visit.open("/console/gate?confirm=hold").await;
    visit.until_live().await;
    until_signed_out(&visit, "/console/gate?confirm=hold").await;
    visit.enter(bank.key()).await;
    browser.wait_text(".confirm", "Hold the gate?").await;
    assert_eq!(visit.path().await, "/console/gate?confirm=hold");

    // A form that is sent too late does nothing.
    visit.open("/console/partners/shop?confirm=suspend").await;
    browser.click("#confirm").await;
    until_ended(&bank, &visit).await;
    browser.click("form[action='/console/partners/shop'] button[type='submit']").await;
    until_signed_out(&visit, "/console").await;
    let shop = bank.client(0).get("/v1/admin/partners/shop").await.expect(200);
    assert_eq!(shop.text_at("/status"), "active");
    visit.enter(bank.key()).await;
    browser.wait_text("h1", "Overview").await;
    assert_eq!(visit.path().await, "/console");
}

async fn a_page_of_a_revoked_key_leads_to_the_sign_in_and_does_nothing(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 0).start().await;
    let client = bank.client(0);
    let key = bank.add_partner("operations", &["operate"]);
    let (reading, acting) = (Visit::sign_in(&bank, 0, &key).await, Visit::sign_in(&bank, 0, &key).await);
    reading.open("/console/batches").await;
    // Without scripts, only the answer to the form can show that the session has ended.
    acting.browser.scripts(false).await;
    acting.open("/console/gate?confirm=hold").await;
    bank.operate(&["keys", "revoke", &key_id(&bank, "operations").await]);

    acting.browser.click("form[action='/console/gate'] button[type='submit']").await;
    until_signed_out(&acting, "/console").await;
    assert_eq!(client.gate().await.text_at("/state"), "released");

    reading.browser.click("a[href='/console/dead-letters']").await;
    until_signed_out(&reading, "/console/dead-letters").await;
    reading.enter(&key).await;
    let refused = client.with_key(&key).get("/v1/key").await.expect(401);
    reading.browser.wait_text(".notice", refused.text_at("/detail")).await;
    assert_eq!(reading.browser.count("form[action='/console/sign-out']").await, 0);
    // Where it leads is not forgotten.
    reading.enter(bank.key()).await;
    reading.browser.wait_text("main", "No open dead letters").await;
    assert_eq!(reading.path().await, "/console/dead-letters");
}
