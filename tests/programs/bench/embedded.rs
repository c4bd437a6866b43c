//! One process on SQLite against a service on PostgreSQL: single deposits to many and to few accounts, with clients
//! that wait until their deposit is posted and with clients that do not.

use crate::bench::prelude::*;

/// Concurrent requests, each on its own connection.
const CONNECTIONS: [usize; 4] = [1, 8, 64, 256];

/// The accounts of a scenario, and its goals.
pub struct Workload {
    scenario: &'static str,
    accounts: usize,
    /// The label and the arguments of each peer.
    peers: &'static [(&'static str, &'static [&'static str])],
    /// The goals, each for a number of connections.
    goals: &'static [(usize, GoalOf)],
}

const WAITING: &str = Way::Waiting.name();
const QUEUED: &str = Way::Queued.name();
const POSTGRES: &str = "PostgreSQL";
const POSTGRES_SERIALISED: &str = "PostgreSQL, account locks in the service";

/// Single deposits to many accounts.
pub const SPREAD: Workload = Workload {
    scenario: "embedded-spread",
    accounts: 10_000,
    peers: &[(POSTGRES, &[])],
    goals: &[
        (1, (WAITING, POSTED, Goal::TimesTheOther(POSTGRES, 130))),
        (64, (WAITING, POSTED, Goal::TimesTheOther(POSTGRES, 300))),
        (64, (WAITING, PROCESSOR, Goal::TimesTheOtherAtMost(QUEUED, 60))),
        (64, (QUEUED, POSTED, Goal::TimesTheOther(POSTGRES, 200))),
        (64, (QUEUED, POSTED, Goal::AtLeast(12_000))),
    ],
};
/// Single deposits to few accounts.
pub const HOT: Workload = Workload {
    scenario: "embedded-hot",
    accounts: 10,
    // With few accounts, it matters where postings to the same account wait for each other.
    peers: &[(POSTGRES, &["--without-account-locks"]), (POSTGRES_SERIALISED, &[])],
    goals: &[
        (64, (WAITING, POSTED, Goal::TimesTheOther(POSTGRES, 600))),
        (64, (WAITING, POSTED, Goal::TimesTheOther(POSTGRES_SERIALISED, 400))),
        (64, (QUEUED, POSTED, Goal::TimesTheOther(POSTGRES, 500))),
    ],
};

/// Measures one of the workloads.
pub async fn measure(workload: &Workload, options: &Options, machine: &Machine) {
    let Workload { scenario, accounts: count, peers, goals } = workload;
    let count = options.accounts(*count);
    let mut arms = Vec::new();
    for way in Way::ALL {
        let ours = arms::embedded(machine.directory(), way).await;
        let accounts = ours.open(count).await;
        arms.push((way.name(), (ours, accounts)));
    }
    for (name, more) in peers.iter().filter(|_| options.peers) {
        let peer = arms::postgres(machine.directory(), more);
        let accounts = peer.open(count).await;
        arms.push((*name, (peer, accounts)));
    }
    let mut report = Report::of(scenario);
    for connections in CONNECTIONS.into_iter().filter(|it| options.connections.is_none_or(|only| only == *it))
    {
        let phase = format!("{connections} connections");
        let name = format!("{scenario}, {phase}");
        let series = interleave(&name, options.rounds(), &arms, machine, async |(arm, accounts)| {
            throughput(arm, accounts, connections, options.lasting(LASTING)).await
        })
        .await;
        let goals: Vec<GoalOf> =
            goals.iter().filter(|(of, _)| *of == connections).map(|(_, goal)| *goal).collect();
        report.add(&phase, &series, &goals);
    }
    report.finish(machine);
}
