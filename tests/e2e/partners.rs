//! Permissions of partners: changed in one place, and effective in every process within a second.

use std::time::Duration;

use futures::future::join_all;
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::json;

/// Longest time until a change is effective in a process that receives rings.
const TAKES_EFFECT_WITHIN: Duration = Duration::from_secs(1);
/// Number of web processes.
const WEBS: usize = 3;

on_both_stores![
    a_change_is_effective_in_every_process_within_a_second,
];

/// A bank whose processes are all in the process registry, so that changes are announced to them by rings.
async fn bank_of_webs(store_kind: StoreKind) -> Scenario {
    let bank = Plan::on(store_kind).processes(WEBS, 0).start().await;
    let store = bank.store().await;
    wait::until("all processes are in the registry", wait::TIMEOUT, async || {
        let entries = store.process_registry.list().await.expect("the process registry can be read");
        if entries.len() == WEBS { Ok(()) } else { Err(format!("{entries:?}")) }
    })
    .await;
    bank
}

/// Waits until every process answers with that status. Returns how long that took.
async fn until_all_answer(clients: &[Client], path: &str, status: u16) -> Duration {
    let watch = Stopwatch::start();
    let each = clients.iter().map(|client| {
        wait::until("the change is effective", wait::TIMEOUT, async || {
            let answer = client.get(path).await;
            if answer.status == status { Ok(()) } else { Err(format!("{answer:?}")) }
        })
    });
    join_all(each).await;
    watch.elapsed()
}

async fn a_change_is_effective_in_every_process_within_a_second(store_kind: StoreKind) {
    let bank = bank_of_webs(store_kind).await;
    let operator = bank.client(0);
    let (account, other) = (fresh_account(), fresh_account());
    operator.open(account).await;
    operator.open(other).await;
    let key = bank.add_partner("shop", &["read"]);
    let shops: Vec<Client> = (0..WEBS).map(|web| bank.client(web).with_key(&key)).collect();
    let check = async |what: &str, path: &str, status: u16| {
        let took = until_all_answer(&shops, path, status).await;
        println!("{store_kind:?}: {what} is effective in {WEBS} processes after {took:?}");
        assert!(took < TAKES_EFFECT_WITHIN, "{what} took {took:?}");
    };
    // Every process has cached the key now, and would use it for a minute without a check.
    check("a new key", &path_of(account), 200).await;

    let terms = json!({"reach": {"users": [], "accounts": [
        {"user_id": other.user.to_string(), "account_id": other.account.to_string()}
    ]}});
    drop(operator.call(Method::PUT, "/v1/admin/partners/shop", &terms).await.expect(200));
    check("a smaller reach", &path_of(account), 404).await;
    check("the remaining reach", &path_of(other), 200).await;
    bank.operate(&["partners", "change", "shop", "--all-accounts"]);
    check("a larger reach, by command", &path_of(account), 200).await;
    bank.operate(&["partners", "suspend", "shop"]);
    check("a suspension, by command", &path_of(account), 401).await;
    bank.operate(&["partners", "resume", "shop"]);
    check("its end, by command", &path_of(account), 200).await;

    let partner = operator.get("/v1/admin/partners/shop").await.expect(200);
    let keys = format!("/v1/admin/partners/shop/keys/{}", partner.text_at("/keys/0/key_id"));
    drop(operator.send(operator.request(Method::DELETE, &keys)).await.expect(200));
    check("a revoked key", &path_of(account), 401).await;
    assert_eq!(operator.balance(account).await, "0.00", "other keys still work");
}
