//! Worlds in which the bank stores its rows through the adapter for Azure Storage. The adapter is the one of
//! production, with its retries, read-backs and nonces; only its wire is simulated.
//!
//! - [`tables`] is a table service in memory, which carries out real requests;
//! - [`wire`] connects the adapter of a process with it, over the network with its faults;
//! - [`ports`] are the ports of a process: the auditor checks the store after every write, and the answers (`answers`);
//! - [`mistakes`] makes the adapter behave as if it had a mistake, by changing what it sees.
//!
//! Queues and payloads remain those of the memory adapter.

mod answers;
pub mod mistakes;
pub mod ports;
pub mod tables;
pub mod wire;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::system::SystemWorld;
    use postonce_shared::ports::world::World;
    use postonce_shared::testing::conformance;

    use super::ports::raw;
    use super::tables::Tables;
    use crate::simulation::scheduler::Scheduler;

    /// The simulated service answers as Azurite does, as far as the contracts of the ports can tell.
    macro_rules! contracts {
        ($($contract:ident),* $(,)?) => {$(
            #[tokio::test(flavor = "multi_thread")]
            async fn $contract() {
                let world: Arc<dyn World> = Arc::new(SystemWorld::new());
                let memory = MemoryStore::empty(Arc::clone(&world)).ports();
                let tables = Arc::new(Mutex::new(Tables::default()));
                let scheduler = Scheduler::new(1);
                let store = raw(&scheduler, world, &memory, &tables);
                conformance::$contract(async || store.clone()).await;
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
}
