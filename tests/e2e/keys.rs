//! API keys of partners, created and revoked on the command line.

use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::json;

on_both_stores![
    a_key_is_replaced_while_it_is_used,
    the_bootstrap_key_opens_nothing_after_it_was_revoked,
    the_configured_key_is_never_refused_as_invalid,
];

/// Waits until the use of a key of a partner is recorded, and returns the id of the key as `keys list` prints it.
async fn used_key_of(bank: &Scenario, partner: &str) -> String {
    wait::until("the use of the key is recorded", wait::TIMEOUT, async || {
        let listed = bank.operate(&["keys", "list"]);
        let used = listed.lines().find(|line| line.contains(partner) && line.contains("  used "));
        used.and_then(|line| line.split_whitespace().next().map(str::to_owned)).ok_or(listed)
    })
    .await
}

/// The keys of partners, and of the programs that belong to an installation.
async fn a_key_is_replaced_while_it_is_used(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let of_account = path_of(account);
    for (partner, scope, path) in [("shop", "read", &*of_account), ("keda", "scale", "/v1/admin/scale")] {
        let old = client.with_key(&bank.add_partner(partner, &[scope]));
        drop(old.get(path).await.expect(200));
        let printed = bank.operate(&["keys", "add", "--partner", partner, "--scope", scope]);
        let key = printed.split_whitespace().find(|word| word.starts_with("po_")).expect("a key");
        let new = client.with_key(key);
        let id = used_key_of(&bank, partner).await;
        for both in [&old, &new] {
            drop(both.get(path).await.expect(200));
        }
        drop(bank.operate(&["keys", "revoke", &id]));
        old.until_status(path, 401).await;
        drop(new.get(path).await.expect(200));
    }
}

/// Operators get keys of their own. The setting stays as it is, also for processes that start later.
async fn the_bootstrap_key_opens_nothing_after_it_was_revoked(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).start().await;
    let first = bank.client(0);
    drop(first.get("/v1/admin/gate").await.expect(200));
    let operator = bank.add_partner("operator", &["admin"]);
    let listed = bank.operate(&["keys", "list"]);
    let line = listed.lines().find(|line| line.contains("bootstrap")).expect("the key is listed");
    let id = line.split_whitespace().next().expect("a line starts with the id");
    drop(bank.operate(&["keys", "revoke", id]));
    first.until_status("/v1/admin/gate", 401).await;
    bank.start_web();
    let started = bank.client(1);
    started.until_ready().await;
    assert_eq!(started.get("/v1/admin/gate").await.status, 401, "the setting makes no key again");
    drop(started.with_key(&operator).get("/v1/admin/gate").await.expect(200));
}

/// A process that has just started may not be able to check keys yet; it must not refuse the key then.
async fn the_configured_key_is_never_refused_as_invalid(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(0, 0).start().await;
    bank.start_web();
    let client = bank.client(0);
    let account = fresh_account();
    wait::until("the first key opens an account", wait::TIMEOUT, async || {
        let terms = json!({"currency": "EUR", "overdraft_limit": "0.00"});
        let answer = client.call(Method::PUT, &path_of(account), &terms).await;
        match answer.status {
            200 | 201 => Ok(()),
            503 => Err(format!("{answer:?}")),
            _ => panic!("a process that is not ready answers 503, not {answer:?}"),
        }
    })
    .await;
}
