//! Restores a backup into a store that is not a file. This module reads and checks the backup, and computes the values
//! that must not be reused. The rows are copied through the ports.
//!
//! The target is empty, so it is not compared with the backup. The ids of dead letters need no change, because other
//! stores assign ids of queue messages in another form.

use std::path::{Path, PathBuf};

use super::super::backup::copy::{check_closed, check_sound, open_unchanged};
use super::super::backup::{BackupFault, Contents, FileOperation, ProgressCallback, check_regular};
use super::super::fault::OpenFault;
use super::super::migrations::{SCHEMA_VERSION, check};
use super::super::paths::resolved;
use super::access_after::AccessAfter;
use super::advanced_values::{AdvancedValues, ReachedValues};
use super::plan::{Access, default_gap};
use crate::cluster::gate::{self, GateState, GateValue};
use crate::domain::ids::OrderNumber;
use crate::ports::api_keys::ApiKeyRecord;
use crate::ports::world::World;
use crate::posting::order_numbers::REGISTER;

/// The plan of a restore into another store.
#[derive(Debug)]
pub struct ElsewherePlan {
    /// The backup file.
    pub file: PathBuf,
    /// The contents of the backup.
    pub backup: Contents,
    /// Number of order numbers skipped after the highest one of the backup.
    pub gap: u64,
    /// The next order number that is issued.
    pub next_number: OrderNumber,
    /// The gate after the restore; `None` if it was never changed.
    pub gate: Option<GateValue>,
    /// Keys that are valid after the restore, unless their partners are suspended.
    pub keys_working: Vec<ApiKeyRecord>,
    /// The shared values by name, which are written at the end.
    pub values: Vec<(&'static str, String)>,
}

impl ElsewherePlan {
    /// Checks a backup and creates the plan. Blocks while it reads the backup. `order_number_gap` is the number of
    /// order numbers to skip; the default exceeds the numbers that can have been issued. `held` sets the gate to held.
    ///
    /// # Errors
    /// [`BackupFault`] when the backup cannot be restored. Its schema must be that of this program.
    pub fn make(
        file: &Path,
        (order_number_gap, held): (Option<u64>, bool),
        world: &dyn World,
        on_progress: ProgressCallback<'_>,
    ) -> Result<Self, BackupFault> {
        let file = resolved(file);
        if !file.exists() {
            return Err(BackupFault::Missing { path: file });
        }
        check_regular(&file)?;
        check_closed(&file)?;
        let source = open_unchanged(&file).map_err(|error| FileOperation::of("open", &file).sql(error))?;
        match check(&source, &file)? {
            0 => return Err(BackupFault::Empty { path: file }),
            SCHEMA_VERSION => {}
            found => return Err(OpenFault::Older { path: file, found, known: SCHEMA_VERSION }.into()),
        }
        check_sound(&source, &file, on_progress)?;
        let backup = Contents::read(&source, &file)?;
        let access = Access::read(&source).map_err(|fault| FileOperation::of("read", &file).sql(fault))?;
        let now = world.now();
        let gap = match order_number_gap {
            Some(gap) => gap,
            None => default_gap(false, (&file, &backup), now)?,
        };
        let AccessAfter { keys_working, .. } = AccessAfter::of(access, Access::default());
        // The gate is held with epoch 1 until the restore has ended.
        let reached = ReachedValues { epoch: 1, ..ReachedValues::default() };
        let none = (Vec::new(), Vec::new());
        let values = AdvancedValues::try_new((&file, &backup), reached, (gap, held), none, now)?;
        let record = values.gate.expect("an epoch was reached");
        let was_set = held || matches!(backup.gate, Ok(Some(_)));
        let written = vec![(gate::NAME, gate::encode(&record)), (REGISTER, values.register.encode())];
        Ok(Self {
            gap,
            next_number: OrderNumber::from_counter(values.register.next),
            gate: was_set.then_some(record.value),
            keys_working,
            values: written,
            file,
            backup,
        })
    }

    /// Describes the backup. An interrupted restore stores this text, so that it is not continued with another backup.
    pub fn source(&self) -> String {
        let taken_at = self.backup.as_of().map_or_else(|| "an unknown time".to_owned(), |at| at.to_string());
        let transactions = self.backup.transactions();
        format!(
            "the backup of {taken_at} with {} accounts and {transactions} transactions",
            self.backup.accounts
        )
    }

    /// Returns whether the gate is held after the restore.
    pub fn is_held(&self) -> bool {
        matches!(self.gate, Some(GateValue { state: GateState::Held { .. }, .. }))
    }
}
