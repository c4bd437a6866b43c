//! One side of a comparison: processes that serve the same requests, and what they count.

use std::any::Any;
use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::process_probe::{self, ProcessProbe};
use postonce_tests::scenario::fresh_account;
use postonce_tests::wait;
use serde_json::Value;

use crate::load::{self, Target, Traffic, Until};

/// Longest time for what was accepted to be posted.
const POSTING_TIME_MAX: Duration = Duration::from_secs(600);
/// Connections that open accounts.
const OPENING_CONNECTIONS: usize = 32;

/// Where a process of an arm tells its counts.
#[derive(Debug)]
pub enum Counts {
    /// Ours: the metrics.
    Metrics(ProcessProbe),
    /// A peer's: the address of a small JSON object.
    Peer(String),
}

/// A running arm. Its processes end with it.
pub struct Arm {
    /// Where its API is.
    pub target: Target,
    /// What its processes count.
    pub counts: Vec<Counts>,
    /// The processes that are the arm's own: what each is, and its id.
    pub processes: Vec<(&'static str, u32)>,
    /// What has to live as long, in the order in which it is dropped.
    #[expect(dead_code, reason = "it is held, and dropped at the end")]
    pub holds: Vec<Box<dyn Any>>,
}

impl Arm {
    /// Opens so many accounts.
    pub async fn open(&self, count: usize) -> Vec<AccountKey> {
        let accounts: Vec<AccountKey> = (0..count).map(|_| fresh_account()).collect();
        let openings = Traffic::openings(&self.target, &accounts);
        let connections = OPENING_CONNECTIONS.min(count);
        let requests = u64::try_from(count).unwrap_or(u64::MAX);
        drop(load::closed(openings, connections, Until::Sent(requests)).await.all(&[200, 201]));
        accounts
    }

    /// How many transactions it has posted.
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

    /// How much it asked of its store.
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

    /// The processor time that its processes used so far; the emulator of a storage service is none of them.
    pub fn processor_time(&self) -> Duration {
        let pids: Vec<u32> = self.processes.iter().map(|(_, pid)| *pid).collect();
        process_probe::processor_time(&pids)
    }

    /// Waits until it has posted so many.
    pub async fn until_posted(&self, count: u64) {
        wait::until("all of it is posted", POSTING_TIME_MAX, async || match self.posted().await {
            posted if posted >= count => Ok(()),
            posted => Err(format!("{posted} of {count}")),
        })
        .await;
    }
}

async fn peer_count(address: &str, name: &str) -> u64 {
    let answer = reqwest::get(format!("{address}/bench/counts")).await.expect("the peer answers");
    let counts: Value = answer.json().await.expect("the peer tells its counts");
    counts.get(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {name} in {counts}"))
}
