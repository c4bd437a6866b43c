//! An arm: one side of a comparison, with the processes that serve the requests and their counts.

use std::any::Any;
use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::process_probe::{self, ProcessProbe};
use postonce_tests::scenario::fresh_account;
use postonce_tests::wait;
use serde_json::Value;

use crate::load::{self, Target, Traffic, Until};

/// Longest time from the last acceptance to the last posting.
const POSTING_TIME_MAX: Duration = Duration::from_secs(600);
/// Connections that open accounts.
const OPENING_CONNECTIONS: usize = 32;

/// Source of the counts of a process.
#[derive(Debug)]
pub enum Counts {
    /// The metrics of a process of the bank.
    Metrics(ProcessProbe),
    /// The address of a JSON object, for a process of a peer.
    Peer(String),
}

/// A running arm. Its processes end when it is dropped.
pub struct Arm {
    /// Where its API listens.
    pub target: Target,
    /// The sources of the counts of its processes.
    pub counts: Vec<Counts>,
    /// The processes of the arm: the kind and the id of each.
    pub processes: Vec<(&'static str, u32)>,
    /// Resources that live as long as the arm, in the order in which they are dropped.
    #[expect(dead_code, reason = "held only to be dropped with the arm")]
    pub holds: Vec<Box<dyn Any>>,
}

impl Arm {
    /// Opens that many accounts.
    pub async fn open(&self, count: usize) -> Vec<AccountKey> {
        let accounts: Vec<AccountKey> = (0..count).map(|_| fresh_account()).collect();
        let openings = Traffic::openings(&self.target, &accounts);
        let connections = OPENING_CONNECTIONS.min(count);
        let requests = u64::try_from(count).unwrap_or(u64::MAX);
        drop(load::closed(openings, connections, Until::Sent(requests)).await.all(&[200, 201]));
        accounts
    }

    /// The number of transactions that it has posted.
    pub async fn posted(&self) -> u64 {
        let mut posted = 0_u64;
        for counts in &self.counts {
            let here = match counts {
                Counts::Metrics(probe) => probe.count("worker_settled").await,
                Counts::Peer(address) => peer_count(address, "posted").await,
            };
            posted = posted.saturating_add(here);
        }
        posted
    }

    /// The number of its requests to the store.
    pub async fn storage_operations(&self) -> u64 {
        let mut operations = 0_u64;
        for counts in &self.counts {
            let here = match counts {
                Counts::Metrics(probe) => probe.storage_operations().await.values().sum(),
                Counts::Peer(address) => peer_count(address, "storage_operations").await,
            };
            operations = operations.saturating_add(here);
        }
        operations
    }

    /// The processor time that its processes have used, without the emulator of the storage service.
    pub fn processor_time(&self) -> Duration {
        let pids: Vec<u32> = self.processes.iter().map(|(_, pid)| *pid).collect();
        process_probe::processor_time(&pids)
    }

    /// Waits until it has posted that many transactions.
    pub async fn until_posted(&self, count: u64) {
        wait::until("all transactions are posted", POSTING_TIME_MAX, async || match self.posted().await {
            posted if posted >= count => Ok(()),
            posted => Err(format!("{posted} of {count}")),
        })
        .await;
    }
}

async fn peer_count(address: &str, name: &str) -> u64 {
    let answer = reqwest::get(format!("{address}/bench/counts")).await.expect("the peer answers");
    let counts: Value = answer.json().await.expect("the peer returns its counts");
    counts.get(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {name} in {counts}"))
}
