//! One partner floods the service, and another one works: what the other one notices. In the control, the same flood
//! hits another process on the same machine, so the difference is what the process itself shares between its clients.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join;
use futures::stream;
use postonce_shared::domain::ids::AccountKey;
use postonce_tests::prelude::*;
use postonce_tests::process_probe::memory_peak_kib;
use serde_json::json;

use crate::bench::arm;
use crate::bench::load::flood::{Connections, connections};
use crate::bench::load::{self, Target, Traffic, Until, Way};
use crate::bench::prelude::*;

const P50: Measure = Measure::of("of the other partner, p50", Unit::Microseconds);
const P99: Measure = Measure::of("of the other partner, p99", Unit::Microseconds);
const FLOOD: Measure = Measure::of("requests or connections of the flood", Unit::PerSecond);
const MEMORY: Measure = Measure::of("largest memory of the process", Unit::Kibibytes);

const SAME: &str = "the same process is flooded";
const ANOTHER: &str = "another process is flooded";
const GOALS: [GoalOf; 1] = [(SAME, P99, Goal::TimesTheOtherAtMost(ANOTHER, 200))];
const MEMORY_GOALS: [GoalOf; 1] = [(SAME, MEMORY, Goal::AtMost(256 * 1024))];

/// Requests of the other partner in a second, and their time.
const RATE: u64 = 200;
const LASTING: Duration = Duration::from_secs(10);
/// Accounts of each partner.
const ACCOUNTS: usize = 100;
/// Connections of a flood of requests.
const FLOODING: usize = 256;
/// Half heads that each task of the flood keeps open: together more than an address may have connections. The requests of the
/// other partner use connections that were opened after the flood began.
const KEPT: usize = 40;
/// Number and metadata of the deposits that make large pages: more than 600 KB in a page.
const LARGE_DEPOSITS: usize = 300;
const METADATA_CHARS: usize = 2000;
/// From the beginning of the flood to the first connection of the other partner.
const BEFORE: Duration = Duration::from_secs(1);

/// What the flood consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flood {
    /// Connections whose request heads never end.
    Connections,
    /// Requests with a key of another bank, each on a new connection from another address.
    WrongKeys,
    /// Deposits that wait, while the gate is held.
    Waiting,
    /// Deposits that wait, and are posted.
    Deposits,
    /// Large pages of a statement.
    LargePages,
}

impl Flood {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Connections, "connections"),
        (Self::WrongKeys, "wrong keys"),
        (Self::Waiting, "requests that wait, the gate is held"),
        (Self::Deposits, "deposits"),
        (Self::LargePages, "large pages"),
    ];
}

/// A bank with two partners.
struct Bank {
    bank: Scenario,
    flooding: (Target, Vec<AccountKey>),
    working: (Target, Vec<AccountKey>),
}

impl Bank {
    async fn start(directory: &Path) -> Self {
        let bank = Plan::on(StoreKind::Sqlite).in_directory(directory).start().await;
        bank.until_workers_ready().await;
        let partner = async |name: &str| {
            let key = bank.add_partner(name, &["accounts", "deposit", "read"]);
            let target = Target::of(bank.webs.iter().map(|web| web.address()), &key);
            let accounts = arm::open(&target, ACCOUNTS).await;
            (target, accounts)
        };
        let (flooding, working) = (partner("flood").await, partner("work").await);
        Self { bank, flooding, working }
    }

    /// Deposits with much metadata to an account of the partner that floods.
    async fn add_large_deposits(&self) {
        let (target, accounts) = &self.flooding;
        let client = self.bank.client(0).with_key(&target.key);
        let account = *accounts.first().expect("there are accounts");
        let submission =
            Submission::deposit("1.00").with("metadata", json!({ "a": "x".repeat(METADATA_CHARS) }));
        let deposits = stream::iter(0..LARGE_DEPOSITS).for_each_concurrent(16, async |_| {
            drop(client.submit(account, fresh_id(), &submission).await.expect(202));
        });
        deposits.await;
        self.until_posted().await;
    }

