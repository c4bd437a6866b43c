//! Repairs a store that lost its latest writes, after a failover to a region with incomplete replication, or after
//! tables were restored. Processes may start afterwards.
//!
//! The lost writes are in no table, but partners and operators have received order numbers and gate epochs from them.
//! Therefore the register of order numbers continues after all numbers that may have been issued, and the gate is held with
//! an epoch above all that may have been announced. Both are written before any process starts, and can be written again.

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
use crate::posting::order_numbers::{FIRST_COUNTER, RANGE_LEN_MAX, REGISTER, Register, RegisterError};

/// Added to the epoch of the gate. A bank makes fewer changes in any loss window.
const EPOCH_MARGIN: u64 = 1_000_000;
/// Maximum number of ranges that a process reserves: the current and the next one.
const RANGES_OF_A_PROCESS: u64 = 2;

/// Why nothing, or not everything, was written.
#[derive(Debug, thiserror::Error)]
pub enum FailoverFault {
    /// The store cannot be used.
    #[error("the store cannot be used")]
    Store(#[from] StoreFault),
    /// The register cannot be decoded.
    #[error(
        "the register of order numbers cannot be read: give the highest order number that was ever issued, for example \
         from the records of the partners"
    )]
    Register(#[source] RegisterError),
    /// The register cannot be moved that far.
    #[error("the register of order numbers cannot be moved ahead so far")]
    TooFar(#[source] RegisterError),
    /// A process changed the register concurrently.
    #[error("the register of order numbers was changed meanwhile: stop all processes first")]
    Changed,
}

/// Bound on the lost writes, from which the number of skipped order numbers is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossBound {
    /// How far before the failure writes may be missing.
    pub window: Duration,
    /// Maximum number of order numbers issued per second.
    pub numbers_per_second: u64,
    /// Maximum number of processes that posted in the window.
    pub processes: u64,
}

impl LossBound {
    /// Returns how many order numbers may have been issued or reserved in the window.
    pub const fn numbers(self) -> u64 {
        let seconds = self.window.as_secs().saturating_add(1);
        let open = self.processes.saturating_mul(RANGES_OF_A_PROCESS).saturating_mul(RANGE_LEN_MAX);
        self.numbers_per_second.saturating_mul(seconds).saturating_add(open)
    }
}

/// The state of a store before it is changed.
#[derive(Debug)]
pub struct StoreState {
    /// The register; `None` if it is missing or unreadable.
    pub register: Option<Register>,
    /// The highest order number in the ledger.
    pub highest: Option<OrderNumber>,
    /// The gate.
    pub gate: GateValue,
    /// The processes that count as running, because their registry entries are not stale.
    pub processes: Vec<RegisteredProcess>,
    revision: Option<Revision>,
}

impl StoreState {
    /// Reads the state, including the whole ledger for its highest order number. An unreadable register counts as
    /// missing if `at_least` is given.
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

    /// Returns a register that skips `margin` numbers after the register, the ledger and `at_least`.
    ///
    /// # Errors
    /// [`FailoverFault::TooFar`]
    pub fn advanced(&self, at_least: Option<OrderNumber>, margin: u64) -> Result<Register, FailoverFault> {
        let known = [self.highest, at_least].into_iter().flatten();
        let after = known.map(|number| number.counter().saturating_add(1)).max().unwrap_or(FIRST_COUNTER);
        let register = self.register.clone().unwrap_or_else(Register::fresh);
        register.moved_ahead(after, margin).map_err(FailoverFault::TooFar)
    }

    /// Holds the gate above all epochs that may have been lost, and then writes the register.
    ///
    /// # Errors
    /// [`FailoverFault`]; the gate may be held. Repeating the whole procedure is safe.
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
