//! A worker dies in the middle of lasting work: the other one takes over what it had, in time.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures::future::{join, join_all};
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::domain::ids::AccountKey;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::world::World as _;
use postonce_tests::auditor::Auditor;
use postonce_tests::client::{Client, Wish};
use postonce_tests::scenario::{Plan, Scenario, Stand, fresh_account, fresh_id};
use postonce_tests::wait;
use serde_json::Value;

/// How long a message is hidden that a dead worker had in hand.
const VISIBILITY_TIMEOUT_S: u32 = 4;
/// Longest wait beyond that.
const PASSING_ON_TIME_MAX: Duration = Duration::from_secs(2);
/// What a machine may add that runs other tests meanwhile.
const ALLOWANCE: Duration = Duration::from_secs(3);
/// Partners who submit, one account each.
const PARTNERS: usize = 8;
/// Pause of a partner between two submissions, so that one worker alone can keep up.
const PACE: Duration = Duration::from_millis(100);
/// The value that holds the leases on queues.
const LEASES: &str = "leases-work";

on_both_stands![work_of_a_killed_worker_waits_no_longer_than_its_visibility_timeout_and_a_little];

async fn work_of_a_killed_worker_waits_no_longer_than_its_visibility_timeout_and_a_little(stand: Stand) {
    // Several queues on either store, so that there is something to share out.
    let plan = Plan::on(stand).processes(1, 2).with("POSTONCE_QUEUE_COUNT", "4");
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
    let partners = accounts.iter().map(|account| submit_all_the_time(&client, *account, &auditor, &over));
    let accident = async {
        until_leased(&bank, 2).await;
        bank.workers.remove(0).kill();
        let killed_at = SystemWorld::new().now();
        until_leased(&bank, 1).await;
        // Traffic goes on for as long as anything may wait.
        wait::pass(longest_allowed()).await;
        over.set(true);
        killed_at
    };
    let (_, killed_at) = join(join_all(partners), accident).await;
    client.until_drained(wait::PATIENCE).await;
    let longest = longest_wait(&client, &accounts, killed_at).await;
    println!("{stand:?}: after the kill the longest wait was {longest:?}");
    let allowed = longest_allowed().saturating_add(ALLOWANCE);
    assert!(longest <= allowed, "something waited for {longest:?}; allowed are {allowed:?}");
    assert_eq!(client.dead_letters().await, Vec::<Value>::new());
    auditor.into_inner().audit(&client, &bank.store().await).await;
}

fn longest_allowed() -> Duration {
    Duration::from_secs(VISIBILITY_TIMEOUT_S.into()).saturating_add(PASSING_ON_TIME_MAX)
}

async fn submit_all_the_time(
    client: &Client,
    account: AccountKey,
    auditor: &RefCell<Auditor>,
    over: &Cell<bool>,
) {
    while !over.get() {
        let (id, wish) = (fresh_id(), Wish::deposit("1.00"));
        auditor.borrow_mut().sent(account, id, &wish);
        let answer = client.submit_until_accepted(account, id, &wish).await;
        auditor.borrow_mut().heard(account, id, &answer);
        wait::pass(PACE).await;
    }
}

/// Waits until that many workers have a lease that has not expired.
async fn until_leased(bank: &Scenario, workers: usize) {
    let sync = bank.store().await.sync;
    wait::until("the workers share the queues out", wait::PATIENCE, async || {
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

/// The longest wait after a moment: from then, or from its acceptance, until it was posted.
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
