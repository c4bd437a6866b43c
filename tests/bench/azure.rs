//! Web and worker on Azurite against the classic design: single deposits, spread and hot.

use std::time::Duration;

use crate::machine::Machine;
use crate::report::{Goal, Report};
use crate::rounds::{Measure, interleave};
use crate::throughput::{OPERATIONS, POSTED, throughput};
use crate::{Wanted, arms};

/// Requests under way at once, each on a connection of its own.
const CONNECTIONS: usize = 256;
/// How long an arm is loaded in each round.
const LASTING: Duration = Duration::from_secs(8);

/// How many accounts, and what is to be reached with them.
pub struct Breadth {
    scenario: &'static str,
    accounts: usize,
    /// Whether each round has accounts of its own. The emulator searches the whole partition of an account for a
    /// row, so that few accounts would grow slower from round to round, as no storage service does.
    fresh: bool,
    goals: &'static [(Measure, Goal)],
}

/// Singles to many accounts. Each of them is warm after a while: it was posted to before.
pub const SPREAD: Breadth = Breadth {
    scenario: "azure-spread",
    accounts: 10_000,
    fresh: false,
    goals: &[(POSTED, Goal::TimesTheOther(250)), (OPERATIONS, Goal::AtMost(220))],
};
/// Singles to few accounts.
pub const HOT: Breadth = Breadth {
    scenario: "azure-hot",
    accounts: 10,
    fresh: true,
    goals: &[(POSTED, Goal::TimesTheOther(2000)), (OPERATIONS, Goal::AtMost(30))],
};

/// Measures one of the two.
pub async fn measure(breadth: &Breadth, wanted: &Wanted, machine: &Machine) {
    let Breadth { scenario, accounts: count, fresh, goals } = breadth;
    let ours = arms::azure(machine.directory()).await;
    let our_accounts = ours.open(*count).await;
    let mut arms = vec![("postonce", (ours, our_accounts))];
    if wanted.peers {
        let peer = arms::classic(machine.directory());
        let accounts = peer.open(*count).await;
        arms.push(("classic design", (peer, accounts)));
    }
    let connections = wanted.connections.unwrap_or(CONNECTIONS);
    let phase = format!("{connections} connections");
    let series = interleave(
        &format!("{scenario}, {phase}"),
        wanted.rounds,
        &arms,
        machine,
        async |(arm, accounts)| {
            let opened = if *fresh { Some(arm.open(*count).await) } else { None };
            let accounts = opened.as_deref().unwrap_or(accounts);
            throughput(arm, accounts, connections, LASTING).await
        },
    )
    .await;
    let mut report = Report::of(scenario);
    report.add(&phase, &series, goals);
    report.finish(machine);
}
