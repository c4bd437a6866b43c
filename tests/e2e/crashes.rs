//! Processes that are killed, at an exact point of posting and at any time.

use std::time::Duration;

use postonce_tests::faults::CrashPoint;
use postonce_tests::prelude::*;

/// Number of transactions that a killed worker has received.
const TRANSACTIONS: usize = 12;
/// Longest time for lost work to be received again and become final.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(90);

on_both_stores![
    a_worker_killed_between_receive_and_commit_posts_once,
    a_worker_killed_right_before_the_commit_posts_once,
    a_worker_killed_between_commit_and_delete_posts_once,
];

async fn a_worker_killed_between_receive_and_commit_posts_once(store_kind: StoreKind) {
    killed_at(store_kind, CrashPoint::AfterReceive).await;
}

async fn a_worker_killed_right_before_the_commit_posts_once(store_kind: StoreKind) {
    killed_at(store_kind, CrashPoint::BeforeCommit).await;
}

async fn a_worker_killed_between_commit_and_delete_posts_once(store_kind: StoreKind) {
    killed_at(store_kind, CrashPoint::AfterCommit).await;
}

async fn killed_at(store_kind: StoreKind, point: CrashPoint) {
    let mut bank = Plan::on(store_kind).processes(1, 0).receipts(2, 5).start().await;
    let client = bank.client(0);
    let mut auditor = Auditor::default();
    let account = fresh_account();
    client.open(account).await;
    auditor.account(account, "0.00");
    for _ in 0..TRANSACTIONS {
        drop(auditor.submit(&client, account, fresh_id(), &Submission::deposit("1.00")).await.expect(202));
    }

    let signal = bank.run_crashing_worker(point);
    assert_eq!(signal, Some(9), "the worker was killed at {point:?}");
    // No message was deleted; what was committed before the kill is posted, and does not change.
    assert!(client.over_queues("depth").await > 0);
    let posted = client.listing(account, None, 100).await;
    match point {
        CrashPoint::AfterReceive | CrashPoint::BeforeCommit => assert!(posted.is_empty(), "{posted:?}"),
        CrashPoint::AfterCommit => assert!(!posted.is_empty()),
    }

    bank.start_worker();
    client.until_drained(RECOVERY_TIME_MAX).await;
    assert_eq!(client.balance(account).await, format!("{TRANSACTIONS}.00"));
    let after = client.listing(account, None, 100).await;
    assert!(after.starts_with(&posted), "a posted transaction never changes");
    check(&bank, &client, &auditor).await;
}

async fn check(bank: &Scenario, client: &Client, auditor: &Auditor) {
    assert_eq!(client.dead_letters().await, Vec::<serde_json::Value>::new());
    auditor.audit(client, &bank.store().await).await;
}
