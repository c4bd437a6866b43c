//! Counts the transactions that web processes post or reject immediately.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;

use super::phase::CurrentPhase;
use super::process_group::ProcessGroup;
use super::results::RunResults;
use crate::prelude::*;

/// Interval of reads of the counters. Transactions between the last read and the end of a process are not counted.
const READ_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum wait for one response. A suspended process does not respond.
const READ_TIME_MAX: Duration = Duration::from_millis(500);

/// Reads the counters of all web processes until the run ends.
pub async fn count(processes: &ProcessGroup, key: &str, phase: &CurrentPhase, results: &RunResults) {
    let mut probes: BTreeMap<String, (ProcessProbe, u64)> = BTreeMap::new();
    while !phase.has_ended() {
        let addresses = processes.addresses();
        // A restarted process has another address, and counters that start at zero.
        probes.retain(|address, _| addresses.contains(address));
        for address in addresses {
            let probe = || (ProcessProbe::with_key(&address, key), 0);
            probes.entry(address.clone()).or_insert_with(probe);
        }
        join_all(probes.values_mut().map(|(probe, known)| async move {
            let read = tokio::time::timeout(READ_TIME_MAX, probe.try_count("posted_immediately"));
            let Ok(Some(count)) = read.await else { return };
            let more = count.saturating_sub(*known);
            *known = count;
            results.count(|counts| counts.posted_at_once = counts.posted_at_once.saturating_add(more));
        }))
        .await;
        wait::pass(READ_INTERVAL).await;
    }
}
