//! Processes of tests in the process registry, and their gate.

use std::time::Duration;

use crate::bank::Bank;
use crate::cluster::gate::change::GateRecord;
use crate::ports::process_registry::{Address, LEVEL, ProcessId, ProcessKind, RegisteredProcess};
use crate::ports::world::WorldExt as _;

/// Returns an entry of a process of the bank that was never written.
pub fn entry(bank: &Bank) -> RegisteredProcess {
    let now = bank.world.now();
    RegisteredProcess {
        id: ProcessId::from_uuid(bank.world.uuid()),
        kind: ProcessKind::Worker,
        address: Address::parse("test:1").expect("it is an address"),
        started_at: now,
        next_by: now,
        survivals: 0,
        level: LEVEL,
    }
}

/// The process counts itself as registered from now on, although the registry has no entry.
pub fn count_as_registered(bank: &Bank) {
    bank.registration.extend(&entry(bank), Duration::MAX);
}

/// Applies a gate that was never held to a process that has not read it.
pub fn count_as_released(bank: &Bank) {
    bank.gate_permits.apply(&bank.gate_permits.begin_read(), &GateRecord::UNSET);
}

/// Registers the process for ever. Returns its entry.
pub async fn register(bank: &Bank) -> RegisteredProcess {
    let entry = entry(bank);
    bank.store.process_registry.announce(&entry).await.expect("the registry of a test is available");
    bank.registration.extend(&entry, Duration::MAX);
    entry
}
