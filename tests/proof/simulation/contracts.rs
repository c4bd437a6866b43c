//! The simulated table service answers as Azurite does, as far as the contracts of the ports can tell: the adapter
//! for Azure fulfils them over it.

use std::sync::Arc;

use parking_lot::Mutex;
use postonce_shared::testing::prelude::*;
use postonce_tests::simulation::azure::ports::raw;
use postonce_tests::simulation::azure::tables::Tables;
use postonce_tests::simulation::scheduler::Scheduler;

fn stores(_: &str) -> impl AsyncFn() -> Store {
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let memory = MemoryStore::empty(Arc::clone(&world)).ports();
    let tables = Arc::new(Mutex::new(Tables::default()));
    let store = raw(&Scheduler::new(1), world, &memory, &tables);
    async move || store.clone()
}

postonce_conformance::contracts! { stores;
    ledger: ledger_contract, accounts: accounts_contract, log: log_contract, archive: archive_contract,
    sync_store: sync_store_contract, dead_letters: dead_letters_contract, records: records_contract,
    roster: process_registry_contract
}
