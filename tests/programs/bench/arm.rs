//! An arm: one side of a comparison, with the processes that serve the requests and their counts.

use std::any::Any;
use std::path::PathBuf;
use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::prelude::*;
use postonce_tests::process_probe::{self, ProcessProbe, by_label};
use serde_json::Value;

use crate::bench::figures::{Counts, difference};
use crate::bench::load::{self, Target, Traffic, Until, Way};

/// Longest time from the last acceptance to the last posting.
const POSTING_TIME_MAX: Duration = Duration::from_secs(600);
/// Connections that open accounts.
const OPENING_CONNECTIONS: usize = 32;

/// Source of the counts of a process.
#[derive(Debug)]
pub enum Source {
    /// The metrics of a process of the bank.
    Metrics(ProcessProbe),
    /// The address of a JSON object, for a process of a peer.
    Peer(String),
}

/// Counts of the processes of an arm.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Requests to the store, by kind.
    pub storage_operations: Counts,
    /// Waiting requests that the web process posted itself, under [`IMMEDIATELY`], and those that it queued, by
    /// reason. Empty if the processes do not count them.
    pub routes: Counts,
}

/// The name of the count of requests that the web process posted itself.
pub const IMMEDIATELY: &str = "immediately";

/// A running arm. Its processes end when it is dropped.
pub struct Arm {
    /// Where its API listens.
    pub target: Target,
    /// How its clients learn that a deposit is posted.
    pub way: Way,
    /// The sources of the counts of its processes.
    pub counts: Vec<Source>,
    /// The processes of the arm: the kind and the id of each.
    pub processes: Vec<(&'static str, u32)>,
    /// The directory of the files of its store, if it is known.
    pub files: Option<PathBuf>,
    /// Resources that live as long as the arm, in the order in which they are dropped.
    #[expect(dead_code, reason = "held only to be dropped with the arm")]
    pub holds: Vec<Box<dyn Any>>,
}

impl Arm {
    /// Opens that many accounts.
    pub async fn open(&self, count: usize) -> Vec<AccountKey> {
        open(&self.target, count).await
    }

    /// Deposits to accounts.
    pub fn deposits(&self, accounts: &[AccountKey]) -> Traffic {
        Traffic::deposits(&self.target, accounts, self.way)
    }

    /// The number of transactions that it has posted, without those that a web process of the bank posted itself.
    pub async fn posted(&self) -> u64 {
        let mut posted = 0_u64;
        for counts in &self.counts {
            let here = match counts {
                Source::Metrics(probe) => probe.count("worker_settled").await,
                Source::Peer(address) => peer_count(address, "posted").await,
            };
            posted = posted.saturating_add(here);
        }
        posted
    }

    /// The counts of its processes since their start.
    pub async fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counts in &self.counts {
            match counts {
                Source::Metrics(probe) => totals.add(&probe.metrics().await),
                Source::Peer(address) => {
                    let count = peer_count(address, "storage_operations").await;
                    add(&mut totals.storage_operations, "all".to_owned(), count);
                }
            }
        }
        totals
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

impl Totals {
    /// The counts since an earlier reading.
    pub fn since(&self, before: &Self) -> Self {
        let Self { storage_operations, routes } = self;
        Self {
            storage_operations: difference(storage_operations, &before.storage_operations),
            routes: difference(routes, &before.routes),
        }
    }

    /// Adds the metrics of a process of the bank.
    fn add(&mut self, metrics: &str) {
        for (kind, count) in process_probe::storage_operations(metrics) {
            add(&mut self.storage_operations, kind, count);
        }
        for count in by_label(metrics, "posted_immediately", "").into_values() {
            add(&mut self.routes, IMMEDIATELY.to_owned(), count);
        }
        for (reason, count) in by_label(metrics, "queued_requests", "reason") {
            add(&mut self.routes, format!("queued: {reason}"), count);
        }
    }
}

fn add(counts: &mut Counts, name: String, count: u64) {
    let sum = counts.entry(name).or_default();
    *sum = sum.saturating_add(count);
}

/// Opens that many accounts.
pub async fn open(target: &Target, count: usize) -> Vec<AccountKey> {
    let accounts: Vec<AccountKey> = (0..count).map(|_| fresh_account()).collect();
    let openings = Traffic::openings(target, &accounts);
    let connections = OPENING_CONNECTIONS.min(count);
    let requests = u64::try_from(count).unwrap_or(u64::MAX);
    drop(load::closed(openings, connections, Until::Sent(requests)).await.all(&[200, 201]));
    accounts
}

async fn peer_count(address: &str, name: &str) -> u64 {
    let answer = reqwest::get(format!("{address}/bench/counts")).await.expect("the peer answers");
    let counts: Value = answer.json().await.expect("the peer returns its counts");
    counts.get(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {name} in {counts}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_processes_add_up_and_some_may_be_absent() {
        let mut totals = Totals::default();
        totals.add("postonce_storage_operations_total{service=\"table\",operation=\"insert\"} 3");
        assert!(totals.routes.is_empty());
        let before = totals.clone();
        for _ in 0..2 {
            totals.add(
                "postonce_storage_operations_total{service=\"table\",operation=\"insert\"} 2\n\
                 postonce_posted_immediately_total 5\n\
                 postonce_queued_requests_total{reason=\"held\"} 1",
            );
        }
        let Totals { storage_operations, routes } = totals.since(&before);
        assert_eq!(storage_operations, Counts::from([("table/insert".to_owned(), 4)]));
        let expected = [(IMMEDIATELY.to_owned(), 10), ("queued: held".to_owned(), 2)];
        assert_eq!(routes, Counts::from(expected));
    }
}
