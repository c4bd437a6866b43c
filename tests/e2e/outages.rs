//! Storage outages: at the start, in the middle, partial, and repeated. Afterwards everything acknowledged
//! is final, and there are no dead letters.

use std::cell::RefCell;
use std::time::Duration;

use futures::future::{join, join_all};
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;

/// Longest time until work continues after the storage is available again.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(90);

#[tokio::test]
async fn processes_start_without_storage_and_become_ready_when_it_is_available() {
    let mut bank = Plan::on(StoreKind::Azurite).behind_proxies().processes(0, 0).start().await;
    bank.proxies().switch_all(Mode::Refuse);
    bank.start_web();
    bank.start_worker();
    let client = bank.client(0);
    until_not_ready(&client).await;
    assert_eq!(client.get("/livez").await.status, 200, "a process that waits for its storage is alive");
    let (account, id) = (fresh_account(), fresh_id());
    expect_unavailable(&client, account, id).await;

    bank.proxies().switch_all(Mode::Forward);
    client.until_ready().await;
    client.open(account).await;
    drop(client.post(account, id, &Submission::deposit("1.00")).await);
}

#[tokio::test]
async fn work_resumes_after_azurite_was_stopped_and_started() {
    let mut azurite = Azurite::private();
    let bank = Plan::on_private(&azurite).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    let mut auditor = Auditor::default();
    client.open(account).await;
    auditor.account(account, "0.00");
    let ids: Vec<MessageId> = (0..20).map(|_| fresh_id()).collect();
    for id in &ids {
        drop(auditor.submit(&client, account, *id, &Submission::deposit("1.00")).await.expect(202));
    }
    azurite.stop();
    let late = fresh_id();
    expect_unavailable(&client, account, late).await;
    until_not_ready(&client).await;

    azurite.resume();
    client.until_ready().await;
    for id in ids.iter().chain([&late]) {
        let answer = auditor.submit(&client, account, *id, &Submission::deposit("1.00")).await;
        assert!([200, 202].contains(&answer.status), "{answer:?}");
    }
    client.until_drained(RECOVERY_TIME_MAX).await;
    assert_eq!(client.balance(account).await, "21.00");
    check(&bank, &client, &auditor).await;
}

#[tokio::test]
async fn an_outage_that_fails_many_requests_fills_no_log() {
    const REQUESTS: usize = 60;
    let bank = Plan::on(StoreKind::Azurite).behind_proxies().processes(1, 0).start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    bank.proxies().switch_all(Mode::Refuse);
    join_all((0..REQUESTS).map(|_| expect_unavailable(&client, account, fresh_id()))).await;
    let lines_of = |part: &str| {
        let lines = bank.webs[0].log().lines();
        lines.into_iter().filter(|line| line.contains(part)).collect::<Vec<_>>()
    };
    let answered = wait::until("all requests are logged", wait::TIMEOUT, async || {
        let count = lines_of("answered 503").len();
        if count >= REQUESTS { Ok(count) } else { Err(format!("{count} of {REQUESTS}")) }
    })
    .await;
    let failed = lines_of("/deposits failed: ");
    assert!(!failed.is_empty() && failed.len() <= 10, "{} causes for {answered} requests", failed.len());
    // Threads may write their lines in another order than that in which they are counted.
    let last = failed.iter().filter(|line| line.contains("limited")).count();
    assert_eq!(last, usize::from(failed.len() == 10), "{failed:#?}");
    bank.proxies().switch_all(Mode::Forward);
}

#[tokio::test]
async fn tables_unavailable_for_longer_than_all_receipts_make_no_dead_letters() {
    const VISIBILITY_TIMEOUT_S: u32 = 1;
    const DEQUEUE_COUNT_MAX: u32 = 2;
    let plan =
        Plan::on(StoreKind::Azurite).behind_proxies().receipts(VISIBILITY_TIMEOUT_S, DEQUEUE_COUNT_MAX);
    let mut bank = plan.start().await;
    let client = bank.client(0);
    let (accounts, mut auditor) = accounts(&client, 8).await;
    // The worker has a warm cache, and is suspended while the work is accepted.
    drop(
        client.post(accounts[0], recorded_id(&mut auditor, accounts[0]), &Submission::deposit("1.00")).await,
    );
    bank.workers.iter_mut().for_each(postonce_tests::service::Service::suspend);
    for _ in 0..5 {
        for account in &accounts {
            drop(
                auditor.submit(&client, *account, fresh_id(), &Submission::deposit("1.00")).await.expect(202),
            );
        }
    }
    bank.proxies().tables.switch(Mode::Refuse);
    bank.workers.iter_mut().for_each(postonce_tests::service::Service::resume);
    // Only the tables are unavailable, for four times as long as all receipts take; the queue works.
    let unavailable_for = Duration::from_secs(u64::from(VISIBILITY_TIMEOUT_S * DEQUEUE_COUNT_MAX * 4));
    wait::throughout("the queue keeps the work", unavailable_for, async || match queue_depth(&bank).await {
        0 => Err("nothing is on the queue".to_owned()),
        _ => Ok(()),
    })
    .await;
    bank.proxies().tables.switch(Mode::Forward);
    client.until_ready().await;
    client.until_drained(RECOVERY_TIME_MAX).await;
    check(&bank, &client, &auditor).await;
}

