//! Much concurrent traffic with duplicates over several processes, checked by the auditor.

use std::cell::RefCell;
use std::time::Duration;

use futures::future::join_all;
use postonce_shared::domain::ids::{AccountId, AccountKey, MessageId, UserId};
use postonce_tests::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use uuid::Uuid;

/// The variable with the seed of a run to repeat.
const SEED_VARIABLE: &str = "POSTONCE_TESTS_SEED";
/// Longest time for all work to become final after the last answer.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(120);

/// The amount of traffic.
struct Load {
    requests: usize,
    accounts: usize,
    connections: usize,
}

#[tokio::test]
async fn ten_thousand_requests_at_two_webs_and_two_workers_on_azurite_pass_the_audit() {
    let load = Load { requests: 10_000, accounts: 50, connections: 16 };
    run(Plan::on(StoreKind::Azurite).processes(2, 2).start().await, &load).await;
}

#[tokio::test]
async fn two_webs_and_two_workers_pass_the_audit_with_the_latency_of_azure() {
    let load = Load { requests: 2_000, accounts: 50, connections: 16 };
    run(Plan::on(StoreKind::Azurite).processes(2, 2).with_latency().start().await, &load).await;
}

#[tokio::test]
async fn two_webs_and_two_workers_share_one_sqlite_file() {
    let load = Load { requests: 3_000, accounts: 50, connections: 16 };
    run(Plan::on(StoreKind::Sqlite).processes(2, 2).start().await, &load).await;
}

#[tokio::test]
async fn one_process_on_sqlite_passes_the_audit() {
    let load = Load { requests: 3_000, accounts: 20, connections: 16 };
    run(Plan::on(StoreKind::Sqlite).start().await, &load).await;
}

/// One request of the load.
#[derive(Clone)]
struct LoadRequest {
    account: AccountKey,
    id: MessageId,
    submission: Submission,
    /// Whether the id is sent again with other content, which must be refused.
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

    let requests = random_requests(load, &accounts, clients.len(), &mut rng);
    let connections = (0..load.connections).map(|connection| {
        let clients: Vec<Client> = clients.iter().map(Client::on_own_connections).collect();
        let own: Vec<LoadRequest> =
            requests.iter().skip(connection).step_by(load.connections).cloned().collect();
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
    let totals = auditor.into_inner().audit(first, &bank.store().await).await;
    println!("{totals:?}");
    assert!(totals.posted > 0 && totals.rejected > 0, "both kinds of outcomes occur: {totals:?}");
}

async fn submit(clients: &[Client], request: &LoadRequest, auditor: &RefCell<Auditor>) {
    let LoadRequest { account, id, submission, reuse, web } = request;
    let client = clients.get(*web).expect("the web process exists");
    auditor.borrow_mut().sent(*account, *id, submission);
    let (answer, _) = client.submit_until_available(*account, *id, submission).await;
    assert!([200, 202].contains(&answer.status), "{answer:?}");
    auditor.borrow_mut().answered(*account, *id, &answer);
    if *reuse {
        let other = submission.clone().with("reference", "something else");
        let refused = client.submit(*account, *id, &other).await;
        assert!([422, 503].contains(&refused.status), "{refused:?}");
    }
}

/// Deposits and withdrawals in random order. About one in six repeats an earlier request, usually one
/// without an answer yet.
fn random_requests(load: &Load, accounts: &[AccountKey], webs: usize, rng: &mut StdRng) -> Vec<LoadRequest> {
    let mut requests: Vec<LoadRequest> = Vec::with_capacity(load.requests);
    while requests.len() < load.requests {
        let web = rng.random_range(0..webs);
        let recent = requests.len().saturating_sub(load.connections.saturating_mul(4));
        let repeated = match rng.random_range(0..100) {
            0..=11 if !requests.is_empty() => requests.get(rng.random_range(recent..requests.len())),
            12..=15 if !requests.is_empty() => requests.get(rng.random_range(0..requests.len())),
            _ => None,
        };
        let request = match repeated {
            Some(repeated) => LoadRequest { web, ..repeated.clone() },
            None => LoadRequest {
                account: accounts.get(rng.random_range(0..accounts.len())).copied().expect("an account"),
                id: MessageId::from_uuid(uuid(rng)),
                submission: submission(rng),
                reuse: rng.random_range(0..50) == 0,
                web,
            },
        };
        requests.push(request);
    }
    requests
}

fn submission(rng: &mut StdRng) -> Submission {
    let amount = format!("{}.{:02}", rng.random_range(0..100), rng.random_range(1..100));
    if rng.random_range(0..100) < 55 { Submission::deposit(&amount) } else { Submission::withdrawal(&amount) }
}

fn account(rng: &mut StdRng) -> AccountKey {
    AccountKey { user: UserId::from_uuid(uuid(rng)), account: AccountId::from_uuid(uuid(rng)) }
}

fn uuid(rng: &mut StdRng) -> Uuid {
    uuid::Builder::from_random_bytes(rng.random()).into_uuid()
}