    async fn set_gate(&self, state: &str) {
        let client = self.bank.client(0);
        drop(client.set_gate(&json!({ "state": state })).await.expect(200));
    }

    async fn until_posted(&self) {
        self.bank.client(0).until_drained(wait::TIMEOUT).await;
    }

    fn address(&self) -> SocketAddr {
        let address = self.flooding.0.addresses.first().expect("the bank has a web process");
        address.parse().expect("an address")
    }
}

/// The processes of an arm.
struct Side<'a> {
    working: &'a Bank,
    flooded: &'a Bank,
    /// A key of another bank.
    wrong_key: &'a str,
}

impl Side<'_> {
    async fn measure(&self, flood: Flood, lasting: Duration) -> Sample {
        let is_held = flood == Flood::Waiting;
        let banks = || [self.working, self.flooded].into_iter();
        if is_held {
            for bank in banks() {
                bank.set_gate("held").await;
            }
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let flooding = async {
            let watch = Stopwatch::start();
            let sent = self.flood(flood, &is_over).await;
            per_second(sent, watch.elapsed())
        };
        let working = async {
            wait::pass(BEFORE).await;
            let (target, accounts) = &self.working.working;
            let way = if is_held { Way::Queued } else { Way::Waiting };
            let traffic = Traffic::deposits(target, accounts, way);
            let outcome = load::open(traffic, RATE, lasting).await.all(&[200, 202]);
            is_over.store(true, Ordering::Relaxed);
            if is_held {
                for bank in banks() {
                    bank.set_gate("released").await;
                }
            }
            outcome
        };
        let (rate, outcome) = join(flooding, working).await;
        for bank in banks() {
            bank.until_posted().await;
        }
        Sample::from([(P50, outcome.p50_us()), (P99, outcome.p99_us()), (FLOOD, rate)])
    }

    /// Floods until `is_over`. Returns the number of requests that were answered, or of connections.
    async fn flood(&self, flood: Flood, is_over: &Arc<AtomicBool>) -> u64 {
        let (target, accounts) = &self.flooded.flooding;
        let half = "GET /livez HTTP/1.1\r\n".to_owned();
        let wrong = format!(
            "GET /v1/batches HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer {}\r\n\r\n",
            self.wrong_key
        );
        let raw = |head, then| connections(self.flooded.address(), head, then, Arc::clone(is_over));
        let requests = async |traffic: Traffic| {
            load::closed(traffic, FLOODING, Until::Ended(Arc::clone(is_over))).await.answered()
        };
        match flood {
            Flood::Connections => raw(half, Connections::Kept(KEPT)).await,
            Flood::WrongKeys => raw(wrong, Connections::Read).await,
            Flood::Waiting | Flood::Deposits => {
                requests(Traffic::deposits(target, accounts, Way::Waiting)).await
            }
            Flood::LargePages => {
                requests(Traffic::statements(target, accounts.get(..1).unwrap_or_default())).await
            }
        }
    }
}

/// Measures all floods.
pub async fn measure(options: &Options, machine: &Machine) {
    let directory = machine.directory();
    let (first, second, third) =
        (Bank::start(directory).await, Bank::start(directory).await, Bank::start(directory).await);
    for bank in [&first, &third] {
        bank.add_large_deposits().await;
    }
    let wrong_key = second.flooding.0.key.as_str();
    let arms = [
        (SAME, Side { working: &first, flooded: &first, wrong_key }),
        (ANOTHER, Side { working: &second, flooded: &third, wrong_key }),
    ];
    let mut report = Report::of("flood");
    let lasting = options.lasting(LASTING);
    for (flood, name) in Flood::ALL {
        let run = async |side: &Side<'_>| side.measure(flood, lasting).await;
        let series = interleave(&format!("flood, {name}"), options.rounds(), &arms, machine, run).await;
        report.add(name, &series, &GOALS);
    }
    let pid = first.bank.webs.first().expect("the bank has a web process").pid();
    let sample = Sample::from([(MEMORY, memory_peak_kib(pid))]);
    report.add("after all floods", &Series::of_round(vec![(SAME, sample)]), &MEMORY_GOALS);
    report.finish(machine);
}
