//! Replaces the store with a backup.
//!
//! 1. No other process may use the store, and the whole backup is checked. Nothing is changed until this has succeeded
//!    ([`Restoration::prepare`]).
//! 2. The backup is copied to a file beside the store. The copy is advanced past the values that must not be reused
//!    (`advanced_values`), checked again and synced.
//! 3. The log of the old store is merged into its file, the file is renamed, and the copy takes its name (`disk`).
//!
//! A crash at any time leaves the old store or the new one, and the next restore removes leftovers.

mod access_after;
mod advanced_values;
mod disk;
mod elsewhere;
mod partners;
mod plan;

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use self::access_after::AccessAfter;
use self::advanced_values::AdvancedValues;
use self::disk::{Disk, KEPT_MARK, RealDisk, merge_log, remove_leftovers, remove_whole, replace};
pub use self::elsewhere::ElsewherePlan;
pub use self::partners::RestrictedPartner;
use self::plan::{Access, default_gap, reached_by, read_replaced};
pub use self::plan::{NUMBERS_PER_SECOND_MAX, ORDER_NUMBER_GAP_MIN, Plan, Replaced};
use super::backup::copy::{check_closed, check_sound, copy, open_unchanged, seal};
use super::backup::space::check_room;
use super::backup::{BackupFault, Contents, FileOperation, ProgressCallback, check_regular};
use super::fault::OpenFault;
use super::lock::{StoreLock, lock_of};
use super::migrations::check;
use super::paths::{SIDECARS, beside, folder_of, resolved};
use super::private;
use crate::domain::ids::OrderNumber;
use crate::domain::time::Timestamp;
use crate::ports::world::World;

/// Whether a prepared restore is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Only show the plan. The store may be in use.
    DryRun,
    /// Replace the store with the backup.
    Replace,
}

/// Options of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Whether to restore, or only to show the plan.
    pub intent: Intent,
    /// Number of order numbers to skip. The default exceeds the numbers that can have been issued since the backup.
    pub order_number_gap: Option<u64>,
    /// Whether the gate is held after the restore, so that nothing is posted until the operator releases it.
    pub held: bool,
}

/// A prepared restore of a sound backup. Nothing was changed yet.
#[derive(Debug)]
pub struct Restoration {
    plan: Plan,
    values: AdvancedValues,
    source: Connection,
    exclusive: Option<StoreLock>,
}

impl Restoration {
    /// Checks the backup and the store, and creates the plan. Blocks while it reads the backup.
    ///
    /// # Errors
    /// [`BackupFault`] when the restore is not possible. Nothing was changed.
    pub fn prepare(
        store: &Path,
        file: &Path,
        options: RestoreOptions,
        world: &dyn World,
        on_progress: ProgressCallback<'_>,
    ) -> Result<Self, BackupFault> {
        let (store, file) = (resolved(store), resolved(file));
        if !file.exists() {
            return Err(BackupFault::Missing { path: file });
        }
        if store == file {
            return Err(BackupFault::SameFile { path: file });
        }
        check_regular(&file)?;
        check_closed(&file)?;
        let (exclusive, in_use) = lock(&store, options.intent)?;
        let source = open_unchanged(&file).map_err(|error| FileOperation::of("open", &file).sql(error))?;
        // The cheap check of the schema precedes the check of the whole file.
        if check(&source, &file)? == 0 {
            return Err(BackupFault::Empty { path: file });
        }
        check_sound(&source, &file, on_progress)?;
        let backup = Contents::read(&source, &file)?;
        let access = Access::read(&source).map_err(|fault| FileOperation::of("read", &file).sql(fault))?;
        let (replaced, replaced_access) = read_replaced(&store)?;

        let now = world.now();
        let reached = reached_by(&replaced);
        let gap = match options.order_number_gap {
            Some(gap) => gap,
            None => default_gap(reached.is_some(), (&file, &backup), now)?,
        };
        let after = AccessAfter::of(access, replaced_access);
        let (reached, options) = (reached.unwrap_or_default(), (gap, options.held));
        let taken = (after.revoked_again.clone(), after.restricted.clone());
        let values = AdvancedValues::try_new((&file, &backup), reached, options, taken, now)?;
        let plan = Plan {
            kept: has_any_file(&store).then(|| kept_name(&store, now)),
            gap,
            next_number: OrderNumber::from_counter(values.register.next),
            gate: values.gate.as_ref().map(|record| record.value),
            revoked_again: after.revoked_again,
            restricted: after.restricted,
            keys_gone: after.keys_gone,
            keys_working: after.keys_working,
            file,
            backup,
            store,
            replaced,
            in_use,
        };
        Ok(Self { plan, values, source, exclusive })
    }

