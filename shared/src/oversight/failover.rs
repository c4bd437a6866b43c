//! Brings a store that went back in time into a state in which processes may start: after a failover to a region to which
//! not everything was copied, or after tables were restored.
//!
//! What was written in the lost window is in no table, but partners and operators have received it: order numbers, and the
//! epochs of the gate. So the register of order numbers continues after all that may have been issued, and the gate is held
//! with an epoch above all that may have been announced. Both are written before any process starts, and can be written
//! again.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::gate::change::GateAct;
use crate::cluster::gate::{Gate, GateValue};
use crate::domain::account::Revision;
use crate::domain::ids::OrderNumber;
use crate::oversight::verify::highest_order_number;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::process_registry::RegisteredProcess;
use crate::ports::sync_store::Swapped;
use crate::ports::world::World;
use crate::posting::order_numbers::{FIRST_COUNTER, RANGE_LEN_MAX, REGISTER, Register, UnsoundRegister};

/// Added to the epoch of the gate: more changes than a bank makes in any window.
const EPOCH_MARGIN: u64 = 1_000_000;
/// The ranges that a process reserves at most: the current and the next one.
const RANGES_OF_A_PROCESS: u64 = 2;

/// The reason why nothing, or not everything, was written.
#[derive(Debug, thiserror::Error)]
pub enum FailoverFault {
    /// The store cannot be used.
    #[error("the store cannot be used")]
    Store(#[from] StoreFault),
    /// The register must not be used.
    #[error(
        "the register of order numbers cannot be read: give the highest order number that was ever issued, for example \
         from the records of the partners"
    )]
    Register(#[source] UnsoundRegister),
    /// The register cannot be moved that far.
    #[error("the register of order numbers cannot be moved ahead so far")]
    TooFar(#[source] UnsoundRegister),
    /// A process changed the register at the same time.
    #[error("the register of order numbers was changed meanwhile: stop all processes first")]
    Changed,
}

/// What may be lost, from which the skipped order numbers are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossBound {
    /// The time before the failure whose writes may be missing.
    pub window: Duration,
    /// The most order numbers that were issued in a second.
    pub numbers_per_second: u64,
    /// The most processes that posted in that time.
    pub processes: u64,
}

impl LossBound {
    /// Returns how many numbers may have been issued or reserved within the window.
    pub const fn numbers(self) -> u64 {
        let seconds = self.window.as_secs().saturating_add(1);
        let open = self.processes.saturating_mul(RANGES_OF_A_PROCESS).saturating_mul(RANGE_LEN_MAX);
        self.numbers_per_second.saturating_mul(seconds).saturating_add(open)
    }
}

/// The state of a store before it is changed.
#[derive(Debug)]
pub struct StoreState {
    /// The register, if there is one that can be read.
    pub register: Option<Register>,
    /// The highest order number in the ledger.
    pub highest: Option<OrderNumber>,
    /// The gate.
    pub gate: GateValue,
    /// The processes that count as running.
    pub processes: Vec<RegisteredProcess>,
    revision: Option<Revision>,
}

impl StoreState {
    /// Reads the state. The whole ledger is read for the highest order number. A register that cannot be read counts as
    /// missing if `at_least` is known.
    ///
    /// # Errors
    /// [`FailoverFault`]
    pub async fn read(
        store: &Store,
        world: &Arc<dyn World>,
        at_least: Option<OrderNumber>,
    ) -> Result<Self, FailoverFault> {
        let stored = store.sync.get(REGISTER).await?;
        let register = stored.as_ref().map(|stored| Register::decode(&stored.value)).transpose();
        let register = match (register, at_least) {
            (Ok(register), _) => register,
            (Err(_), Some(_)) => None,
            (Err(unsound), None) => return Err(FailoverFault::Register(unsound)),
        };
        let now = world.now();
        let mut processes = store.process_registry.list().await?;
        processes.retain(|process| !process.is_stale(now));
        Ok(Self {
            register,
            highest: highest_order_number(store, world).await?,
            gate: Gate::new(store, world).read().await?,
            processes,
            revision: stored.map(|stored| stored.revision),
        })
    }

    /// Returns the register that continues `margin` after the register, the ledger and `at_least`.
    ///
    /// # Errors
    /// [`FailoverFault::TooFar`]
    pub fn advanced(&self, at_least: Option<OrderNumber>, margin: u64) -> Result<Register, FailoverFault> {
        let known = [self.highest, at_least].into_iter().flatten();
        let after = known.map(|number| number.counter().saturating_add(1)).max().unwrap_or(FIRST_COUNTER);
        let register = self.register.clone().unwrap_or_else(Register::fresh);
        register.moved_ahead(after, margin).map_err(FailoverFault::TooFar)
    }

    /// Holds the gate above all epochs of the lost window, and then writes the register.
    ///
    /// # Errors
    /// [`FailoverFault`]; the gate may be held. Repeating it from the start is safe.
    pub async fn write(
        &self,
        store: &Store,
        world: &Arc<dyn World>,
        register: &Register,
        act: &GateAct,
    ) -> Result<GateValue, FailoverFault> {
        let gate = Gate::new(store, world).hold_ahead(EPOCH_MARGIN, act).await?;
        match store.sync.swap(REGISTER, self.revision.as_ref(), &register.encode()).await? {
            Swapped::Done(_) => Ok(gate),
            Swapped::Conflict => Err(FailoverFault::Changed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_covers_the_window_and_the_open_ranges() {
        let bound = LossBound { window: Duration::from_secs(900), numbers_per_second: 1000, processes: 3 };
        assert_eq!(bound.numbers(), 901_000 + 6 * RANGE_LEN_MAX);
    }
}
