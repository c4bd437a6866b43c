//! Storage operations of a posting on Azurite, by kind: clients that wait until their deposit is posted and clients
//! that do not, with one web process and with two, which each client uses in turns. A worker runs beside them. Polls
//! are included in the counts.

use crate::bench::figures::decimal;
use crate::bench::prelude::*;
use crate::bench::throughput::post;

/// Open accounts. Each phase uses the first of them.
const ACCOUNTS: usize = 1000;

/// Deposits to some accounts in turn.
struct Phase {
    name: &'static str,
    accounts: usize,
    deposits: u64,
    connections: usize,
    /// The largest number of operations of a posting, for a number of web processes and a way.
    goals: &'static [(usize, Way, &'static str)],
}

/// At the start no process has read an account; the first phase reads all of them.
const PHASES: [Phase; 5] = [
    Phase {
        name: "1 each to 1,000 accounts, cold",
        accounts: ACCOUNTS,
        deposits: 1000,
        connections: 256,
        goals: &[],
    },
    Phase {
        name: "1 each to 1,000 accounts, warm",
        accounts: ACCOUNTS,
        deposits: 1000,
        connections: 256,
        goals: &[(1, Way::Queued, "2.2"), (1, Way::Waiting, "1.1")],
    },
    Phase {
        name: "10,000 to 10 accounts",
        accounts: 10,
        deposits: 10_000,
        connections: 256,
        goals: &[(1, Way::Queued, "0.3"), (1, Way::Waiting, "0.1")],
    },
    Phase {
        name: "10,000 to 1,000 accounts",
        accounts: ACCOUNTS,
        deposits: 10_000,
        connections: 256,
        goals: &[
            (1, Way::Queued, "2.2"),
            (1, Way::Waiting, "1.1"),
            (2, Way::Waiting, "2.1, at most as queued"),
        ],
    },
    Phase {
        name: "4,000 to 40 accounts",
        accounts: 40,
        deposits: 4000,
        connections: 8,
        goals: &[(1, Way::Waiting, "1.2")],
    },
];

/// Prints a table.
pub async fn measure(options: &Options, machine: &Machine) {
    println!(
        "| web processes | clients | connections | phase | operations per posting | goal | deposits/s | how posted | \
         by kind |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for webs in [1, 2] {
        for way in Way::ALL {
            of_bank(webs, way, options, machine).await;
        }
    }
}

async fn of_bank(webs: usize, way: Way, options: &Options, machine: &Machine) {
    let accounts = options.accounts(ACCOUNTS);
    let (arm, accounts) = arms::cold_azure(machine.directory(), way, webs, accounts).await;
    for Phase { name, accounts: count, deposits, connections, goals } in PHASES {
        let some = accounts.get(..count.min(accounts.len())).expect("enough accounts");
        let until = Until::Sent(options.transactions(deposits));
        let cost = post(&arm, arm.deposits(some), connections, until).await;
        let goal = goals.iter().find(|(of, clients, _)| (*of, *clients) == (webs, way));
        println!(
            "| {webs} | {} | {connections} | {name} | {} | {} | {} | {} | {} |",
            way.name(),
            decimal(cost.operations_each()),
            goal.map_or("", |(_, _, goal)| goal),
            cost.posted_per_second(),
            cost.routes(),
            cost.operations_by_kind(),
        );
    }
}
