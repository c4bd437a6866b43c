//! A worker is killed under continuous load: the other worker takes over its queues and messages in time.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures::future::{join, join_all};
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use serde_json::Value;

/// How long the messages of a killed worker remain hidden.
const VISIBILITY_TIMEOUT_S: u32 = 4;
/// Longest additional wait.
const TAKEOVER_TIME_MAX: Duration = Duration::from_secs(2);
/// A margin for a machine that runs other tests.
const MARGIN: Duration = Duration::from_secs(3);
/// Number of partners, each with one account.
const PARTNERS: usize = 8;
/// Pause of a partner between two submissions, so that one worker can post them all.
const PACE: Duration = Duration::from_millis(100);
/// The name of the value with the leases on queues.
const LEASES: &str = "leases-work";

on_both_stores![work_of_a_killed_worker_is_taken_over_soon_after_its_visibility_timeout];

async fn work_of_a_killed_worker_is_taken_over_soon_after_its_visibility_timeout(store_kind: StoreKind) {
    // Several queues on either store, so that both workers have some.
    let plan = Plan::on(store_kind).processes(1, 2).with("POSTONCE_QUEUE_COUNT", "4");
    let mut bank = plan.receipts(VISIBILITY_TIMEOUT_S, 5).start().await;
    let client = bank.client(0);
    bank.until_workers_ready().await;
    let auditor = RefCell::new(Auditor::default());
    let accounts: Vec<AccountKey> = (0..PARTNERS).map(|_| fresh_account()).collect();
    for account in &accounts {
        client.open(*account).await;
        auditor.borrow_mut().account(*account, "0.00");
    }
    let over = Cell::new(false);
    let partners = accounts.iter().map(|account| submit_continuously(&client, *account, &auditor, &over));
    let kill = async {
        until_leased(&bank, 2).await;
        bank.workers.remove(0).kill();
        let killed_at = SystemWorld::new().now();
        until_leased(&bank, 1).await;
        // The load continues for the longest allowed wait.
        wait::pass(longest_allowed()).await;
        over.set(true);
        killed_at
    };
    let (_, killed_at) = join(join_all(partners), kill).await;
    client.until_drained(wait::TIMEOUT).await;
    let longest = longest_wait(&client, &accounts, killed_at).await;
    println!("{store_kind:?}: after the kill the longest wait was {longest:?}");
    let allowed = longest_allowed().saturating_add(MARGIN);
    assert!(longest <= allowed, "the longest wait was {longest:?}, and {allowed:?} is allowed");
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
    auditor.into_inner().audit(&client, &bank.store().await).await;
}

fn longest_allowed() -> Duration {
    Duration::from_secs(VISIBILITY_TIMEOUT_S.into()).saturating_add(TAKEOVER_TIME_MAX)
}

async fn submit_continuously(
    client: &Client,
    account: AccountKey,
    auditor: &RefCell<Auditor>,
    over: &Cell<bool>,
) {
    while !over.get() {
        let (id, submission) = (fresh_id(), Submission::deposit("1.00"));
        auditor.borrow_mut().sent(account, id, &submission);
        let answer = client.submit_until_accepted(account, id, &submission).await;
        auditor.borrow_mut().answered(account, id, &answer);
        wait::pass(PACE).await;
    }
}

/// Waits until that many workers have an unexpired lease.
async fn until_leased(bank: &Scenario, workers: usize) {
    let sync = bank.store().await.sync;
    wait::until("the workers share the queues out", wait::TIMEOUT, async || {
        let stored = sync.get(LEASES).await.map_err(|fault| fault.to_string())?;
        let text = stored.map(|stored| stored.value).unwrap_or_default();
        let row: Value = serde_json::from_str(&text).unwrap_or_default();
        let now = SystemWorld::new().now().unix_ms();
        let leases = row.pointer("/leases").and_then(Value::as_object).cloned().unwrap_or_default();
        let live = leases.values().filter(|until| until.as_i64().is_some_and(|until| until > now)).count();
        if live == workers { Ok(()) } else { Err(text) }
    })
    .await;
}

/// The longest time after the given moment that an accepted transaction waited until it was posted.
async fn longest_wait(client: &Client, accounts: &[AccountKey], from: Timestamp) -> Duration {
    let mut longest = Duration::ZERO;
    for account in accounts {
        for line in client.listing(*account, None, 250).await {
            let time = |member: &str| {
                let text = line.get(member).and_then(Value::as_str).expect("a posted line has its times");
                Timestamp::parse(text).expect("the API writes times that can be read")
            };
            let (accepted_at, posted_at) = (time("accepted_at"), time("posted_at"));
            longest = longest.max(posted_at.since(accepted_at.max(from)));
        }
    }
    longest
}
