//! Web and worker on Azurite against the classic design: single deposits to many and to few accounts, with clients
//! that wait until their deposit is posted and with clients that do not.

use std::time::Duration;

use crate::bench::prelude::*;
use crate::bench::throughput::{OPERATIONS, POSTED, throughput};

/// Concurrent requests, each on its own connection.
const CONNECTIONS: usize = 256;
/// Duration of the load on an arm in each round.
const LASTING: Duration = Duration::from_secs(8);

/// The accounts of a scenario, and its goals.
pub struct Workload {
    scenario: &'static str,
    accounts: usize,
    /// Whether each round opens new accounts. The emulator searches the whole partition of an account for a row,
    /// so few accounts would become slower from round to round, unlike on a storage service.
    fresh: bool,
    goals: &'static [GoalOf],
}

const WAITING: &str = Way::Waiting.name();
const QUEUED: &str = Way::Queued.name();
const CLASSIC: &str = "classic design";

/// Single deposits to many accounts. Each account is soon warm, because it was posted to before.
pub const SPREAD: Workload = Workload {
    scenario: "azure-spread",
    accounts: 10_000,
    fresh: false,
    goals: &[
        (WAITING, POSTED, Goal::TimesTheOther(CLASSIC, 400)),
        (WAITING, OPERATIONS, Goal::AtMost(110)),
        (QUEUED, POSTED, Goal::TimesTheOther(CLASSIC, 250)),
        (QUEUED, OPERATIONS, Goal::AtMost(220)),
    ],
};
/// Single deposits to few accounts.
pub const HOT: Workload = Workload {
    scenario: "azure-hot",
    accounts: 10,
    fresh: true,
    goals: &[
        (WAITING, POSTED, Goal::TimesTheOther(CLASSIC, 1200)),
        (WAITING, OPERATIONS, Goal::AtMost(10)),
        (QUEUED, POSTED, Goal::TimesTheOther(CLASSIC, 2000)),
        (QUEUED, OPERATIONS, Goal::AtMost(30)),
    ],
};

/// Measures one of the workloads.
pub async fn measure(workload: &Workload, options: &Options, machine: &Machine) {
    let Workload { scenario, accounts: count, fresh, goals } = workload;
    let count = options.accounts(*count);
    let mut arms = Vec::new();
    for way in Way::ALL {
        let ours = arms::azure(machine.directory(), way).await;
        let accounts = ours.open(count).await;
        arms.push((way.name(), (ours, accounts)));
    }
    if options.peers {
        let peer = arms::classic(machine.directory());
        let accounts = peer.open(count).await;
        arms.push((CLASSIC, (peer, accounts)));
    }
    let connections = options.connections.unwrap_or(CONNECTIONS);
    let phase = format!("{connections} connections");
    let series = interleave(
        &format!("{scenario}, {phase}"),
        options.rounds(),
        &arms,
        machine,
        async |(arm, accounts)| {
            let opened = if *fresh { Some(arm.open(count).await) } else { None };
            let accounts = opened.as_deref().unwrap_or(accounts);
            throughput(arm, accounts, connections, options.lasting(LASTING)).await
        },
    )
    .await;
    let mut report = Report::of(scenario);
    report.add(&phase, &series, goals);
    report.finish(machine);
}
