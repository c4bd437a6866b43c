//! Permissions of partners: changed in one place, and effective in every process within a second.

use std::time::Duration;

use futures::future::join_all;
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::{Value, json};

/// Longest time until a change is effective in a process that receives rings: documented is a second, and a machine that also runs
/// other tests may need longer. Without rings it would be a minute.
const TAKES_EFFECT_WITHIN: Duration = Duration::from_secs(15);
/// Number of web processes.
const WEBS: usize = 3;

on_both_stores![
    a_change_is_effective_in_every_process_soon,
    an_account_outside_of_its_reach_does_not_exist_for_a_partner,
    concurrent_key_additions_never_create_three_keys,
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

async fn a_change_is_effective_in_every_process_soon(store_kind: StoreKind) {
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

async fn an_account_outside_of_its_reach_does_not_exist_for_a_partner(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let (mine, others) = (fresh_account(), fresh_account());
    client.open(mine).await;
    client.open(others).await;
    let posted = fresh_id();
    drop(client.post(others, posted, &Submission::deposit("5.00")).await);
    let name = |account: AccountKey| format!("{}/{}", account.user, account.account);
    let printed = bank.operate(&["partners", "add", "shop", "--account", &name(mine)]);
    let key = printed.split_whitespace().find(|word| word.starts_with("po_")).expect("its key is printed");
    let shop = client.with_key(key);
    drop(shop.post(mine, fresh_id(), &Submission::deposit("1.00")).await);
    assert_eq!(shop.balance(mine).await, "1.00");
    let unknown = shop.get(&path_of(fresh_account())).await.expect(404);
    let refused = shop.get(&path_of(others)).await.expect(404);
    assert_eq!((refused.code(), without_id(&refused)), ("account_unknown", without_id(&unknown)));
    let withdrawal = Submission::withdrawal("5.00");
    let unknown = shop.submit(fresh_account(), fresh_id(), &withdrawal).await.expect(404);
    let refused = shop.submit(others, fresh_id(), &withdrawal).await.expect(404);
    assert_eq!((refused.code(), without_id(&refused)), ("account_unknown", without_id(&unknown)));
    assert_eq!(
        shop.get(&format!("{}/transactions/{posted}", path_of(others))).await.expect(404).code(),
        "transaction_unknown"
    );
    let accounts = shop.get(&format!("/v1/users/{}/accounts", others.user)).await.expect(404);
    assert_eq!(accounts.code(), "user_unknown");

    // On a shared account, each partner sees its own transactions.
    drop(client.post(mine, fresh_id(), &Submission::deposit("2.00")).await);
    assert_eq!(shop.listing(mine, None, 10).await.len(), 1);
    assert_eq!(client.listing(mine, None, 10).await.len(), 2, "a key with every scope sees all");
}

/// The problem document without the id of its request.
fn without_id(answer: &Answer) -> Value {
    let mut body = answer.body.clone();
    let id = body["request_id"].take();
    assert!(id.is_string(), "each problem names its request: {answer:?}");
    body
}

async fn concurrent_key_additions_never_create_three_keys(store_kind: StoreKind) {
    let bank = bank_of_webs(store_kind).await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    let terms = json!({"reach": {"everything": true}});
    drop(bank.client(0).call(Method::PUT, "/v1/admin/partners/shop", &terms).await.expect(201));
    // Two by the command, and three by the API, each at another process.
    let arguments = ["keys", "add", "--partner", "shop", "--scope", "read"];
    let launch = launch(Binary::Web, &bank.settings, &arguments, &bank.directory());
    let mut commands = [Process::start(&launch), Process::start(&launch)];
    let calls = (0..WEBS).map(async |web| {
        let request = json!({"scopes": ["read"]});
        bank.client(web).call(Method::POST, "/v1/admin/partners/shop/keys", &request).await
    });
    let answers = join_all(calls).await;
    let mut keys: Vec<String> = Vec::new();
    for answer in &answers {
        match answer.status {
            201 => keys.push(answer.text_at("/key").to_owned()),
            _ => assert_eq!((answer.status, answer.code()), (409, "keys_too_many"), "{answer:?}"),
        }
    }
    for command in &mut commands {
        let ended = command.wait(wait::TIMEOUT);
        command.wait_for_output();
        let printed = command.log().lines().join("\n");
        let key = printed.split_whitespace().find(|word| word.starts_with("po_"));
        assert_eq!(ended.success(), key.is_some(), "{printed}");
        assert!(key.is_some() || printed.contains("2 keys are active"), "{printed}");
        keys.extend(key.map(str::to_owned));
    }
    assert_eq!(keys.len(), 2, "{answers:?}");
    for key in keys {
        assert_eq!(bank.client(0).with_key(&key).balance(account).await, "0.00");
    }
}
