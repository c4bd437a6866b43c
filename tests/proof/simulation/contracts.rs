//! The simulated table service answers as Azurite does, as far as the contracts of the ports can tell: the adapter
//! for Azure fulfils them over it.

use std::sync::Arc;

use parking_lot::Mutex;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::ports::world::World;
use postonce_tests::simulation::azure::ports::raw;
use postonce_tests::simulation::azure::tables::Tables;
use postonce_tests::simulation::scheduler::Scheduler;

macro_rules! contracts {
    ($($contract:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $contract() {
            let world: Arc<dyn World> = Arc::new(SystemWorld::new());
            let memory = MemoryStore::empty(Arc::clone(&world)).ports();
            let tables = Arc::new(Mutex::new(Tables::default()));
            let store = raw(&Scheduler::new(1), world, &memory, &tables);
            postonce_conformance::$contract(async || store.clone()).await;
        }
    )*};
}

contracts! {
    ledger_contract,
    accounts_contract,
    log_contract,
    archive_contract,
    sync_store_contract,
    dead_letters_contract,
    records_contract,
    process_registry_contract,
}
