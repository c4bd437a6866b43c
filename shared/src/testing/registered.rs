//! Registry entries of test processes, and their gate.

use std::sync::Arc;
use std::time::Duration;

use crate::bank::Bank;
use crate::cluster::gate::change::GateRecord;
use crate::cluster::gate::permits::GatePermits;
use crate::ports::process_registry::{Address, LEVEL, ProcessId, ProcessKind, RegisteredProcess};
use crate::ports::world::{World, WorldExt as _};

/// Creates a registry entry for a process of the bank, without writing it.
pub fn entry(bank: &Bank) -> RegisteredProcess {
    entry_in(&*bank.world)
}

/// Creates a registry entry for a process in this world, without writing it.
pub fn entry_in(world: &dyn World) -> RegisteredProcess {
    let now = world.now();
    RegisteredProcess {
        id: ProcessId::from_uuid(world.uuid()),
        kind: ProcessKind::Worker,
        address: Address::parse("test:1").expect("it is an address"),
        started_at: now,
        next_by: now,
        attempts_survived: 0,
        level: LEVEL,
    }
}

/// Returns the permits of a process that counts itself as registered, but has not read the gate.
pub fn listed_permits(world: &Arc<dyn World>) -> Arc<GatePermits> {
    let permits = GatePermits::new(Arc::default(), Arc::clone(world));
    permits.register(&entry_in(&**world), Duration::MAX);
    Arc::new(permits)
}

/// Makes the process count itself as registered, although the registry has no entry. It has not read the gate.
pub fn count_as_registered(bank: &Bank) {
    bank.gate_permits.register(&entry(bank), Duration::MAX);
}

/// Like [`count_as_registered`], for a process that drains: it posts messages, and sends requests that wait to the queue.
pub fn count_as_draining(bank: &Bank) {
    count_as_registered(bank);
    bank.registration.end();
}

/// Makes a registered process that has not read the gate see one that was never held.
pub fn count_as_released(bank: &Bank) {
    bank.gate_permits.apply(&bank.gate_permits.begin_read(), &GateRecord::UNSET);
}

/// Registers the process without expiry. Returns its entry.
pub async fn register(bank: &Bank) -> RegisteredProcess {
    let entry = entry(bank);
    bank.store.process_registry.announce(&entry).await.expect("the registry of a test is available");
    bank.gate_permits.register(&entry, Duration::MAX);
    entry
}