#[tokio::test]
async fn intermittent_storage_makes_no_dead_letters() {
    let bank = Plan::on(StoreKind::Azurite).behind_proxies().receipts(1, 2).start().await;
    let client = bank.client(0);
    let (accounts, auditor) = accounts(&client, 4).await;
    let auditor = RefCell::new(auditor);
    let flapping = async {
        for round in 0..16 {
            let mode = if round % 2 == 0 { Mode::Refuse } else { Mode::Forward };
            bank.proxies().switch_all(mode);
            let pause = Duration::from_millis(if round % 4 < 2 { 700 } else { 150 });
            wait::throughout("the pause", pause, async || Ok(())).await;
        }
    };
    under_load(&client, &accounts, &auditor, flapping).await;
    client.until_ready().await;
    client.until_drained(RECOVERY_TIME_MAX).await;
    check(&bank, &client, &auditor.into_inner()).await;
}

#[tokio::test]
async fn lost_answers_of_the_storage_post_nothing_twice() {
    let bank = Plan::on(StoreKind::Azurite).behind_proxies().receipts(1, 3).start().await;
    let client = bank.client(0);
    let (accounts, auditor) = accounts(&client, 4).await;
    let auditor = RefCell::new(auditor);
    let losing = async {
        for round in 0..12 {
            let services = bank.proxies();
            let service = if round % 4 < 2 { &services.tables } else { &services.queues };
            service.switch(if round % 2 == 0 { Mode::LoseAnswers } else { Mode::Forward });
            wait::throughout("the pause", Duration::from_millis(300), async || Ok(())).await;
        }
    };
    under_load(&client, &accounts, &auditor, losing).await;
    client.until_drained(RECOVERY_TIME_MAX).await;
    check(&bank, &client, &auditor.into_inner()).await;
}

/// Partners submit continuously, and repeat failed requests, during `disturbance`.
async fn under_load(
    client: &Client,
    accounts: &[AccountKey],
    auditor: &RefCell<Auditor>,
    disturbance: impl Future<Output = ()>,
) {
    let over = std::cell::Cell::new(false);
    let partners = accounts.iter().map(|account| async {
        while !over.get() {
            let (id, submission) = (fresh_id(), Submission::deposit("1.00"));
            auditor.borrow_mut().sent(*account, id, &submission);
            wait::until("it is accepted", RECOVERY_TIME_MAX, async || {
                let answer = client.submit(*account, id, &submission).await;
                auditor.borrow_mut().answered(*account, id, &answer);
                match answer.status {
                    200 | 202 => Ok(()),
                    503 => Err(format!("{answer:?}")),
                    _ => panic!("an outage is answered with 503, not {answer:?}"),
                }
            })
            .await;
        }
    });
    let disturbance = async {
        disturbance.await;
        over.set(true);
    };
    join(join_all(partners), disturbance).await;
}

async fn accounts(client: &Client, count: usize) -> (Vec<AccountKey>, Auditor) {
    let mut auditor = Auditor::default();
    let accounts: Vec<AccountKey> = (0..count).map(|_| fresh_account()).collect();
    for account in &accounts {
        client.open(*account).await;
        auditor.account(*account, "0.00");
    }
    (accounts, auditor)
}

/// An id of a deposit of 1.00 that the auditor has recorded.
fn recorded_id(auditor: &mut Auditor, account: AccountKey) -> MessageId {
    let id = fresh_id();
    auditor.sent(account, id, &Submission::deposit("1.00"));
    id
}

async fn until_not_ready(client: &Client) {
    wait::until("the process is not ready", wait::TIMEOUT, async || {
        let answer = client.ready().await;
        match answer.status {
            503 if !answer.text.is_empty() => Ok(()),
            _ => Err(format!("{answer:?}")),
        }
    })
    .await;
}

async fn expect_unavailable(client: &Client, account: AccountKey, id: MessageId) {
    let answer = client.submit(account, id, &Submission::deposit("1.00")).await.expect(503);
    assert_eq!(answer.code(), "storage_unavailable");
    assert!(!answer.header("retry-after").is_empty(), "{answer:?}");
}

/// The number of messages on the queues, read without the proxies and the API.
async fn queue_depth(bank: &Scenario) -> u64 {
    let store = bank.store().await;
    let mut depth: u64 = 0;
    for queue in postonce_shared::messaging::envelope::queues(bank.queue_count()) {
        let backlog = store.queue.backlog(&queue).await.expect("the queue answers");
        depth = depth.saturating_add(backlog.depth);
    }
    depth
}

async fn check(bank: &Scenario, client: &Client, auditor: &Auditor) {
    assert_eq!(client.dead_letters().await, Vec::<serde_json::Value>::new());
    auditor.audit(client, &bank.store().await).await;
}
