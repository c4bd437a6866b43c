//! The doorbell between processes: work is posted at once, and a waiting request is answered at once,
//! although the next safety poll is far away.
#![expect(clippy::disallowed_methods, reason = "the test measures durations")]

use std::time::{Duration, Instant};

use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;

/// An answer that takes longer was not caused by a ring. A ring takes milliseconds; the machine may be busy
/// with other tests.
const RUNG_TIME_MAX: Duration = Duration::from_millis(2500);
/// A worker that has not polled a queue for that long has backed off, and its next poll is about as far
/// away.
const QUIET: Duration = Duration::from_secs(5);

on_both_stores![
    a_waiting_request_is_answered_long_before_the_next_poll,
    a_killed_or_suspended_worker_delays_no_request,
    the_queue_view_sums_over_all_workers,
    a_process_accepts_only_signed_requests,
    processes_can_reach_each_other_at_the_port_of_the_api,
];

/// A bank whose safety polls are one minute apart.
fn slow_polling(store_kind: StoreKind) -> Plan {
    Plan::on(store_kind).through_the_queue().with("POSTONCE_IDLE_POLL_MAX_MS", "60000")
}

/// The status and the body of the answer of a process that must run.
async fn send(request: reqwest::RequestBuilder) -> (u16, String) {
    let answer = request.send().await.expect("the process answers");
    (answer.status().as_u16(), answer.text().await.expect("the answer is whole"))
}

/// The number of receive requests of a worker so far.
async fn receives(worker: &Service) -> u64 {
    let (_, text) = send(reqwest::Client::new().get(format!("{}/metrics", worker.address()))).await;
    let receives = text.lines().filter(|line| {
        line.starts_with("postonce_storage_operations_total") && line.contains(r#"operation="receive""#)
    });
    receives.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// Waits until a worker has found its queues empty so often that its next poll is far away.
async fn until_backed_off(worker: &Service) {
    let (mut last, mut since) = (receives(worker).await, Instant::now());
    wait::until("the worker has backed off", wait::TIMEOUT, async || {
        let now = receives(worker).await;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() >= QUIET { Ok(()) } else { Err(format!("{now} polls")) }
    })
    .await;
}

/// A deposit that waits for its outcome must be answered before any poll.
async fn assert_answered_by_ring(client: &Client, account: AccountKey) {
    let started = Instant::now();
    let request =
        client.submission(account, fresh_id(), &Submission::deposit("1.00")).header("Prefer", "wait=20");
    let answer = client.send(request).await.expect(200);
    let took = started.elapsed();
    assert_eq!(answer.transaction_status(), "posted", "{answer:?}");
    assert!(took < RUNG_TIME_MAX, "it took {took:?}");
}

async fn open_account(bank: &Scenario) -> (Client, AccountKey) {
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    (client, account)
}

async fn a_waiting_request_is_answered_long_before_the_next_poll(store_kind: StoreKind) {
    let bank = slow_polling(store_kind).processes(1, 1).start().await;
    let (client, account) = open_account(&bank).await;
    for _ in 0..2 {
        until_backed_off(&bank.workers[0]).await;
        assert_answered_by_ring(&client, account).await;
    }
    assert_eq!(client.balance(account).await, "2.00");
}

async fn a_killed_or_suspended_worker_delays_no_request(store_kind: StoreKind) {
    let mut bank = slow_polling(store_kind).processes(1, 2).start().await;
    let (client, account) = open_account(&bank).await;
    until_backed_off(&bank.workers[0]).await;
    assert_answered_by_ring(&client, account).await;
    // The killed worker does not answer any more; the roster contains it for some time.
    bank.workers[0].kill();
    until_backed_off(&bank.workers[1]).await;
    assert_answered_by_ring(&client, account).await;
    // The web process does not know the new worker yet; the suspended one accepts connections and does not
    // answer.
    bank.start_worker();
    until_backed_off(&bank.workers[2]).await;
    bank.workers[1].suspend();
    assert_answered_by_ring(&client, account).await;
    assert_eq!(client.balance(account).await, "3.00");
}

async fn the_queue_view_sums_over_all_workers(store_kind: StoreKind) {
    let settings = |plan: Plan| plan.with("POSTONCE_RECEIVERS_MIN", "1").with("POSTONCE_RECEIVERS_MAX", "3");
    let mut bank = settings(slow_polling(store_kind)).processes(1, 2).start().await;
    // Work and chunks of batches have as many queues as are configured; initiator and controller have one each.
    let queues = u64::from(bank.queue_count()).saturating_mul(2).saturating_add(2);
    let of_a_process = queues.saturating_mul(3);
    let listeners = async |bank: &Scenario, processes: u64| {
        wait::until("all workers are counted", wait::TIMEOUT, async || {
            match bank.client(0).over_queues("listeners_max").await {
                max if max == of_a_process.saturating_mul(processes) => Ok(()),
                max => Err(format!("{max} listeners")),
            }
        })
        .await;
    };
    listeners(&bank, 2).await;
    bank.workers[0].drain().await;
    listeners(&bank, 1).await;
    // A process that does not answer is missing, and all others are present.
    bank.workers[1].kill();
    listeners(&bank, 0).await;
}

async fn a_process_accepts_only_signed_requests(store_kind: StoreKind) {
    let secret = "a-secret-for-all-processes-of-the-test";
    let bank = slow_polling(store_kind).with("POSTONCE_RING_SECRET", secret).processes(1, 1).start().await;
    let (client, account) = open_account(&bank).await;
    assert_answered_by_ring(&client, account).await;
    let http = reqwest::Client::new();
    for process in [&bank.webs[0], &bank.workers[0]] {
        for signature in ["", "00", &"0".repeat(64)] {
            let request = http
                .post(format!("{}/internal/ring", process.internal_address()))
                .header("x-postonce-timestamp", "1795248000000")
                .header("x-postonce-signature", signature)
                .body(r#"{"queues":["work-0"]}"#);
            assert_eq!(send(request).await.0, 401, "{}", process.address());
        }
        let unsigned = http.get(format!("{}/internal/status", process.internal_address()));
        assert_eq!(send(unsigned).await.0, 401);
    }
    // The port of the API does not serve these routes.
    for path in ["ring", "completions", "gate", "partners", "status"] {
        let request =
            http.post(format!("{}/internal/{path}", bank.webs[0].address())).bearer_auth(bank.key());
        assert_eq!(send(request).await.0, 404, "{path}");
    }
    let worker = bank.workers[0].address();
    wait::until("the worker is ready", wait::TIMEOUT, async || {
        let (status, text) = send(http.get(format!("{worker}/readyz"))).await;
        if status == 200 { Ok(()) } else { Err(text) }
    })
    .await;
    assert_eq!(send(http.get(format!("{worker}/livez"))).await.0, 200);
}

async fn processes_can_reach_each_other_at_the_port_of_the_api(store_kind: StoreKind) {
    let bank =
        slow_polling(store_kind).with("POSTONCE_INTERNAL_ON_BIND", "true").processes(1, 1).start().await;
    let web = &bank.webs[0];
    assert_eq!(web.internal_address(), web.address(), "there is no second port");
    let unsigned = reqwest::Client::new().get(format!("{}/internal/status", web.address()));
    assert_eq!(send(unsigned).await.0, 401);
    let (client, account) = open_account(&bank).await;
    until_backed_off(&bank.workers[0]).await;
    assert_answered_by_ring(&client, account).await;
}
