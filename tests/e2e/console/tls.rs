//! The console over TLS: its cookie is sent nowhere else, with and without a browser.

use postonce_tests::scenario::{Plan, Scenario, StoreKind};
use reqwest::header::SET_COOKIE;

use super::http_visit::{HttpVisit, location};
use super::visit::Visit;
use crate::tls::Certificates;

const COOKIE: &str = "__Host-postonce_console";

on_sqlite![a_session_over_tls_stays_there, a_browser_signs_in_acts_and_signs_out_over_tls];

async fn start(store_kind: StoreKind, certificates: &Certificates) -> Scenario {
    let plan = Plan::on(store_kind).processes(1, 0);
    certificates.files.serve(plan, &certificates.authority).start().await
}

async fn a_session_over_tls_stays_there(store_kind: StoreKind) {
    let certificates = Certificates::new();
    let bank = start(store_kind, &certificates).await;
    let mut visit = HttpVisit::over_tls(&bank, 0, certificates.authority.pem());
    assert!(visit.address.starts_with("https://"), "{}", visit.address);
    visit.sign_in(bank.key()).await;
    let page = visit.get("/console/gate").await;
    assert_eq!(page.status().as_u16(), 200);
    assert!(page.text().await.expect("a page").contains("Signed in as"));
    // Without its prefix, a page over plain HTTP could have set it.
    let cookie = visit.cookie.clone().expect("it is signed in");
    let renamed = cookie.strip_prefix("__Host-").expect("the prefix").to_owned();
    let other =
        HttpVisit { cookie: Some(renamed), ..HttpVisit::over_tls(&bank, 0, certificates.authority.pem()) };
    assert!(location(&other.get("/console/gate").await).starts_with("/console/sign-in"));

    let token = visit.token().await;
    let out = visit.post("/console/sign-out", &[("csrf", &token)]).await;
    assert_eq!((out.status().as_u16(), location(&out).as_str()), (303, "/console/sign-in"));
    let removal = out.headers()[SET_COOKIE].to_str().expect("a cookie is ASCII");
    assert!(removal.starts_with(&format!("{COOKIE}=;")), "{removal}");
    for attribute in ["Max-Age=0", "Path=/", "Secure"] {
        // A browser removes a cookie with this prefix only if these are there.
        assert!(removal.split("; ").any(|it| it == attribute), "{attribute}: {removal}");
    }
}

async fn a_browser_signs_in_acts_and_signs_out_over_tls(store_kind: StoreKind) {
    let certificates = Certificates::new();
    let bank = start(store_kind, &certificates).await;
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;
    assert!(browser.address().await.starts_with("https://"));
    let cookies = browser.cookies().await;
    assert_eq!(cookies.len(), 1, "{cookies:?}");
    let cookie = &cookies[0];
    assert_eq!((cookie.name.as_str(), cookie.path.as_str()), (COOKIE, "/"));
    assert!(cookie.secure && cookie.http_only && cookie.session, "{cookie:?}");
    assert_eq!(cookie.same_site.as_deref(), Some("Lax"));

    visit.open("/console/gate?confirm=hold").await;
    visit.until_live().await;
    browser.fill("#field-reason", "over TLS").await;
    browser.click("form[action='/console/gate'] button[type='submit']").await;
    browser.wait_for(".gate-panel[data-state='held']").await;
    assert_eq!(bank.client(0).gate().await.text_at("/reason"), "over TLS");

    browser.click("form[action='/console/sign-out'] button").await;
    browser.wait_for("#field-key").await;
    assert_eq!(browser.cookies().await, []);
    visit.open("/console/gate").await;
    assert_eq!(visit.path().await, "/console/sign-in?next=%2Fconsole%2Fgate");
    assert_eq!(browser.messages().await, Vec::<String>::new());
}
