//! Partners in the browser: their terms and keys as the API lists them, and acts that the API obeys.

use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::json;

use super::shown::{list, shown_time, text};
use super::visit::Visit;

const SHOP: &str = "/v1/admin/partners/shop";

on_sqlite![
    partners_are_listed_with_their_terms_and_keys,
    a_partner_is_suspended_and_resumed_in_the_browser,
    a_key_is_added_with_permissions_and_an_expiry,
];

async fn partners_are_listed_with_their_terms_and_keys(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let reach = json!({"users": [], "accounts": [
        {"user_id": account.user.to_string(), "account_id": account.account.to_string()}
    ]});
    let terms = json!({"reach": reach, "rate": {"per_second": 1500, "burst": 2000}});
    drop(client.call(Method::PUT, SHOP, &terms).await.expect(201));
    let scopes = json!({"scopes": ["deposit", "read"]});
    let key = client.call(Method::POST, &format!("{SHOP}/keys"), &scopes).await.expect(201);
    let shop = client.with_key(key.text_at("/key"));
    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    visit.open("/console/partners/shop").await;
    assert_eq!(visit.rows("API keys").await[0][4], "not recorded", "nobody has used the key");
    drop(shop.get(&path_of(account)).await.expect(200));
    let partner = wait::until("the use of the key is recorded", wait::TIMEOUT, async || {
        let partner = client.get(SHOP).await.expect(200);
        if partner.text_at("/keys/0/last_used_at").is_empty() { Err(partner.text) } else { Ok(partner.body) }
    })
    .await;
    let key = &list(&partner, "keys")[0];
    let last_use = shown_time(text(key, "last_used_at"));

    visit.open("/console/partners").await;
    let rate = "1\u{202f}500 requests per second, 2\u{202f}000 at once";
    let rows = visit.rows("Partners").await;
    assert_eq!(rows[1..], [["shop", "active", "1 account", "1", &last_use, rate]], "{rows:?}");
    visit.browser.click("a[href='/console/partners/shop']").await;
    assert_eq!(visit.value("Reach").await, "1 account");
    assert_eq!(visit.value("Rate").await, rate);
    assert_eq!(visit.value("Created").await, shown_time(text(&partner, "created_at")));
    let keys = visit.rows("API keys").await;
    let created = shown_time(text(key, "created_at"));
    assert_eq!(keys, [[text(key, "key_id"), "deposit, read", &created, "never", &last_use, "Revoke"]]);
    visit.browser.click("main details summary").await;
    visit.browser.click(&format!("a[href$='{}']", account.account)).await;
    assert_eq!(visit.value("Balance").await, "0.00 EUR");
}

async fn a_partner_is_suspended_and_resumed_in_the_browser(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(2, 0).start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    let key = bank.add_partner("shop", &["read"]);
    let shops = [0, 1].map(|web| bank.client(web).with_key(&key));
    for shop in &shops {
        shop.until_status(&path_of(account), 200).await;
    }

    let visit = Visit::sign_in(&bank, 0, bank.key()).await;
    let browser = &visit.browser;
    visit.open("/console/partners/shop").await;
    for (act, title, state, status) in [
        ("suspend", "shop is suspended", "suspended", 401),
        ("resume", "shop is active again", "active", 200),
    ] {
        browser.click(&format!("a[href='/console/partners/shop?confirm={act}']")).await;
        let button = "form[action='/console/partners/shop'] button[type='submit']";
        browser.wait_for(&format!("{button}:disabled")).await;
        browser.click("#confirm").await;
        browser.click(button).await;
        browser.wait_text(".notice-title", title).await;
        for shop in &shops {
            shop.until_status(&path_of(account), status).await;
        }
        assert_eq!(bank.client(0).get(SHOP).await.expect(200).text_at("/status"), state);
        visit.open("/console/partners").await;
        let states: Vec<_> = visit.rows("Partners").await.into_iter().map(|row| row[1].clone()).collect();
        assert_eq!(states, ["active", state], "bootstrap stays as it is");
        browser.click("a[href='/console/partners/shop']").await;
    }
}

async fn a_key_is_added_with_permissions_and_an_expiry(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    drop(bank.add_partner("shop", &["read"]));
    let office = bank.add_partner("office", &["partners", "read", "metrics"]);
    let visit = Visit::sign_in(&bank, 0, &office).await;
    let browser = &visit.browser;
    visit.open("/console/partners/shop").await;
    let names =
        browser.run("return [...document.querySelectorAll('[name^=scope-]')].map((it) => it.name)").await;
    assert_eq!(
        names,
        json!(["scope-read", "scope-metrics", "scope-partners"]),
        "a key grants only what it has"
    );
    let button = "form[action='/console/partners/shop/keys'] button[type='submit']";
    browser.fill("#field-days", "30").await;
    browser.click(button).await;
    browser.wait_text("[role='alert']", "Tick at least one permission").await;
    assert_eq!(list(&bank.client(0).get(SHOP).await.body, "keys").len(), 1, "nothing was added");

    browser.click("[name='scope-read']").await;
    browser.click(button).await;
    browser.wait_text("main", "This key is shown only once").await;
    let (key, id) = (browser.text(".copyable code").await, visit.value("Key id").await);
    let own = bank.client(0).with_key(&key).get("/v1/key").await.expect(200);
    assert_eq!((own.text_at("/key_id"), &own.body["scopes"]), (id.as_str(), &json!(["read"])));
    let expires = shown_time(own.text_at("/expires_at"));
    assert_eq!(visit.value("Expires").await, expires);
    let account = fresh_account();
    bank.client(0).open(account).await;
    drop(bank.client(0).with_key(&key).get(&path_of(account)).await.expect(200));
    drop(bank.client(0).with_key(&key).get("/v1/admin/gate").await.expect(403));

    browser.click("a.button[href='/console/partners/shop']").await;
    let rows = visit.rows("API keys").await;
    let row = rows.iter().find(|row| row[0] == id).expect("the new key is listed");
    assert_eq!((row[1].as_str(), &row[3]), ("read", &expires));
    assert!(!browser.source().await.contains(&key), "the key is shown once");
    browser.wait_text("main", "A partner has at most 2 active keys").await;
}
