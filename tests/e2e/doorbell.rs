//! The doorbell across processes: work is posted at once, and whoever waits is told at once, though
//! the next safety poll is far away.
#![expect(clippy::disallowed_methods, reason = "what is tested is how long it takes")]

use std::time::{Duration, Instant};

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::client::{Client, Wish};
use postonce_tests::scenario::{Plan, Scenario, Stand, fresh_account, fresh_id};
use postonce_tests::service::Service;
use postonce_tests::wait;

/// An answer that takes longer did not come by a ring. By a ring it takes milliseconds; the machine may
/// be busy with other tests.
const RUNG_TIME_MAX: Duration = Duration::from_millis(2500);
/// A worker that did not look into a queue for that long backs off, and looks again about as late.
const QUIET: Duration = Duration::from_secs(5);

on_both_stands![
    who_waits_is_answered_long_before_the_next_poll,
    a_worker_that_is_killed_or_stands_still_delays_nobody,
    the_view_of_the_queues_adds_up_all_workers,
    a_process_listens_only_to_signed_requests,
    processes_reach_each_other_also_at_the_port_of_the_api,
];

/// Processes whose safety poll comes once a minute.
fn patient(stand: Stand) -> Plan {
    Plan::on(stand).with("POSTONCE_IDLE_POLL_MAX_MS", "60000")
}

/// The status and the body of an answer of a process that must be there.
async fn ask(request: reqwest::RequestBuilder) -> (u16, String) {
    let answer = request.send().await.expect("the process answers");
    (answer.status().as_u16(), answer.text().await.expect("the answer is whole"))
}

/// How often a worker looked into a queue so far.
async fn receives(worker: &Service) -> u64 {
    let (_, text) = ask(reqwest::Client::new().get(format!("{}/metrics", worker.address()))).await;
    let receives = text.lines().filter(|line| {
        line.starts_with("postonce_storage_operations_total") && line.contains(r#"operation="receive""#)
    });
    receives.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// Waits until a worker has found its queues empty so often that its next look is far away.
async fn until_quiet(worker: &Service) {
    let (mut seen, mut since) = (receives(worker).await, Instant::now());
    wait::until("the worker is quiet", wait::PATIENCE, async || {
        let now = receives(worker).await;
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() >= QUIET { Ok(()) } else { Err(format!("{now} looks")) }
    })
    .await;
}

/// A deposit that waits for its outcome must have it before any poll.
async fn assert_rung(client: &Client, account: AccountKey) {
    let started = Instant::now();
    let request = client.submission(account, fresh_id(), &Wish::deposit("1.00")).header("Prefer", "wait=20");
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

async fn who_waits_is_answered_long_before_the_next_poll(stand: Stand) {
    let bank = patient(stand).processes(1, 1).start().await;
    let (client, account) = open_account(&bank).await;
    for _ in 0..2 {
        until_quiet(&bank.workers[0]).await;
        assert_rung(&client, account).await;
    }
    assert_eq!(client.balance(account).await, "2.00");
}

async fn a_worker_that_is_killed_or_stands_still_delays_nobody(stand: Stand) {
    let mut bank = patient(stand).processes(1, 2).start().await;
    let (client, account) = open_account(&bank).await;
    until_quiet(&bank.workers[0]).await;
    assert_rung(&client, account).await;
    // Its address answers no more; the roster names it for some time.
    bank.workers[0].kill();
    until_quiet(&bank.workers[1]).await;
    assert_rung(&client, account).await;
    // The web has never heard of this one; its neighbor takes rings, and does nothing with them.
    bank.start_worker();
    until_quiet(&bank.workers[2]).await;
    bank.workers[1].suspend();
    assert_rung(&client, account).await;
    assert_eq!(client.balance(account).await, "3.00");
}

async fn the_view_of_the_queues_adds_up_all_workers(stand: Stand) {
    let settings = |plan: Plan| plan.with("POSTONCE_RECEIVERS_MIN", "1").with("POSTONCE_RECEIVERS_MAX", "3");
    let mut bank = settings(patient(stand)).processes(1, 2).start().await;
    let of_a_process = u64::from(bank.queue_count()).saturating_mul(3);
    let listeners = async |bank: &Scenario, processes: u64| {
        wait::until("all workers are counted", wait::PATIENCE, async || {
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
    // One that cannot be asked is missing, and nothing else is.
    bank.workers[1].kill();
    listeners(&bank, 0).await;
}

async fn a_process_listens_only_to_signed_requests(stand: Stand) {
    let secret = "a-secret-for-all-processes-of-the-test";
    let bank = patient(stand).with("POSTONCE_RING_SECRET", secret).processes(1, 1).start().await;
    let (client, account) = open_account(&bank).await;
    assert_rung(&client, account).await;
    let http = reqwest::Client::new();
    for process in [&bank.webs[0], &bank.workers[0]] {
        for signature in ["", "00", &"0".repeat(64)] {
            let request = http
                .post(format!("{}/internal/ring", process.internal_address()))
                .header("x-postonce-timestamp", "1795248000000")
                .header("x-postonce-signature", signature)
                .body(r#"{"queues":["work-0"]}"#);
            assert_eq!(ask(request).await.0, 401, "{}", process.address());
        }
        let unsigned = http.get(format!("{}/internal/status", process.internal_address()));
        assert_eq!(ask(unsigned).await.0, 401);
    }
    // Partners do not find it.
    for path in ["ring", "completions", "gate", "partners", "status"] {
        let request =
            http.post(format!("{}/internal/{path}", bank.webs[0].address())).bearer_auth(bank.key());
        assert_eq!(ask(request).await.0, 404, "{path}");
    }
    let worker = bank.workers[0].address();
    wait::until("the worker is ready", wait::PATIENCE, async || {
        let (status, text) = ask(http.get(format!("{worker}/readyz"))).await;
        if status == 200 { Ok(()) } else { Err(text) }
    })
    .await;
    assert_eq!(ask(http.get(format!("{worker}/livez"))).await.0, 200);
}

async fn processes_reach_each_other_also_at_the_port_of_the_api(stand: Stand) {
    let bank = patient(stand).with("POSTONCE_INTERNAL_ON_BIND", "true").processes(1, 1).start().await;
    let web = &bank.webs[0];
    assert_eq!(web.internal_address(), web.address(), "there is no second port");
    let unsigned = reqwest::Client::new().get(format!("{}/internal/status", web.address()));
    assert_eq!(ask(unsigned).await.0, 401);
    let (client, account) = open_account(&bank).await;
    until_quiet(&bank.workers[0]).await;
    assert_rung(&client, account).await;
}
