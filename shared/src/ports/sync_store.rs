//! Small values that processes agree on: the ranges of order numbers, the gate, the first key.

use async_trait::async_trait;

use super::fault::StoreFault;
use crate::domain::account::{Revision, Versioned};

/// Most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 16 * 1024;

/// What became of a compare-and-swap.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swapped {
    /// The value is stored.
    Done(Revision),
    /// Somebody else was first. Nothing was written.
    Conflict,
}

/// Named values with compare-and-swap.
#[async_trait]
pub trait SyncStore: Send + Sync {
    /// Reads a value; `None` when it was never written.
    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault>;

    /// Writes the value if it is still in the state `expected` (`None`: if it does not exist).
    ///
    /// **Never retried inside**: after a fault the value may be written, or may still be. Names are
    /// lower-case letters, digits and `-`; values at most [`VALUE_BYTES_MAX`] bytes.
    async fn swap(&self, name: &str, expected: Option<&Revision>, value: &str)
    -> Result<Swapped, StoreFault>;
}
