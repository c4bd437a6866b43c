//! The number of queues is a setting. No work is lost when it changes.

use std::net::TcpListener;

use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use postonce_tests::proxy::Proxy;
use serde_json::Value;

/// Number of accounts: enough that each of eight queues almost certainly has some.
const ACCOUNTS: usize = 48;
/// The larger number of queues.
const MANY: u16 = 8;
/// The smaller number of queues.
const FEW: u16 = 2;
/// The setting.
const SETTING: &str = "POSTONCE_QUEUE_COUNT";

on_both_stores![
    work_in_queues_that_are_no_longer_configured_is_posted,
    work_of_few_queues_is_posted_when_there_are_more,
    the_sides_are_restarted_separately_without_rings,
];

async fn work_in_queues_that_are_no_longer_configured_is_posted(store_kind: StoreKind) {
    let (bank, before) = restarted(store_kind, MANY, FEW).await;
    let client = bank.client(0);
    let depths = depths(&client).await;
    let names: Vec<&str> = depths.iter().map(|(name, _)| name.as_str()).collect();
    let all: Vec<String> = (0..MANY).map(|queue| format!("work-{queue}")).collect();
    assert_eq!(names, all, "an operator sees the old queues");
    let old: u64 = depths.iter().skip(FEW.into()).map(|(_, depth)| depth).sum();
    assert!(old > 0, "work waits in queues that are no longer configured: {depths:?}");
    everything_is_posted(&client, before).await;
}

async fn work_of_few_queues_is_posted_when_there_are_more(store_kind: StoreKind) {
    let (bank, before) = restarted(store_kind, FEW, MANY).await;
    let client = bank.client(0);
    let depths = depths(&client).await;
    assert_eq!(depths.len(), usize::from(MANY));
    assert!(depths.iter().take(FEW.into()).all(|(_, depth)| *depth > 0), "{depths:?}");
    everything_is_posted(&client, before).await;
}

/// First the web process is restarted with more queues than the worker listens to, then the worker with fewer than the web
/// process uses. All rings and pings are lost.
async fn the_sides_are_restarted_separately_without_rings(store_kind: StoreKind) {
    let plan = Plan::on(store_kind).through_the_queue().polling_often().with(SETTING, &FEW.to_string());
    let mut bank = plan.processes(1, 0).start().await;
    let few = bank.settings.clone();
    let many = few.clone().with(SETTING, MANY.to_string());
    let mut proxy = start_worker_behind_proxy(&mut bank, &few).await;
    let accounts: Vec<AccountKey> = (0..ACCOUNTS).map(|_| fresh_account()).collect();
    let client = bank.client(0);
    for account in &accounts {
        client.open(*account).await;
    }
    proxy.switch(Mode::Refuse);

    bank.webs.remove(0).drain().await;
    bank.settings = many;
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    until_posted(&client, client.queue_up(&accounts, ACCOUNTS, MANY).await).await;

    bank.workers.remove(0).drain().await;
    proxy = start_worker_behind_proxy(&mut bank, &few).await;
    proxy.switch(Mode::Refuse);
    until_posted(&client, client.queue_up(&accounts, ACCOUNTS, MANY).await).await;
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
}

/// Starts a worker that other processes reach through a proxy only.
async fn start_worker_behind_proxy(bank: &mut Scenario, settings: &Settings) -> Proxy {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port").port();
    let proxy = Proxy::before(port);
    let settings = (settings.clone())
        .with("POSTONCE_WORKER_BIND", format!("127.0.0.1:{port}"))
        .with("POSTONCE_ADVERTISE", format!("127.0.0.1:{}", proxy.port()));
    let of_others = std::mem::replace(&mut bank.settings, settings);
    bank.start_worker();
    bank.settings = of_others;
    bank.until_workers_ready().await;
    proxy
}

async fn until_posted(client: &Client, sent: Vec<(AccountKey, MessageId)>) {
    for (account, id) in sent {
        assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    }
}

/// A bank whose work is held by the gate on one number of queues, and whose processes were all restarted
/// with another number.
async fn restarted(store_kind: StoreKind, from: u16, to: u16) -> (Scenario, Vec<(AccountKey, MessageId)>) {
    let mut bank = Plan::on(store_kind).processes(1, 1).with(SETTING, &from.to_string()).start().await;
    let client = bank.client(0);
    bank.until_workers_ready().await;
    drop(client.hold(2).await);
    let accounts: Vec<AccountKey> = (0..ACCOUNTS).map(|_| fresh_account()).collect();
    for account in &accounts {
        client.open(*account).await;
    }
    let waiting = client.queue_up(&accounts, ACCOUNTS, from).await;

    let Scenario { webs, workers, .. } = &mut bank;
    let stopped: Vec<Service> = webs.drain(..).chain(workers.drain(..)).collect();
    for mut service in stopped {
        service.drain().await;
    }
    bank.settings = bank.settings.clone().with(SETTING, to.to_string());
    bank.start_web();
    bank.start_worker();
    bank.client(0).until_ready().await;
    bank.until_workers_ready().await;
    (bank, waiting)
}

/// The depth of each queue of single requests, by name.
async fn depths(client: &Client) -> Vec<(String, u64)> {
    let answer = client.get("/v1/admin/queues").await.expect(200);
    let queues = answer.body.pointer("/queues").and_then(Value::as_array).expect("the queues");
    let depth = |queue: &Value| {
        let name = queue.get("name").and_then(Value::as_str).expect("a queue has a name");
        (name.to_owned(), queue.get("depth").and_then(Value::as_u64).expect("a queue has a depth"))
    };
    queues.iter().map(depth).filter(|(name, _)| name.starts_with("work-")).collect()
}

async fn everything_is_posted(client: &Client, waiting: Vec<(AccountKey, MessageId)>) {
    drop(client.release(2).await);
    until_posted(client, waiting).await;
    client.until_drained(wait::TIMEOUT).await;
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
}
