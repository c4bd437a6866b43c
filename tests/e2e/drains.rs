//! SIGTERM: a process accepts nothing new, finishes its work, exits with 0, and loses nothing.

use std::cell::{Cell, RefCell};

use futures::future::{join, join_all};
use postonce_tests::prelude::*;
use serde_json::json;

/// Number of requests around the drain.
const REQUESTS: usize = 300;

on_both_stores![
    idle_processes_drain_at_once,
    a_worker_that_drains_loses_nothing,
    a_web_that_drains_keeps_what_it_acknowledged,
    a_request_that_waits_is_answered_when_its_process_drains,
    a_process_accepts_requests_during_its_drain_delay,
];

async fn idle_processes_drain_at_once(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 1).start().await;
    bank.client(0).until_ready().await;
    for service in bank.workers.iter_mut().chain(&mut bank.webs) {
        service.drain().await;
    }
}

/// An operator may copy the file of a stopped store without any other file. The test stops several times,
/// because it is a race: the log of a store could remain when its threads were busy at the end.
#[tokio::test]
async fn a_process_stopped_under_load_leaves_one_file() {
    let mut bank = Plan::on(StoreKind::Sqlite).start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    for _ in 0..4 {
        let client = bank.client(0);
        client.until_ready().await;
        let answered = Cell::new(0_usize);
        let submitting = join_all((0..REQUESTS).map(|_| async {
            let request = client.submission(account, fresh_id(), &Submission::deposit("1.00"));
            // Requests that arrive too late are refused.
            let received = client.try_send(request).await.is_ok();
            answered.set(answered.get().saturating_add(usize::from(received)));
        }));
        let draining = async {
            until_one_is_counted(&answered).await;
            bank.webs.remove(0).drain().await;
        };
        join(submitting, draining).await;
        let log = bank.directory().join("postonce.db-wal");
        assert_eq!(std::fs::metadata(log).map_or(0, |log| log.len()), 0);
        bank.start_web();
    }
}

async fn a_worker_that_drains_loses_nothing(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 1).receipts(2, 5).start().await;
    let client = bank.client(0);
    let auditor = RefCell::new(Auditor::default());
    let account = fresh_account();
    client.open(account).await;
    auditor.borrow_mut().account(account, "0.00");
    let submitting = join_all((0..REQUESTS).map(|_| async {
        let (id, submission) = (fresh_id(), Submission::deposit("1.00"));
        auditor.borrow_mut().sent(account, id, &submission);
        let answer = client.submit(account, id, &submission).await.expect(202);
        auditor.borrow_mut().answered(account, id, &answer);
    }));
    let draining = async {
        wait::until("the worker is busy", wait::TIMEOUT, async || {
            if client.account(account).await.number_at("/version") > 1 { Ok(()) } else { Err(String::new()) }
        })
        .await;
        bank.workers.first_mut().expect("there is a worker process").drain().await;
    };
    join(submitting, draining).await;
    bank.start_worker();
    client.until_drained(wait::TIMEOUT).await;
    assert_eq!(client.balance(account).await, format!("{REQUESTS}.00"));
    auditor.into_inner().audit(&client, &bank.store().await).await;
}

async fn a_web_that_drains_keeps_what_it_acknowledged(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 1).start().await;
    let client = bank.client(0);
    let auditor = RefCell::new(Auditor::default());
    let account = fresh_account();
    client.open(account).await;
    auditor.borrow_mut().account(account, "0.00");
    let answered = Cell::new(0_usize);
    let submitting = join_all((0..REQUESTS).map(|_| async {
        let (id, submission) = (fresh_id(), Submission::deposit("1.00"));
        auditor.borrow_mut().sent(account, id, &submission);
        // A connection that arrives too late is refused, and nothing was acknowledged then.
        if let Ok(answer) = client.try_send(client.submission(account, id, &submission)).await {
            assert!([202, 503].contains(&answer.status), "{answer:?}");
            auditor.borrow_mut().answered(account, id, &answer);
            answered.set(answered.get().saturating_add(usize::from(answer.status == 202)));
        }
    }));
    let draining = async {
        until_one_is_counted(&answered).await;
        bank.webs.remove(0).drain().await;
    };
    join(submitting, draining).await;
    assert!(answered.get() > 0, "some were answered before the drain");
    bank.start_web();
    let client = bank.client(0);
    client.until_drained(wait::TIMEOUT).await;
    auditor.into_inner().audit(&client, &bank.store().await).await;
}

async fn a_request_that_waits_is_answered_when_its_process_drains(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(2, 1).start().await;
    let (client, other) = (bank.client(0), bank.client(1));
    let (account, id) = (fresh_account(), fresh_id());
    client.open(account).await;
    drop(client.set_gate(&json!({ "state": "held" })).await.expect(200));
    let waiting = async {
        let request = client.submission(account, id, &Submission::deposit("1.00"));
        client.try_send(request.header("Prefer", "wait=30")).await
    };
    let draining = async {
        wait::until("the deposit is accepted", wait::TIMEOUT, async || {
            let found = other.transaction(account, id).await;
            if found.status == 200 { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
        bank.webs.remove(0).drain().await;
    };
    let (answer, ()) = join(waiting, draining).await;
    let answer = answer.expect("an answer, and not only the end of the connection").expect(202);
    assert_eq!(answer.transaction_status(), "accepted");
    drop(other.set_gate(&json!({ "state": "released" })).await.expect(200));
    assert_eq!(other.until_final(account, id).await.transaction_status(), "posted");
}

async fn a_process_accepts_requests_during_its_drain_delay(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 1).with("POSTONCE_DRAIN_DELAY_S", "6").start().await;
    let client = bank.client(0);
    client.until_ready().await;
    let account = fresh_account();
    client.open(account).await;
    let mut web = bank.webs.remove(0);
    let accepting = async {
        wait::until("it is not ready", wait::TIMEOUT, async || {
            let answer = client.ready().await;
            if answer.status == 503 { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
        assert_eq!(client.ready().await.text_at("/reasons/0/part"), "staying");
        let answer = client.submit(account, fresh_id(), &Submission::deposit("1.00")).await;
        assert!([200, 202].contains(&answer.status), "{answer:?}");
    };
    join(accepting, web.drain()).await;
    bank.start_web();
    let client = bank.client(0);
    client.until_drained(wait::TIMEOUT).await;
    assert_eq!(client.balance(account).await, "1.00");
}

async fn until_one_is_counted(count: &Cell<usize>) {
    wait::until("some are answered", wait::TIMEOUT, async || match count.get() {
        0 => Err("none".to_owned()),
        _ => Ok(()),
    })
    .await;
}
