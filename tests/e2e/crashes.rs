//! Processes that are killed, at an exact point of posting and at any time.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures::future::{join, join_all};
use postonce_shared::testing::prelude::*;
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
    workers_killed_again_and_again_lose_nothing,
    a_web_killed_under_load_keeps_what_it_acknowledged,
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

async fn workers_killed_again_and_again_lose_nothing(store_kind: StoreKind) {
    const KILLS: usize = 4;
    under_load(store_kind, async |bank, client, accounts| {
        for _ in 0..KILLS {
            let before = posted_count(client, accounts).await;
            wait::until("the workers post", wait::TIMEOUT, async || {
                let count = posted_count(client, accounts).await;
                if count > before.saturating_add(3) { Ok(()) } else { Err(format!("{count} are posted")) }
            })
            .await;
            bank.workers.remove(0).kill();
            bank.start_worker();
        }
    })
    .await;
}

async fn a_web_killed_under_load_keeps_what_it_acknowledged(store_kind: StoreKind) {
    const REQUESTS: usize = 400;
    let mut bank = Plan::on(store_kind).processes(2, 1).start().await;
    let (killed, other) = (bank.client(0), bank.client(1));
    let auditor = RefCell::new(Auditor::default());
    let account = fresh_account();
    other.open(account).await;
    auditor.borrow_mut().account(account, "0.00");
    let submission = Submission::deposit("1.00");
    let ids: Vec<_> = (0..REQUESTS).map(|_| fresh_id()).collect();
    ids.iter().for_each(|id| auditor.borrow_mut().sent(account, *id, &submission));

    let answered = Cell::new(0_usize);
    let requests = ids.iter().map(|id| async {
        if let Ok(answer) = killed.try_send(killed.submission(account, *id, &submission)).await {
            auditor.borrow_mut().answered(account, *id, &answer);
            answered.set(answered.get().saturating_add(1));
        }
    });
    let kill = async {
        wait::until("some are answered", wait::TIMEOUT, async || match answered.get() {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        })
        .await;
        bank.webs.first_mut().expect("there is a web process").kill();
    };
    join(join_all(requests), kill).await;
    assert!(answered.get() > 0, "some were answered before the kill");

    // The other requests have no answer; the same ids are submitted to another process.
    let retries = ids.iter().map(|id| async {
        let answer = other.submit(account, *id, &submission).await;
        assert!([200, 202].contains(&answer.status), "{answer:?}");
        auditor.borrow_mut().answered(account, *id, &answer);
    });
    join_all(retries).await;
    other.until_drained(RECOVERY_TIME_MAX).await;
    assert_eq!(other.balance(account).await, format!("{REQUESTS}.00"));
    check(&bank, &other, &auditor.into_inner()).await;
}

/// A worker that is suspended for longer than its leases, and then continues with its old leases. On SQLite
/// it could hold the lock of the file meanwhile.
#[tokio::test]
async fn a_worker_suspended_past_its_leases_posts_nothing_twice() {
    const SUSPENSIONS: usize = 4;
    under_load(StoreKind::Azurite, async |bank, _, _| {
        for round in 0..SUSPENSIONS {
            let worker = bank.workers.get_mut(round % 2).expect("there are two workers");
            worker.suspend();
            wait::throughout("the worker is suspended", Duration::from_millis(1600), async || Ok(())).await;
            worker.resume();
            wait::throughout("the worker runs", Duration::from_millis(300), async || Ok(())).await;
        }
    })
    .await;
}

/// Disturbs two workers under load; afterwards nothing is lost, and nothing is posted twice.
async fn under_load(store_kind: StoreKind, disturb: impl AsyncFnOnce(&mut Scenario, &Client, &[AccountKey])) {
    let mut bank = Plan::on(store_kind).processes(1, 2).receipts(1, 1000).start().await;
    let client = bank.client(0);
    let auditor = RefCell::new(Auditor::default());
    let accounts: Vec<_> = (0..5).map(|_| fresh_account()).collect();
    for account in &accounts {
        client.open_with(*account, "EUR", "10.00").await;
        auditor.borrow_mut().account(*account, "10.00");
    }
    let disturbed = Cell::new(true);
    let submitting = async {
        while disturbed.get() {
            let submissions = accounts.iter().map(|account| submit_pair(&client, *account, &auditor));
            join_all(submissions).await;
        }
    };
    let disturbing = async {
        disturb(&mut bank, &client, &accounts).await;
        disturbed.set(false);
    };
    join(submitting, disturbing).await;
    client.until_drained(RECOVERY_TIME_MAX).await;
    check(&bank, &client, &auditor.into_inner()).await;
}

async fn submit_pair(client: &Client, account: AccountKey, auditor: &RefCell<Auditor>) {
    for submission in [Submission::deposit("2.00"), Submission::withdrawal("1.50")] {
        let id = fresh_id();
        auditor.borrow_mut().sent(account, id, &submission);
        let answer = client.submit(account, id, &submission).await;
        auditor.borrow_mut().answered(account, id, &answer);
    }
}

async fn posted_count(client: &Client, accounts: &[AccountKey]) -> u64 {
    let versions = accounts.iter().map(|account| client.account(*account));
    let accounts = join_all(versions).await;
    accounts.iter().map(|account| account.number_at("/version")).sum()
}

async fn check(bank: &Scenario, client: &Client, auditor: &Auditor) {
    assert_eq!(client.dead_letters().await, Vec::<serde_json::Value>::new());
    auditor.audit(client, &bank.store().await).await;
}
