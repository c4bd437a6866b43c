//! One payment, followed from the request of its client to the journal, through the logs of all processes.

use std::time::Duration;

use postonce_tests::prelude::*;
use postonce_tests::process::Log;
use serde_json::Value;

on_both_stores![
    a_payment_is_followed_by_the_id_of_its_request,
    a_payment_is_found_by_the_number_that_people_quote,
];

const REQUEST: &str = "checkout-17";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Returns the lines of a log about the request, as JSON.
fn lines_about(log: &Log, request: &str) -> Vec<Value> {
    let lines = log.lines().into_iter().filter(|line| line.contains(request));
    lines.map(|line| serde_json::from_str(&line).expect("lines are JSON")).collect()
}

async fn a_payment_is_followed_by_the_id_of_its_request(store_kind: StoreKind) {
    let plan = Plan::on(store_kind).processes(2, 1).through_the_queue().with("POSTONCE_LOG_FORMAT", "json");
    let bank = plan.start().await;
    bank.until_workers_ready().await;
    let (client, account, id) = (bank.client(0), fresh_account(), fresh_id());
    client.open(account).await;
    let request = client
        .submission(account, id, &Submission::deposit("1.00").with("reference", "secret purpose"))
        .header("prefer", "wait=20")
        .header("x-request-id", REQUEST)
        .header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let answer = client.send(request).await.expect(200);
    assert_eq!(answer.header("x-request-id"), REQUEST);
    assert!(answer.header("traceresponse").starts_with(&format!("00-{TRACE}-")));
    let number = answer.text_at("/order_number").to_owned();

    let of_web = wait::until("the web logs the request", wait::TIMEOUT, async || {
        let lines = lines_about(bank.webs[0].log(), REQUEST);
        lines.into_iter().find(|line| line["order_number"].is_string()).ok_or_else(|| "no line".to_owned())
    })
    .await;
    let of_worker = wait::until("the worker logs the decision", wait::TIMEOUT, async || {
        lines_about(bank.workers[0].log(), REQUEST).into_iter().next().ok_or_else(|| "no line".to_owned())
    })
    .await;
    let span = &of_web["span"];
    assert_eq!((span["request_id"].as_str(), span["trace_id"].as_str()), (Some(REQUEST), Some(TRACE)));
    assert_eq!(
        (of_worker["request_id"].as_str(), of_worker["trace_id"].as_str()),
        (Some(REQUEST), Some(TRACE))
    );
    for line in [&of_web, &of_worker] {
        assert_eq!(line["message_id"].as_str(), Some(&*id.to_string()), "{line}");
        assert_eq!(line["order_number"].as_str(), Some(&*number), "{line}");
    }
    // Another process answers who asks for it later.
    let asked = bank.client(1).transaction(account, id).await;
    let answered = wait::until("the other web logs the read", wait::TIMEOUT, async || {
        let lines = lines_about(bank.webs[1].log(), asked.header("x-request-id"));
        lines.into_iter().find(|line| line["order_number"].is_string()).ok_or_else(|| "no line".to_owned())
    })
    .await;
    assert_eq!(answered["message_id"], of_web["message_id"]);
    for log in [bank.webs[0].log(), bank.webs[1].log(), bank.workers[0].log()] {
        assert!(
            log.lines().iter().all(|line| !line.contains("secret purpose")),
            "a reference is personal data"
        );
    }
}

async fn a_payment_is_found_by_the_number_that_people_quote(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 1).through_the_queue().start().await;
    bank.until_workers_ready().await;
    let (client, account, id) = (bank.client(0), fresh_account(), fresh_id());
    client.open(account).await;
    let posted = client.post(account, id, &Submission::deposit("1.00")).await;
    let path = format!("/v1/admin/transactions?order_number={}", posted.text_at("/order_number"));
    // On Azure, numbers are recorded behind the postings.
    let found = wait::until("the number is recorded", Duration::from_secs(60), async || {
        let answer = client.get(&path).await.expect(200);
        let found = answer.body["transactions"].as_array().and_then(|found| found.first().cloned());
        found.ok_or_else(|| format!("{answer:?}"))
    })
    .await;
    assert_eq!(found["transaction"]["message_id"].as_str(), Some(&*id.to_string()));
    assert!(path_of(account).ends_with(found["transaction"]["account_id"].as_str().expect("an id")));
    assert_eq!(found["way"], "queued");
    assert_eq!(found["request_id"].as_str().map(str::len), Some(32));
    let events = found["events"].as_array().expect("events");
    let names: Vec<_> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["accepted", "sent", "received", "posted"]);
    let times: Vec<_> = events.iter().filter_map(|event| event["at"].as_str()).collect();
    let name = path_of(account).replace("/v1/users/", "").replace("/accounts/", "/");
    let of_command = bank.operate(&["transactions", "--order-number", posted.text_at("/order_number")]);
    for part in [&name, "way: queued", "received", found["request_id"].as_str().expect("an id")] {
        assert!(of_command.contains(part), "{part} is missing in\n{of_command}");
    }
    assert!(bank.operate(&["accounts", "show", &name]).contains("1.00"));
    assert!(bank.operate(&["accounts", "statement", &name]).contains(posted.text_at("/order_number")));
    let user = name.split('/').next().expect("a user");
    assert!(bank.operate(&["accounts", "list", user]).contains(&name));
    // The queue of Azure tells its time in whole seconds.
    let in_order = times[0] <= times[2] && times[2] <= times[3];
    assert!(in_order, "{times:?}");
}
