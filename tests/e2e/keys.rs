//! API keys of partners, created and revoked on the command line.

use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::json;

on_both_stores![
    a_revoked_key_is_refused,
    a_key_is_replaced_while_it_is_used,
    the_bootstrap_key_opens_nothing_after_it_was_revoked,
    processes_that_start_at_once_agree_on_the_first_key,
    the_configured_key_is_never_refused_as_invalid;
    on_sqlite:
    a_key_allows_what_its_scopes_say,
];

async fn a_key_allows_what_its_scopes_say(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;

    let shop = client.with_key(&bank.add_partner("shop", &[]));
    drop(shop.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    for path in ["/v1/admin/queues", "/v1/admin/dead-letters", "/v1/admin/storage-operations"] {
        assert_eq!(shop.get(path).await.status, 403, "{path} is for operators");
    }

    let reader = client.with_key(&bank.add_partner("reader", &["read"]));
    assert_eq!(reader.balance(account).await, "1.00");
    assert_eq!(
        reader.listing(account, None, 10).await.len(),
        0,
        "transactions of other partners are not shown"
    );
    assert_eq!(shop.listing(account, None, 10).await.len(), 1);
    let refused = reader.submit(account, fresh_id(), &Submission::deposit("1.00")).await.expect(403);
    assert_eq!(refused.header("content-type"), "application/problem+json");
    let terms = json!({"currency": "EUR", "overdraft_limit": "0.00"});
    let refused = reader.call(Method::PUT, &path_of(fresh_account()), &terms).await;
    assert_eq!(refused.status, 403, "{refused:?}");

    for wrong in ["", "po_wrong", "Bearer"] {
        let refused = client.with_key(wrong).get(&path_of(account)).await;
        assert_eq!(refused.status, 401, "{refused:?}");
        assert!(!refused.header("www-authenticate").is_empty(), "{refused:?}");
    }
    assert_eq!(client.balance(account).await, "1.00");
}

async fn a_revoked_key_is_refused(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 0).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let key = bank.add_partner("shop", &["read"]);
    assert_eq!(client.with_key(&key).balance(account).await, "0.00");

    let listed = bank.operate(&["keys", "list"]);
    assert!(!listed.contains(&key), "a key is shown once");
    let line = listed.lines().find(|line| line.contains("shop")).expect("the key is listed");
    let id = line.split_whitespace().next().expect("a line starts with the id").to_owned();
    bank.operate(&["keys", "revoke", &id]);
    assert!(
        bank.operate(&["keys", "list"]).lines().any(|line| line.contains(&id)),
        "a revoked key is still listed"
    );

    // A process that has not cached the key refuses it at once; others refuse it soon.
    bank.start_web();
    bank.client(1).until_ready().await;
    assert_eq!(bank.client(1).with_key(&key).get(&path_of(account)).await.status, 401);
    assert_eq!(bank.client(1).balance(account).await, "0.00", "other keys still work");
}

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

async fn processes_that_start_at_once_agree_on_the_first_key(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(3, 0).start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    for web in 0..3 {
        assert_eq!(bank.client(web).balance(account).await, "0.00");
    }
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
