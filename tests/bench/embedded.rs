//! One process on SQLite against a service on PostgreSQL: single deposits to many and to few accounts.

use std::time::Duration;

use crate::Options;
use crate::arms;
use crate::machine::Machine;
use crate::report::{Goal, Report};
use crate::rounds::interleave;
use crate::throughput::{POSTED, throughput};

/// Concurrent requests, each on its own connection.
const CONNECTIONS: [usize; 4] = [1, 8, 64, 256];
/// The number of connections for which the goals hold.
const CONNECTIONS_OF_GOALS: usize = 64;
/// Duration of the load on an arm in each round.
const LASTING: Duration = Duration::from_secs(4);

/// The accounts of a scenario, and its goals.
pub struct Workload {
    scenario: &'static str,
    accounts: usize,
    /// The label and the arguments of each peer.
    peers: &'static [(&'static str, &'static [&'static str])],
    goals: &'static [Goal],
}

/// Single deposits to many accounts.
pub const SPREAD: Workload = Workload {
    scenario: "embedded-spread",
    accounts: 10_000,
    peers: &[("PostgreSQL", &[])],
    goals: &[Goal::TimesTheOther(200), Goal::AtLeast(12_000)],
};
/// Single deposits to few accounts.
pub const HOT: Workload = Workload {
    scenario: "embedded-hot",
    accounts: 10,
    // With few accounts, it matters where postings to the same account wait for each other.
    peers: &[("PostgreSQL", &["--without-account-locks"]), ("PostgreSQL, account locks in the service", &[])],
    goals: &[Goal::TimesTheOther(500)],
};

/// Measures one of the workloads.
pub async fn measure(workload: &Workload, options: &Options, machine: &Machine) {
    let Workload { scenario, accounts, peers, goals } = workload;
    let ours = arms::embedded(machine.directory()).await;
    let our_accounts = ours.open(*accounts).await;
    let mut arms = vec![("postonce", (ours, our_accounts))];
    for (name, more) in peers.iter().filter(|_| options.peers) {
        let peer = arms::postgres(machine.directory(), more);
        let accounts = peer.open(*accounts).await;
        arms.push((*name, (peer, accounts)));
    }
    let mut report = Report::of(scenario);
    for connections in CONNECTIONS.into_iter().filter(|it| options.connections.is_none_or(|only| only == *it))
    {
        let phase = format!("{connections} connections");
        let name = format!("{scenario}, {phase}");
        let series = interleave(&name, options.rounds, &arms, machine, async |(arm, accounts)| {
            throughput(arm, accounts, connections, LASTING).await
        })
        .await;
        let goals: Vec<_> = goals
            .iter()
            .filter(|_| connections == CONNECTIONS_OF_GOALS)
            .map(|goal| (POSTED, *goal))
            .collect();
        report.add(&phase, &series, &goals);
    }
    report.finish(machine);
}
