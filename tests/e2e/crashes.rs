//! Processes that are killed: at an exact point of posting, and anywhere.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures::future::{join, join_all};
use postonce_shared::domain::ids::AccountKey;
use postonce_tests::auditor::Auditor;
use postonce_tests::client::{Client, Wish};
use postonce_tests::faults::Point;
use postonce_tests::scenario::{Plan, Scenario, Stand, fresh_account, fresh_id};
use postonce_tests::wait;

/// Transactions that a killed worker has in hand.
const TRANSACTIONS: usize = 12;
/// Longest time for work to come back and become final.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(90);

on_both_stands![
    a_worker_killed_between_receive_and_commit_posts_once,
    a_worker_killed_right_before_the_commit_posts_once,
    a_worker_killed_between_commit_and_delete_posts_once,
    workers_killed_again_and_again_lose_nothing,
    a_web_killed_under_load_keeps_what_it_promised,
];

async fn a_worker_killed_between_receive_and_commit_posts_once(stand: Stand) {
    killed_at(stand, Point::AfterReceive).await;
}

async fn a_worker_killed_right_before_the_commit_posts_once(stand: Stand) {
    killed_at(stand, Point::BeforeCommit).await;
}

async fn a_worker_killed_between_commit_and_delete_posts_once(stand: Stand) {
    killed_at(stand, Point::AfterCommit).await;
}

async fn killed_at(stand: Stand, point: Point) {
    let mut bank = Plan::on(stand).processes(1, 0).receipts(2, 5).start().await;
    let client = bank.client(0);
    let mut auditor = Auditor::default();
    let account = fresh_account();
    client.open(account).await;
    auditor.account(account, "0.00");
    for _ in 0..TRANSACTIONS {
        drop(auditor.submit(&client, account, fresh_id(), &Wish::deposit("1.00")).await.expect(202));
    }

    let died = bank.run_dying_worker(point);
    assert_eq!(died, Some(9), "the worker died by SIGKILL at {point:?}");
    // Nothing was deleted; what was committed before the kill is posted, and stays so.
    assert!(client.over_queues("depth").await > 0);
    let posted = client.listing(account, None, 100).await;
    match point {
        Point::AfterReceive | Point::BeforeCommit => assert!(posted.is_empty(), "{posted:?}"),
        Point::AfterCommit => assert!(!posted.is_empty()),
    }

    bank.start_worker();
    client.until_drained(RECOVERY_TIME_MAX).await;
    assert_eq!(client.balance(account).await, format!("{TRANSACTIONS}.00"));
    let after = client.listing(account, None, 100).await;
    assert!(after.starts_with(&posted), "a posted transaction never changes");
    check(&bank, &client, &auditor).await;
}

async fn workers_killed_again_and_again_lose_nothing(stand: Stand) {
    const KILLS: usize = 4;
    under_load(stand, async |bank, client, accounts| {
        for _ in 0..KILLS {
            let before = posted_count(client, accounts).await;
            wait::until("the workers post", wait::PATIENCE, async || {
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

async fn a_web_killed_under_load_keeps_what_it_promised(stand: Stand) {
    const REQUESTS: usize = 400;
    let mut bank = Plan::on(stand).processes(2, 1).start().await;
    let (doomed, other) = (bank.client(0), bank.client(1));
    let auditor = RefCell::new(Auditor::default());
    let account = fresh_account();
    other.open(account).await;
    auditor.borrow_mut().account(account, "0.00");
    let wish = Wish::deposit("1.00");
    let ids: Vec<_> = (0..REQUESTS).map(|_| fresh_id()).collect();
    ids.iter().for_each(|id| auditor.borrow_mut().sent(account, *id, &wish));

    let answered = Cell::new(0_usize);
    let requests = ids.iter().map(|id| async {
        if let Ok(answer) = doomed.try_send(doomed.submission(account, *id, &wish)).await {
            auditor.borrow_mut().heard(account, *id, &answer);
            answered.set(answered.get().saturating_add(1));
        }
    });
    let kill = async {
        wait::until("some are answered", wait::PATIENCE, async || match answered.get() {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        })
        .await;
        bank.webs.first_mut().expect("there is a web process").kill();
    };
    join(join_all(requests), kill).await;
    assert!(answered.get() > 0, "some were answered before the kill");

    // Nobody answered the others; the same ids at another process settle all of them.
    let retries = ids.iter().map(|id| async {
        let answer = other.submit(account, *id, &wish).await;
        assert!([200, 202].contains(&answer.status), "{answer:?}");
        auditor.borrow_mut().heard(account, *id, &answer);
    });
    join_all(retries).await;
    other.until_drained(RECOVERY_TIME_MAX).await;
    assert_eq!(other.balance(account).await, format!("{REQUESTS}.00"));
    check(&bank, &other, &auditor.into_inner()).await;
}

/// A worker that stands still for longer than its leases, like a machine that is suspended, and then
/// goes on with what it had in hand. On SQLite it could hold the lock of the file meanwhile.
#[tokio::test]
async fn a_worker_that_slept_past_its_leases_doubles_nothing() {
    const NAPS: usize = 4;
    under_load(Stand::Azurite, async |bank, _, _| {
        for nap in 0..NAPS {
            let worker = bank.workers.get_mut(nap % 2).expect("there are two workers");
            worker.suspend();
            wait::throughout("it sleeps", Duration::from_millis(1600), async || Ok(())).await;
            worker.resume();
            wait::throughout("it is awake", Duration::from_millis(300), async || Ok(())).await;
        }
    })
    .await;
}

/// Makes trouble for two workers while they have work, until the trouble ends; then nothing is lost,
/// and nothing is doubled.
async fn under_load(stand: Stand, trouble: impl AsyncFnOnce(&mut Scenario, &Client, &[AccountKey])) {
    let mut bank = Plan::on(stand).processes(1, 2).receipts(1, 1000).start().await;
    let client = bank.client(0);
    let auditor = RefCell::new(Auditor::default());
    let accounts: Vec<_> = (0..5).map(|_| fresh_account()).collect();
    for account in &accounts {
        client.open_with(*account, "EUR", "10.00").await;
        auditor.borrow_mut().account(*account, "10.00");
    }
    let troubled = Cell::new(true);
    let submitting = async {
        while troubled.get() {
            let submissions = accounts.iter().map(|account| submit_pair(&client, *account, &auditor));
            join_all(submissions).await;
        }
    };
    let troubling = async {
        trouble(&mut bank, &client, &accounts).await;
        troubled.set(false);
    };
    join(submitting, troubling).await;
    client.until_drained(RECOVERY_TIME_MAX).await;
    check(&bank, &client, &auditor.into_inner()).await;
}

async fn submit_pair(client: &Client, account: AccountKey, auditor: &RefCell<Auditor>) {
    for wish in [Wish::deposit("2.00"), Wish::withdrawal("1.50")] {
        let id = fresh_id();
        auditor.borrow_mut().sent(account, id, &wish);
        let answer = client.submit(account, id, &wish).await;
        auditor.borrow_mut().heard(account, id, &answer);
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
