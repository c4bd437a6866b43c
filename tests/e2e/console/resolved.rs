//! Dead letters, accounts and partners in the browser: decisions of operators, and text of partners that is no script.

use postonce_shared::domain::ids::{AccountKey, MessageId};
use postonce_tests::dead_letters::crash_until_dead;
use postonce_tests::prelude::*;
use serde_json::Value;

use super::visit::Visit;

/// Text that would change the page if it were markup.
const SCRIPT: &str = "</p><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">";

on_sqlite![
    a_dead_letter_is_replayed_in_the_browser,
    text_of_partners_does_not_run,
    a_key_is_shown_once_and_revoked_with_its_session,
];

async fn a_dead_letter_is_replayed_in_the_browser(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 0).receipts(1, 2).start().await;
    let client = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    client.open(account).await;
    let letter = crashing_work(&mut bank, &client, (account, id)).await;
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;

    visit.open("/console/dead-letters").await;
    browser.click(&format!("a[href='/console/dead-letters/{letter}']")).await;
    browser.wait_text("main", "Its work waits for a decision").await;
    browser.click("a[href$='?confirm=replay']").await;
    browser.click("#confirm").await;
    browser.click(&format!("form[action='/console/dead-letters/{letter}'] button[type='submit']")).await;
    browser.wait_text("main", "The dead letter is replayed").await;
    assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
    visit.open("/console/dead-letters").await;
    browser.wait_for("main").await;
    assert_eq!(browser.count(&format!("a[href='/console/dead-letters/{letter}']")).await, 0);

    let rows = client.get("/v1/admin/audit?limit=1").await.expect(200);
    assert_eq!(rows.text_at("/rows/0/act"), "dead_letter.replay");
}

/// Deposits while the worker crashes until the work is a dead letter, and a worker runs that posts. Returns the dead letter.
async fn crashing_work(
    bank: &mut Scenario,
    client: &Client,
    (account, id): (AccountKey, MessageId),
) -> String {
    drop(
        client.submit(account, id, &Submission::deposit("4.00").with("reference", SCRIPT)).await.expect(202),
    );
    let letter = crash_until_dead(bank, client).await;
    letter["id"].as_str().expect("it has an id").to_owned()
}

async fn text_of_partners_does_not_run(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    client.open(account).await;
    let deposit = Submission::deposit("1.00").with("reference", SCRIPT).with("<script>", SCRIPT);
    assert_eq!(client.post(account, id, &deposit).await.transaction_status(), "posted");
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let page = format!("/console/accounts/{}/{}", account.user, account.account);
    for path in [
        page.clone(),
        format!("{page}/{id}"),
        format!("/console/accounts?user_id={}", super::encoded(SCRIPT)),
    ] {
        visit.open(&path).await;
        visit.browser.wait_for("main").await;
        assert!(visit.browser.source().await.contains("onerror="), "{path} contains the text");
        let title = visit.browser.run("return document.title").await;
        assert!(title.as_str().is_some_and(|title| title.ends_with("Postonce")), "{path}: {title}");
        assert_eq!(
            visit.browser.count("main script:not([type='application/json']), main img").await,
            0,
            "{path}"
        );
    }
    let messages = visit.browser.messages().await;
    assert!(messages.is_empty(), "not even an attempt: {messages:?}");
}

async fn a_key_is_shown_once_and_revoked_with_its_session(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 0).start().await;
    drop(bank.add_partner("shop", &["deposit"]));
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;
    visit.open("/console/partners/shop").await;
    browser.click("input[name='scope-metrics']").await;
    browser.click("form[action='/console/partners/shop/keys'] button[type='submit']").await;
    browser.wait_text("main", "po_").await;
    let shown = browser.text("main").await;
    let key = shown.split_whitespace().find(|word| word.starts_with("po_")).expect("the key").to_owned();
    let of_shop = bank.client(0).with_key(&key).get("/v1/key").await.expect(200);
    assert_eq!(of_shop.body["scopes"], serde_json::json!(["metrics"]));
    visit.open("/console/partners/shop").await;
    browser.wait_text("main", of_shop.text_at("/key_id")).await;
    assert!(!browser.source().await.contains(&key), "the key is shown once");

    let of_viewer = Visit::sign_in(&bank, 0, &key).await;
    of_viewer.open("/console/gate").await;
    of_viewer.until_live().await;
    let revoke = format!("/console/partners/shop/keys/{}", of_shop.text_at("/key_id"));
    browser.click(&format!("a[href*='key={}']", of_shop.text_at("/key_id"))).await;
    browser.click(&format!("form[action='{revoke}'] input[type='checkbox']")).await;
    browser.click(&format!("form[action='{revoke}'] button[type='submit']")).await;
    of_viewer.browser.wait_for("#field-key").await;
    assert_eq!(bank.client(0).with_key(&key).get("/v1/key").await.status, 401);
}
