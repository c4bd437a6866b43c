//! Deposits through several web processes while a test disturbs them, as behind a load balancer.

use std::cell::{Cell, RefCell};

use futures::future::join_all;
use postonce_shared::domain::ids::{AccountKey, MessageId};
use reqwest::Method;

use crate::prelude::*;

const CONNECTIONS: usize = 4;
/// Number of deposits to accept between two steps of a test, over all processes.
const DEPOSITS_BETWEEN: usize = 100;
/// Amount of each deposit in cents.
const CENTS: usize = 101;
const AMOUNT: &str = "1.01";

/// Clients that deposit to one account through the ready web processes, as a load balancer would select them.
#[derive(Debug)]
pub struct Load {
    clients: Vec<Client>,
    account: AccountKey,
    accepted: RefCell<Vec<MessageId>>,
    /// Requests without a response, or with a refusal.
    failed: RefCell<Vec<String>>,
    is_over: Cell<bool>,
}

impl Load {
    /// Opens the account as soon as all web processes are ready.
    ///
    /// # Panics
    /// When they do not become ready.
    pub async fn begin(clients: Vec<Client>) -> Self {
        for client in &clients {
            client.until_ready().await;
        }
        let account = fresh_account();
        clients.first().expect("there is a web process").open(account).await;
        let (accepted, failed, is_over) = (RefCell::default(), RefCell::default(), Cell::new(false));
        Self { clients, account, accepted, failed, is_over }
    }

    /// Deposits until the load is over.
    pub async fn run(&self) {
        join_all((0..CONNECTIONS).map(|connection| self.deposit(connection))).await;
    }

    /// Ends the load. Requests in progress are finished.
    pub fn end(&self) {
        self.is_over.set(true);
    }

    /// Deposits in a loop. A failed request is repeated with its id, so that the outcome of every deposit is known.
    async fn deposit(&self, connection: usize) {
        let mut turn = connection;
        while !self.is_over.get() {
            let (id, sent) = (fresh_id(), Submission::deposit(AMOUNT));
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
            self.accepted.borrow_mut().push(id);
        }
    }

    /// Waits until more deposits are accepted.
    ///
    /// # Panics
    /// When too few are accepted in time.
    pub async fn until_more_is_accepted(&self) {
        let before = self.accepted.borrow().len();
        wait::until("the load goes on", wait::TIMEOUT, async || {
            let more = self.accepted.borrow().len().saturating_sub(before);
            if more >= DEPOSITS_BETWEEN {
                Ok(())
            } else {
                Err(format!("{more} more: {:?}", self.failed.borrow()))
            }
        })
        .await;
    }

    /// Checks that every request so far was accepted at its first attempt.
    ///
    /// # Panics
    /// When a request failed.
    pub fn none_failed(&self, while_what: &str) {
        assert!(self.failed.borrow().is_empty(), "{while_what}: {:?}", self.failed.borrow());
    }

    /// Waits until all accepted deposits are posted, and checks that each is posted exactly once, and nothing else.
    ///
    /// # Panics
    /// When a deposit is missing or posted twice.
    pub async fn until_each_is_posted_once(&self) {
        let client = self.clients.first().expect("a client");
        let mut accepted: Vec<String> = self.accepted.borrow().iter().map(ToString::to_string).collect();
        let cents = accepted.len().saturating_mul(CENTS);
        let expected = format!("{}.{:02}", cents.div_euclid(100), cents.rem_euclid(100));
        wait::until("the sum of the accepted deposits is posted", wait::TIMEOUT, async || {
            let balance = client.balance(self.account).await;
            if balance == expected { Ok(()) } else { Err(format!("{balance} instead of {expected}")) }
        })
        .await;
        let posted = client.listing(self.account, Some("posted"), 200).await;
        let id = |posted: &serde_json::Value| posted["message_id"].as_str().expect("an id").to_owned();
        let mut posted: Vec<String> = posted.iter().map(id).collect();
        accepted.sort();
        posted.sort();
        assert_eq!(posted, accepted);
    }
}

async fn is_ready(client: &Client) -> bool {
    let request = client.request(Method::GET, "/readyz").header("connection", "close");
    client.try_send(request).await.is_ok_and(|answer| answer.status == 200)
}
