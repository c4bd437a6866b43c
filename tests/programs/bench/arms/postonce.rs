//! The bank.

use std::any::Any;
use std::path::Path;
use std::rc::Rc;

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::prelude::*;

use crate::bench::arm::{self, Arm, Source};
use crate::bench::load::{Target, Way};

/// Variables of the processes of the bank in both arms. All clients use one key, whose default rate is lower than the
/// throughput of the bank. With a burst as large as a batch, its items do not slow down the single requests beside it.
const ENVIRONMENT: &[(&str, &str)] =
    &[("POSTONCE_REQUESTS_PER_SECOND", "1000000"), ("POSTONCE_REQUESTS_BURST", "1000000")];

/// Further variables, in the arm whose clients use that way.
const fn environment(way: Way) -> &'static [(&'static str, &'static str)] {
    match way {
        Way::Waiting => &[],
        Way::Queued => &[("POSTONCE_IMMEDIATE_POSTING", "off")],
    }
}

/// One process on SQLite.
pub async fn embedded(directory: &Path, way: Way) -> Arm {
    embedded_with(directory, way, &[]).await
}

/// One process on SQLite, with further settings.
pub async fn embedded_with(directory: &Path, way: Way, settings: &[(&str, &str)]) -> Arm {
    let plan = prepared(Plan::on(StoreKind::Sqlite), directory, way);
    let plan = settings.iter().fold(plan, |plan, (variable, value)| plan.with(variable, value));
    arm(Rc::new(plan.start().await), way, Vec::new()).await
}

/// One process on a copy of a SQLite file, whose clients wait.
pub async fn embedded_on(store_file: &Path, directory: &Path) -> Arm {
    let plan = Plan::on(StoreKind::Sqlite).on_copy_of(store_file);
    let bank = prepared(plan, directory, Way::Waiting).start().await;
    let files = Some(bank.directory());
    Arm { files, ..arm(Rc::new(bank), Way::Waiting, Vec::new()).await }
}

/// A web and a worker process on their own Azurite.
pub async fn azure(directory: &Path, way: Way) -> Arm {
    azure_workers(directory, way, 1).await
}

/// A web process and that many worker processes on their own Azurite.
pub async fn azure_workers(directory: &Path, way: Way, workers: usize) -> Arm {
    let azurite = Azurite::private_in_memory();
    let plan = Plan::on_private(&azurite).processes(1, workers);
    let bank = prepared(plan, directory, way).start().await;
    arm(Rc::new(bank), way, vec![Box::new(azurite)]).await
}

/// That many web processes and a worker on their own Azurite, and open accounts that none of them has read.
pub async fn cold_azure(directory: &Path, way: Way, webs: usize, count: usize) -> (Arm, Vec<AccountKey>) {
    let azurite = Azurite::private_in_memory();
    let mut bank = prepared(Plan::on_private(&azurite), directory, way).start().await;
    let mut opening = bank.webs.remove(0);
    let accounts = arm::open(&Target::of([opening.address()], bank.key()), count).await;
    opening.drain().await;
    for web in 0..webs {
        bank.start_web();
        bank.client(web).until_ready().await;
    }
    (arm(Rc::new(bank), way, vec![Box::new(azurite)]).await, accounts)
}

/// As [`azure`], with a function that returns the bytes to and from the storage so far.
pub async fn azure_counted(directory: &Path, way: Way) -> (Arm, impl Fn() -> u64 + use<>) {
    let azurite = Azurite::private_in_memory();
    let plan = Plan::on_private(&azurite).behind_proxies();
    let bank = Rc::new(prepared(plan, directory, way).start().await);
    let counted = Rc::clone(&bank);
    (arm(bank, way, vec![Box::new(azurite)]).await, move || counted.proxies().forwarded_bytes())
}

fn prepared(plan: Plan, directory: &Path, way: Way) -> Plan {
    let plan = plan.in_directory(directory);
    ENVIRONMENT
        .iter()
        .chain(environment(way))
        .fold(plan, |plan, (variable, value)| plan.with(variable, value))
}

async fn arm(bank: Rc<Scenario>, way: Way, store: Vec<Box<dyn Any>>) -> Arm {
    bank.until_workers_ready().await;
    let target = Target::of(bank.webs.iter().map(|web| web.address()), bank.key());
    let webs = bank.webs.iter().map(|web| ProcessProbe::with_key(web.address(), bank.key()));
    let workers = (0..bank.workers.len()).map(|worker| bank.probe(worker));
    let counts = webs.chain(workers).map(Source::Metrics).collect();
    let processes = bank.webs.iter().map(|web| ("web", web.pid()));
    let processes = processes.chain(bank.workers.iter().map(|worker| ("worker", worker.pid()))).collect();
    let mut holds: Vec<Box<dyn Any>> = vec![Box::new(bank)];
    holds.extend(store);
    Arm { target, way, counts, processes, files: None, holds }
}
