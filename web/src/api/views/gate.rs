//! The gate in response bodies.

use postonce_schemas::json::{Gate, GateChanged, GateListener};
use postonce_shared::cluster::gate::change::GateRecord;
use postonce_shared::cluster::gate::{GateState, GateValue};

use crate::admin::gate::{Acknowledgment, NotifiedChange};

/// Converts the state of the gate.
pub fn gate(record: GateRecord) -> Gate {
    let GateRecord { value: GateValue { epoch, state }, since, by, reason } = record;
    let (state, release_at) = match state {
        GateState::Released => ("released", None),
        GateState::Held { release_at } => ("held", release_at.map(|at| at.to_string())),
    };
    let since = since.map(|at| at.to_string());
    Gate { state: state.into(), epoch, release_at, since, by, reason, clock_problem: None }
}

/// Converts a change of the gate, with the acknowledgments of the processes.
pub fn changed_gate(change: NotifiedChange) -> GateChanged {
    let NotifiedChange { order, acknowledgments, registry_problem } = change;
    let applied = order.value.epoch;
    let listener = |Acknowledgment { listener, address, seen_at, epoch }| GateListener {
        listener: listener.to_string(),
        address: address.to_string(),
        seen_at: seen_at.to_string(),
        acknowledged: epoch == Ok(applied),
        problem: epoch.as_ref().err().cloned(),
        epoch: epoch.ok(),
    };
    let listeners = acknowledgments.into_iter().map(listener).collect();
    let Gate { state, epoch, release_at, since, by, reason, clock_problem: _ } = gate(order);
    GateChanged { state, epoch, release_at, since, by, reason, registry_problem, listeners }
}
