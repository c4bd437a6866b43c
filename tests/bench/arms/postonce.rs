//! The bank.

use std::any::Any;
use std::path::Path;
use std::rc::Rc;

use postonce_tests::azurite::Azurite;
use postonce_tests::process_probe::ProcessProbe;
use postonce_tests::scenario::{Plan, Scenario, StoreKind};

use crate::arm::{Arm, Counts};
use crate::load::Target;

/// One process on SQLite.
pub async fn embedded(directory: &Path) -> Arm {
    let bank = Plan::on(StoreKind::Sqlite).in_directory(directory).start().await;
    arm(Rc::new(bank), Vec::new()).await
}

/// A web and a worker process on their own Azurite.
pub async fn azure(directory: &Path) -> Arm {
    let azurite = Azurite::private_in_memory();
    let bank = Plan::on_private(&azurite).in_directory(directory).start().await;
    arm(Rc::new(bank), vec![Box::new(azurite)]).await
}

/// As [`azure`], with a function that returns the bytes to and from the storage so far.
pub async fn azure_counted(directory: &Path) -> (Arm, impl Fn() -> u64 + use<>) {
    let azurite = Azurite::private_in_memory();
    let plan = Plan::on_private(&azurite).behind_proxies().in_directory(directory);
    let bank = Rc::new(plan.start().await);
    let counted = Rc::clone(&bank);
    (arm(bank, vec![Box::new(azurite)]).await, move || counted.proxies().forwarded_bytes())
}

async fn arm(bank: Rc<Scenario>, store: Vec<Box<dyn Any>>) -> Arm {
    bank.until_workers_ready().await;
    let web = bank.webs.first().expect("the plan has a web process");
    let address = web.address();
    let target = Target::of(address, bank.key());
    let mut counts = vec![Counts::Metrics(ProcessProbe::with_key(address, bank.key()))];
    counts.extend((0..bank.workers.len()).map(|worker| Counts::Metrics(bank.probe(worker))));
    let mut processes = vec![("web", web.pid())];
    processes.extend(bank.workers.iter().map(|worker| ("worker", worker.pid())));
    let mut holds: Vec<Box<dyn Any>> = vec![Box::new(bank)];
    holds.extend(store);
    Arm { target, counts, processes, holds }
}
