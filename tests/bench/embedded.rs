//! One process on SQLite against a service on PostgreSQL: single deposits, spread and hot.

use std::time::Duration;

use crate::Wanted;
use crate::arms;
use crate::machine::Machine;
use crate::report::{Goal, Report};
use crate::rounds::interleave;
use crate::throughput::{POSTED, throughput};

/// Requests under way at once, each on a connection of its own.
const CONNECTIONS: [usize; 4] = [1, 8, 64, 256];
/// The number of connections that goals are about.
const CONNECTIONS_OF_GOALS: usize = 64;
/// How long an arm is loaded in each round.
const LASTING: Duration = Duration::from_secs(4);

/// How many accounts, and what is to be reached with them.
pub struct Breadth {
    scenario: &'static str,
    accounts: usize,
    /// What each peer is called, and told.
    peers: &'static [(&'static str, &'static [&'static str])],
    goals: &'static [Goal],
}

/// Singles to many accounts.
pub const SPREAD: Breadth = Breadth {
    scenario: "embedded-spread",
    accounts: 10_000,
    peers: &[("PostgreSQL", &[])],
    goals: &[Goal::TimesTheOther(200), Goal::AtLeast(12_000)],
};
/// Singles to few accounts.
pub const HOT: Breadth = Breadth {
    scenario: "embedded-hot",
    accounts: 10,
    // With few accounts it decides where postings to one of them wait for each other.
    peers: &[("PostgreSQL", &["--without-turns"]), ("PostgreSQL, turns in the service", &[])],
    goals: &[Goal::TimesTheOther(500)],
};

/// Measures one of the two.
pub async fn measure(breadth: &Breadth, wanted: &Wanted, machine: &Machine) {
    let Breadth { scenario, accounts, peers, goals } = breadth;
    let ours = arms::embedded(machine.directory()).await;
    let our_accounts = ours.open(*accounts).await;
    let mut arms = vec![("postonce", (ours, our_accounts))];
    for (name, more) in peers.iter().filter(|_| wanted.peers) {
        let peer = arms::postgres(machine.directory(), more);
        let accounts = peer.open(*accounts).await;
        arms.push((*name, (peer, accounts)));
    }
    let mut report = Report::of(scenario);
    for connections in CONNECTIONS.into_iter().filter(|it| wanted.connections.is_none_or(|only| only == *it))
    {
        let phase = format!("{connections} connections");
        let name = format!("{scenario}, {phase}");
        let series = interleave(&name, wanted.rounds, &arms, machine, async |(arm, accounts)| {
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