    /// Returns the plan.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Performs the restore. Blocks until the new store is synced.
    ///
    /// # Errors
    /// [`BackupFault`]: the old store is still in place, unless only the last sync of the folder failed.
    /// [`BackupFault::InUse`] after [`Intent::DryRun`].
    pub fn carry_out(self, on_progress: ProgressCallback<'_>) -> Result<Plan, BackupFault> {
        self.carry_out_on(&RealDisk, on_progress)
    }

    fn carry_out_on(self, disk: &dyn Disk, on_progress: ProgressCallback<'_>) -> Result<Plan, BackupFault> {
        let Self { plan, values, source, exclusive } = self;
        let Some(exclusive) = exclusive else {
            return Err(BackupFault::InUse { lock: lock_of(&plan.store), store: plan.store });
        };
        let prepared = Prepared { path: beside(&plan.store, ".restoring"), disk };
        let removed = remove_leftovers(disk, &plan.store, &prepared.path);
        removed.map_err(|error| FileOperation::of("clean up beside", &plan.store).file(error))?;

        // No space is reserved: no other process writes to the store, and a restore must not fail for space it does not need.
        let check_space =
            |rest| check_room(&prepared.path, (rest, 0), &|folder: &Path| disk.free_bytes(folder));
        let fresh =
            copy((&source, &plan.file), &prepared.path, Some(&plan.store), &check_space, on_progress)?;
        values.write(&fresh).map_err(|fault| FileOperation::of("write", &prepared.path).sql(fault))?;
        check_sound(&fresh, &prepared.path, on_progress)?;
        seal(fresh, &prepared.path)?;
        let copied = copy_owner(&prepared.path, &plan.store);
        copied.map_err(|error| FileOperation::of("change the owner of", &prepared.path).file(error))?;

        // Holds the old file locked until the end, so that no other process reads or writes it.
        let merged = if plan.store.exists() { merge_log(&plan.store)? } else { None };
        // This name is not used if there is no store.
        let kept = plan.kept.clone().unwrap_or_else(|| beside(&plan.store, KEPT_MARK));
        replace(disk, &plan.store, &prepared.path, &kept)?;
        drop((merged, exclusive));
        Ok(plan)
    }
}

/// The copy that replaces the store. It is removed if the restore fails.
struct Prepared<'a> {
    path: PathBuf,
    disk: &'a dyn Disk,
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if let Err(error) = remove_whole(self.disk, &self.path) {
            tracing::warn!(%error, "The copy {} cannot be removed; the next restore removes it", self.path.display());
        }
    }
}

/// Acquires the store's lock for a replacement. Also returns whether other processes use the store.
fn lock(store: &Path, intent: Intent) -> Result<(Option<StoreLock>, bool), BackupFault> {
    let folder = folder_of(store);
    match intent {
        Intent::DryRun if !folder.exists() => Ok((None, false)),
        // Released immediately, so that showing a plan does not prevent the service from starting.
        Intent::DryRun => Ok((None, StoreLock::exclusive(store)?.is_none())),
        Intent::Replace => {
            private::create_folder(folder)
                .map_err(|source| OpenFault::Folder { folder: folder.to_owned(), source })?;
            let exclusive = StoreLock::exclusive(store)?;
            let in_use = || BackupFault::InUse { store: store.to_owned(), lock: lock_of(store) };
            let exclusive = exclusive.ok_or_else(in_use)?;
            // The replaced store is kept, and SQLite creates sidecars with its mode.
            private::restrict(store);
            Ok((Some(exclusive), false))
        }
    }
}

/// Gives the copy the owner of the store that it replaces, because a restore may run as root and the service does not.
/// If there was no store, the copy gets the owner of the folder.
fn copy_owner(prepared: &Path, store: &Path) -> io::Result<()> {
    let file = File::open(prepared)?;
    let model = store.metadata().or_else(|_| folder_of(store).metadata())?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (model.uid(), model.gid()) {
        match fchown(&file, Some(model.uid()), Some(model.gid())) {
            // The process may lack the right to assign this group. The owner can still read the file.
            Err(error) if own.uid() == model.uid() && error.kind() == io::ErrorKind::PermissionDenied => {}
            given => given?,
        }
    }
    file.sync_all()
}

/// Returns whether the store or one of its sidecars exists.
fn has_any_file(store: &Path) -> bool {
    store.exists() || SIDECARS.iter().any(|suffix| beside(store, suffix).exists())
}

/// Returns the name under which a store that is replaced at `now` is kept.
fn kept_name(store: &Path, now: Timestamp) -> PathBuf {
    let time: String = now.to_string().chars().filter(|c| !matches!(c, '-' | ':')).collect();
    beside(store, &format!("{KEPT_MARK}{time}"))
}

#[cfg(test)]
mod tests;
