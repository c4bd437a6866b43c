//! Clients that deposit through several web processes while something is done to these, as behind a load balancer.

use std::cell::{Cell, RefCell};

use futures::future::join_all;
use postonce_shared::domain::ids::{AccountKey, MessageId};
use reqwest::Method;

use crate::prelude::*;

const CONNECTIONS: usize = 4;
/// Deposits that are accepted between two steps, through all processes beside each other.
const DEPOSITS_BETWEEN: usize = 100;
/// Each deposit in cents.
const CENTS: usize = 101;
const AMOUNT: &str = "1.01";

/// Clients that deposit to one account through the web processes that say that they are ready, as a load balancer chooses them.
#[derive(Debug)]
pub struct Load {
    clients: Vec<Client>,
    account: AccountKey,
    accepted: RefCell<Vec<MessageId>>,
    /// Requests without an answer, or with one that refuses them.
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

    /// Ends the load. Requests that were begun are finished.
    pub fn end(&self) {
        self.is_over.set(true);
    }

    /// A failed request is repeated with its id, so that no deposit is left with an unknown outcome.
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

    /// Waits until more deposits were accepted.
    ///
    /// # Panics
    /// When they are not.
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

    /// Checks that each request so far was accepted when it was sent for the first time.
    ///
    /// # Panics
    /// When one failed.
    pub fn none_failed(&self, while_what: &str) {
        assert!(self.failed.borrow().is_empty(), "{while_what}: {:?}", self.failed.borrow());
    }

    /// Waits until each accepted deposit is posted, and checks that each is posted once, and nothing else.
    ///
    /// # Panics
    /// When one is missing, or posted twice.
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
