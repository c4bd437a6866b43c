//! Much traffic at once, with duplicates, over several processes; the auditor has the last word.

use std::cell::RefCell;
use std::time::Duration;

use futures::future::join_all;
use postonce_shared::domain::ids::{AccountId, AccountKey, MessageId, UserId};
use postonce_tests::auditor::Auditor;
use postonce_tests::client::{Client, Wish};
use postonce_tests::scenario::{Plan, Scenario, Stand};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use uuid::Uuid;

/// Repeats a run.
const SEED_VARIABLE: &str = "POSTONCE_TESTS_SEED";
/// Longest time for all work to become final after the last answer.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(120);

/// How much, and over how many.
struct Load {
    requests: usize,
    accounts: usize,
    connections: usize,
}

#[tokio::test]
async fn ten_thousand_requests_at_two_webs_and_two_workers_agree_with_the_auditor_on_azurite() {
    let load = Load { requests: 10_000, accounts: 50, connections: 16 };
    run(Plan::on(Stand::Azurite).processes(2, 2).start().await, &load).await;
}

#[tokio::test]
async fn two_webs_and_two_workers_share_one_sqlite_file() {
    let load = Load { requests: 3_000, accounts: 50, connections: 16 };
    run(Plan::on(Stand::Sqlite).processes(2, 2).start().await, &load).await;
}

#[tokio::test]
async fn one_process_on_sqlite_does_it_all() {
    let load = Load { requests: 3_000, accounts: 20, connections: 16 };
    run(Plan::on(Stand::Sqlite).start().await, &load).await;
}

/// One request of the load.
#[derive(Clone)]
struct Request {
    account: AccountKey,
    id: MessageId,
    wish: Wish,
    /// Afterwards the id is sent with other content, which has to be refused.
    reuse: bool,
    web: usize,
}

async fn run(bank: Scenario, load: &Load) {
    let seed = std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("seed {seed} (set {SEED_VARIABLE} to repeat it)");
    let mut rng = StdRng::seed_from_u64(seed);
    let clients: Vec<Client> = (0..bank.webs.len()).map(|web| bank.client(web)).collect();
    let first = clients.first().expect("there is a web process");

    let auditor = RefCell::new(Auditor::default());
    let accounts: Vec<AccountKey> = (0..load.accounts).map(|_| account(&mut rng)).collect();
    for account in &accounts {
        let overdraft = ["0.00", "50.00", "500.00"][rng.random_range(0..3)];
        first.open_with(*account, "EUR", overdraft).await;
        auditor.borrow_mut().account(*account, overdraft);
    }

    let requests = invent(load, &accounts, clients.len(), &mut rng);
    let connections = (0..load.connections).map(|connection| {
        let clients: Vec<Client> = clients.iter().map(Client::on_own_connections).collect();
        let own: Vec<Request> = requests.iter().skip(connection).step_by(load.connections).cloned().collect();
        let auditor = &auditor;
        async move {
            for request in own {
                submit(&clients, &request, auditor).await;
            }
        }
    });
    join_all(connections).await;

    first.until_drained(DRAIN_TIME_MAX).await;
    assert_eq!(first.dead_letters().await, Vec::<serde_json::Value>::new());
    let audited = auditor.into_inner().audit(first, &bank.store().await).await;
    println!("{audited:?}");
    assert!(audited.posted > 0 && audited.rejected > 0, "both kinds of answers occur: {audited:?}");
}

async fn submit(clients: &[Client], request: &Request, auditor: &RefCell<Auditor>) {
    let Request { account, id, wish, reuse, web } = request;
    let client = clients.get(*web).expect("there is such a web process");
    auditor.borrow_mut().sent(*account, *id, wish);
    let answer = client.submit_until_accepted(*account, *id, wish).await;
    auditor.borrow_mut().heard(*account, *id, &answer);
    if *reuse {
        let other = wish.clone().with("reference", "something else");
        let refused = client.submit(*account, *id, &other).await;
        assert!([422, 503].contains(&refused.status), "{refused:?}");
    }
}

/// Deposits and withdrawals in random order; about one in six repeats an earlier request, mostly
/// one that is still under way.
fn invent(load: &Load, accounts: &[AccountKey], webs: usize, rng: &mut StdRng) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::with_capacity(load.requests);
    while requests.len() < load.requests {
        let web = rng.random_range(0..webs);
        let recent = requests.len().saturating_sub(load.connections.saturating_mul(4));
        let repeated = match rng.random_range(0..100) {
            0..=11 if !requests.is_empty() => requests.get(rng.random_range(recent..requests.len())),
            12..=15 if !requests.is_empty() => requests.get(rng.random_range(0..requests.len())),
            _ => None,
        };
        let request = match repeated {
            Some(repeated) => Request { web, ..repeated.clone() },
            None => Request {
                account: accounts.get(rng.random_range(0..accounts.len())).copied().expect("an account"),
                id: MessageId::from_uuid(uuid(rng)),
                wish: wish(rng),
                reuse: rng.random_range(0..50) == 0,
                web,
            },
        };
        requests.push(request);
    }
    requests
}

fn wish(rng: &mut StdRng) -> Wish {
    let amount = format!("{}.{:02}", rng.random_range(0..100), rng.random_range(1..100));
    if rng.random_range(0..100) < 55 { Wish::deposit(&amount) } else { Wish::withdrawal(&amount) }
}

fn account(rng: &mut StdRng) -> AccountKey {
    AccountKey { user: UserId::from_uuid(uuid(rng)), account: AccountId::from_uuid(uuid(rng)) }
}

fn uuid(rng: &mut StdRng) -> Uuid {
    uuid::Builder::from_random_bytes(rng.random()).into_uuid()
}
