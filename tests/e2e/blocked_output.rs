//! Nobody reads the output of a process: it works as before, drops lines of its log, counts them, and ends in its usual time.

use std::time::Duration;

use futures::future::join_all;
use postonce_shared::adapters::http::RING_PATH;
use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::Value;

/// Requests at the same time.
const AT_ONCE: usize = 64;
/// Requests until lines must have been dropped: each leads to a line of the audit trail, most of more than 300 bytes.
const REQUESTS_MAX: usize = 30_000;
/// Longest time of an answer. The answers of the whole test take less than that if none waits for the log.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
/// The dropped lines of the log.
const LOST: &str = "log_lines_lost";

async fn start(webs: usize, workers: usize) -> Scenario {
    Plan::on(StoreKind::Sqlite).processes(webs, workers).with("POSTONCE_LOG_FORMAT", "json").start().await
}

/// Sends requests that are refused until the process has dropped lines of its log. It answers each.
async fn fill(probe: &ProcessProbe, method: &Method, url: &str) {
    let http = reqwest::Client::builder().no_proxy().timeout(ANSWER_TIME_MAX).build().expect("a client");
    for _ in 0..REQUESTS_MAX / AT_ONCE {
        let requests = (0..AT_ONCE).map(|_| async {
            let answer = http.request(method.clone(), url).bearer_auth("po_wrong").send().await;
            let status = answer.expect("an answer, although nobody reads the log").status().as_u16();
            assert!([401, 429].contains(&status), "{status}");
        });
        join_all(requests).await;
        if probe.count(LOST).await > 0 {
            return;
        }
    }
    panic!("no line of {REQUESTS_MAX} was dropped: the buffer is not bounded");
}

/// How many lines were lost, as the log says.
fn told(service: &Service) -> u64 {
    let lines = service.log().lines();
    let reports = lines.iter().filter(|line| line.contains("log lines were lost"));
    let numbers = reports.map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        line["lines"].as_u64().expect("a number")
    });
    numbers.sum()
}

#[tokio::test]
async fn a_bank_whose_log_nobody_reads_answers_and_ends() {
    let mut bank = start(1, 0).await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let probe = ProcessProbe::with_key(bank.webs[0].address(), bank.key());
    bank.webs[0].process().pause_reading();
    fill(&probe, &Method::GET, &format!("{}/v1/admin/partners", bank.webs[0].address())).await;
    assert_eq!(client.get("/livez").await.status, 200);
    let answer = client.submit_and_wait(account, fresh_id(), &Submission::deposit("7.00")).await;
    assert_eq!(answer.transaction_status(), "posted");
    // Nobody reads what it says at its end, either.
    bank.webs[0].drain().await;
}

#[tokio::test]
async fn dropped_lines_are_counted_and_told_when_the_log_is_read_again() {
    let mut bank = start(1, 0).await;
    let client = bank.client(0);
    let probe = ProcessProbe::with_key(bank.webs[0].address(), bank.key());
    bank.webs[0].process().pause_reading();
    fill(&probe, &Method::GET, &format!("{}/v1/admin/partners", bank.webs[0].address())).await;
    bank.webs[0].process().resume_reading();
    wait::until("the number of lines is told", wait::TIMEOUT, async || {
        let (told, lost) = (told(&bank.webs[0]), probe.count(LOST).await);
        if told == lost { Ok(()) } else { Err(format!("{told} of {lost}")) }
    })
    .await;
    let lost = probe.count(LOST).await;
    drop(client.get("/v1/no-such-path").await.expect(404));
    bank.webs[0].drain().await;
    bank.webs[0].process().wait_for_output();
    let lines = bank.webs[0].log().lines();
    assert!(lines.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()), "a line is not whole");
    assert!(lines.iter().any(|line| line.contains("404")), "lines are written again");
    assert!(lines.last().is_some_and(|line| line.contains("Draining")), "{:?}", lines.last());
    assert_eq!(told(&bank.webs[0]), lost, "no further line was lost");
}

#[tokio::test]
async fn a_worker_whose_log_nobody_reads_posts_and_ends() {
    let mut bank = start(1, 1).await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let (probe, address) = (bank.probe(0), bank.workers[0].address().to_owned());
    bank.workers[0].process().pause_reading();
    // Without a signature.
    fill(&probe, &Method::POST, &format!("{address}{RING_PATH}")).await;
    probe.until_ready().await;
    client.post(account, fresh_id(), &Submission::deposit("7.00")).await;
    bank.workers[0].drain().await;
}
