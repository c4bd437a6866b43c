//! The procedures of the README for Compose while clients deposit: each process is replaced as by an upgrade, and one of each
//! kind is killed.
//!
//! The new processes are of the same version here; `tests/upgrade` does the same with two versions.

use std::cell::{Cell, RefCell};

use futures::future::{join, join_all};
use postonce_shared::domain::ids::AccountKey;
use postonce_tests::binaries::Binary;
use postonce_tests::client::{Client, Submission};
use postonce_tests::process_probe::ProcessProbe;
use postonce_tests::scenario::{fresh_account, fresh_id};
use postonce_tests::service::{Service, Settings};
use postonce_tests::wait;
use reqwest::Method;

use super::compose_run::{Machine, SECRET};

const CONNECTIONS: usize = 4;
/// Deposits that are accepted between two steps, by both versions beside each other.
const DEPOSITS_BETWEEN: u32 = 100;

/// Clients that deposit through the web processes that say that they are ready, as a load balancer chooses them.
struct Load {
    clients: Vec<Client>,
    account: AccountKey,
    accepted: Cell<u32>,
    /// Requests without an answer, or with one that refuses them.
    failed: RefCell<Vec<String>>,
    is_over: Cell<bool>,
}

impl Load {
    async fn begin(webs: &[(Service, Settings)]) -> Self {
        let clients: Vec<Client> = webs.iter().map(|(web, _)| Client::new(web.address(), SECRET)).collect();
        for client in &clients {
            client.until_ready().await;
        }
        let account = fresh_account();
        clients.first().expect("there is a web process").open(account).await;
        let (accepted, failed, is_over) = (Cell::new(0), RefCell::default(), Cell::new(false));
        Self { clients, account, accepted, failed, is_over }
    }

    async fn run(&self) {
        join_all((0..CONNECTIONS).map(|connection| self.deposit(connection))).await;
    }

    /// Deposits until the load is over. A failed request is repeated with its id, so that no deposit is left with an unknown outcome.
    async fn deposit(&self, connection: usize) {
        let mut turn = connection;
        while !self.is_over.get() {
            let (id, sent) = (fresh_id(), Submission::deposit("1.01"));
            wait::until("a deposit is accepted", wait::TIMEOUT, async || {
                turn = turn.wrapping_add(1);
                let client = self.clients.iter().cycle().nth(turn.rem_euclid(CONNECTIONS)).expect("a client");
                if !is_ready(client).await {
                    return Err("the process is not ready".to_owned());
                }
                let request = client.submission(self.account, id, &sent).header("connection", "close");
                let failure = match client.try_send(request).await {
                    Ok(answer) if [200, 202].contains(&answer.status) => return Ok(()),
                    Ok(answer) => format!("{answer:?}"),
                    Err(error) => format!("{error:?}"),
                };
                self.failed.borrow_mut().push(failure.clone());
                Err(failure)
            })
            .await;
            self.accepted.set(self.accepted.get().saturating_add(1));
        }
    }

    async fn until_more_is_accepted(&self) {
        let before = self.accepted.get();
        wait::until("the load goes on", wait::TIMEOUT, async || {
            let more = self.accepted.get().saturating_sub(before);
            if more >= DEPOSITS_BETWEEN {
                Ok(())
            } else {
                Err(format!("{more} more: {:?}", self.failed.borrow()))
            }
        })
        .await;
    }
}

async fn is_ready(client: &Client) -> bool {
    let request = client.request(Method::GET, "/readyz").header("connection", "close");
    client.try_send(request).await.is_ok_and(|answer| answer.status == 200)
}

/// Starts a process again in the place of one that has ended.
async fn replace(machine: &Machine, binary: Binary, place: &mut (Service, Settings)) {
    let (service, settings) = place;
    *service = machine.start_one(binary, settings);
    ProcessProbe::of(service.address()).until_ready().await;
}

#[tokio::test]
async fn processes_are_replaced_without_a_failed_request_and_killed_without_a_loss() {
    let machine = Machine::prepare(101);
    let _azurite = machine.start_azurite();
    let (mut webs, mut workers) = (machine.start(Binary::Web), machine.start(Binary::Worker));
    let load = Load::begin(&webs).await;
    let steps = async {
        load.until_more_is_accepted().await;
        // In the order of an upgrade: workers first.
        for (binary, places) in [(Binary::Worker, &mut workers), (Binary::Web, &mut webs)] {
            for place in places.iter_mut() {
                place.0.drain().await;
                replace(&machine, binary, place).await;
                load.until_more_is_accepted().await;
            }
        }
        assert!(load.failed.borrow().is_empty(), "during the upgrade: {:?}", load.failed.borrow());

        for (binary, places) in [(Binary::Worker, &mut workers), (Binary::Web, &mut webs)] {
            let place = places.first_mut().expect("two of each kind");
            place.0.kill();
            load.until_more_is_accepted().await;
            replace(&machine, binary, place).await;
        }
        load.is_over.set(true);
    };
    join(load.run(), steps).await;

    let client = load.clients.first().expect("a client");
    let cents = load.accepted.get().saturating_mul(101);
    let expected = format!("{}.{:02}", cents.div_euclid(100), cents.rem_euclid(100));
    wait::until("each accepted deposit is posted once", wait::TIMEOUT, async || {
        let balance = client.balance(load.account).await;
        if balance == expected { Ok(()) } else { Err(format!("{balance} instead of {expected}")) }
    })
    .await;
    let (_, settings) = webs.first().expect("web");
    let verified = machine.run(Binary::Web, settings, &["verify"]).join("\n");
    assert!(verified.contains("findings: 0"), "{verified}");
}
