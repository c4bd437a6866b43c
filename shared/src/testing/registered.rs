//! Processes of tests in the process registry, and their gate.

use std::sync::Arc;
use std::time::Duration;

use crate::bank::Bank;
use crate::cluster::gate::change::GateRecord;
use crate::cluster::gate::permits::GatePermits;
use crate::ports::process_registry::{Address, LEVEL, ProcessId, ProcessKind, RegisteredProcess};
use crate::ports::world::{World, WorldExt as _};

/// Returns an entry of a process of the bank that was never written.
pub fn entry(bank: &Bank) -> RegisteredProcess {
    entry_in(&*bank.world)
}

/// Returns an entry of a process in this world that was never written.
pub fn entry_in(world: &dyn World) -> RegisteredProcess {
    let now = world.now();
    RegisteredProcess {
        id: ProcessId::from_uuid(world.uuid()),
        kind: ProcessKind::Worker,
        address: Address::parse("test:1").expect("it is an address"),
        started_at: now,
        next_by: now,
        survivals: 0,
        level: LEVEL,
    }
}

/// Returns the permits of a process that counts itself as registered, and that has not read the gate.
pub fn listed_permits(world: &Arc<dyn World>) -> Arc<GatePermits> {
    let permits = GatePermits::new(Arc::default(), Arc::clone(world));
    permits.register(&entry_in(&**world), Duration::MAX);
    Arc::new(permits)
}

/// The process counts itself as registered from now on, although the registry has no entry. It has not read the gate.
pub fn count_as_registered(bank: &Bank) {
    bank.gate_permits.register(&entry(bank), Duration::MAX);
}

/// As [`count_as_registered`]; and the process drains: it posts messages, and sends requests that wait to the queue.
pub fn count_as_draining(bank: &Bank) {
    count_as_registered(bank);
    bank.registration.end();
}

/// Applies a gate that was never held to a registered process that has not read it.
pub fn count_as_released(bank: &Bank) {
    bank.gate_permits.apply(&bank.gate_permits.begin_read(), &GateRecord::UNSET);
}

/// Registers the process for ever. Returns its entry.
pub async fn register(bank: &Bank) -> RegisteredProcess {
    let entry = entry(bank);
    bank.store.process_registry.announce(&entry).await.expect("the registry of a test is available");
    bank.gate_permits.register(&entry, Duration::MAX);
    entry
}
