//! Small values that processes share, such as the register of order numbers, the gate and the shared secret.

use async_trait::async_trait;

use super::fault::StoreFault;
use crate::domain::account::{Revision, Versioned};

/// Maximum size of a value in bytes.
pub const VALUE_BYTES_MAX: usize = 16 * 1024;

/// Result of a compare-and-swap.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swapped {
    /// The value is stored.
    Done(Revision),
    /// Another process wrote first. Nothing was written.
    Conflict,
}

/// Named values with compare-and-swap.
#[async_trait]
pub trait SyncStore: Send + Sync {
    /// Reads a value; `None` if it was never written.
    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault>;

    /// Writes the value if its revision is still `expected` (`None`: if it does not exist).
    ///
    /// **Implementations never retry**: after a fault the value may have been written, or may still be. Names consist of
    /// lower-case letters, digits and `-`; values have at most [`VALUE_BYTES_MAX`] bytes.
    async fn swap(&self, name: &str, expected: Option<&Revision>, value: &str)
    -> Result<Swapped, StoreFault>;
}
