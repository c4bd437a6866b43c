//! Copies the shared values, each by name, because stores cannot list them.

use std::sync::Arc;

use futures::FutureExt as _;

use super::{Copier, FinalValues};
use crate::cluster::doorbell_secret::SECRET_VALUE;
use crate::cluster::gate;
use crate::oversight::audit::HEAD as AUDIT_HEAD;
use crate::oversight::scrubber::STATE_VALUE as SCRUBBER;
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::posting::order_numbers::REGISTER;
use crate::protocol::recovery_horizon;

/// Name of the value with the position of a copy, in its target.
pub const PROGRESS: &str = "copy";

/// Names of the copied values, in this order. The register is last, so that it is not behind any number in the copy.
pub const COPIED_VALUES: [&str; 3] = [SECRET_VALUE, gate::NAME, REGISTER];

/// Names of values that are not copied, because they describe processes, queues or the store itself. `audit-head` is
/// copied with the audit trail. Values with the prefix `leases-` are not copied either.
pub const SKIPPED_VALUES: [&str; 9] = [
    AUDIT_HEAD,
    recovery_horizon::NAME,
    SCRUBBER,
    PROGRESS,
    "backup",
    "lost-queues",
    "queue-count",
    "readiness-probe",
    "ring-secret-fingerprint",
];

/// Maximum number of attempts to replace a value. They suffice, because nothing else writes to the target.
const ATTEMPTS_MAX: u32 = 5;

impl Copier<'_> {
    /// Writes each value to the target: the advanced value if there is one, and the value of the source otherwise.
    pub(super) async fn copy_values(&self) -> Result<(), StoreFault> {
        let advanced: &[(&str, String)] = match &self.options.values {
            FinalValues::OfSource => &[],
            FinalValues::Advanced(values) => values,
        };
        for name in COPIED_VALUES {
            let given = advanced.iter().find(|(advanced, _)| *advanced == name);
            match given {
                Some((_, value)) => self.put_value(name, value).await?,
                None => self.copy_value(name).await?,
            }
        }
        Ok(())
    }

    pub(super) async fn copy_value(&self, name: &str) -> Result<(), StoreFault> {
        match self.step(|| self.source.sync.get(name)).await? {
            Some(stored) => self.put_value(name, &stored.value).await,
            None => Ok(()),
        }
    }

    async fn put_value(&self, name: &str, value: &str) -> Result<(), StoreFault> {
        self.step(|| overwrite(&self.target.sync, name, value).boxed()).await
    }
}

/// Replaces a value in a store that nothing else uses.
pub(super) async fn overwrite(sync: &Arc<dyn SyncStore>, name: &str, value: &str) -> Result<(), StoreFault> {
    for _ in 0..ATTEMPTS_MAX {
        let stored = sync.get(name).await?;
        if stored.as_ref().is_some_and(|stored| stored.value == value) {
            return Ok(());
        }
        let revision = stored.as_ref().map(|stored| &stored.revision);
        if let Swapped::Done(_) = sync.swap(name, revision, value).await? {
            return Ok(());
        }
    }
    let source = format!("another process changes {name}: nothing else may use the target of a copy").into();
    Err(StoreFault::Refused { doing: "writing a shared value of a copy", source })
}
