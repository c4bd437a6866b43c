//! Replaces the store by a backup.
//!
//! 1. No other process may use the store, and the backup is checked from beginning to end. Nothing is changed before
//!    this has succeeded ([`Restoration::prepare`]).
//! 2. A copy of the backup, beside the store, is advanced past the values that must not be reused (`ahead`), checked
//!    again and synced.
//! 3. The log of the old store is moved into its file, the file is renamed, and the copy takes its name (`disk`).
//!
//! A crash at any moment leaves the old store or the new one, and the next restore cleans up.

mod ahead;
mod disk;
mod plan;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use self::ahead::Ahead;
use self::disk::{Disk, KEPT_MARK, RealDisk, remove_whole, replace, settle, tidy_up};
use self::plan::{Access, default_gap, floor_of, look_at};
pub use self::plan::{NUMBERS_PER_SECOND_MAX, ORDER_NUMBER_GAP_MIN, Plan, Replaced};
use super::backup::copy::{check_closed, check_sound, copy, open_unchanged, seal};
use super::backup::{BackupFault, Contents, Doing, Watcher};
use super::fault::OpenFault;
use super::lock::{StoreLock, lock_of};
use super::migrations::check;
use super::paths::{SIDECARS, beside, folder_of, resolved};
use super::private;
use crate::domain::ids::{OrderNumber, PartnerId};
use crate::domain::time::Timestamp;
use crate::ports::api_keys::ApiKeyRecord;
use crate::ports::world::World;

/// Purpose of a preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Only shows the plan. The store may be in use.
    Look,
    /// Replaces the store by the backup.
    Replace,
}

/// Decisions of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Purpose of the preparation.
    pub intent: Intent,
    /// Number of order numbers to skip; by default more than can have been issued.
    pub order_number_gap: Option<u64>,
    /// Whether the gate is held after the restore, so that nothing is posted before the operator releases it.
    pub held: bool,
}

/// A restore that can be carried out: the backup is sound. Nothing was changed yet.
#[derive(Debug)]
pub struct Restoration {
    plan: Plan,
    ahead: Ahead,
    source: Connection,
    alone: Option<StoreLock>,
}

impl Restoration {
    /// Checks the backup and the store, and makes the plan. Blocks while it reads the backup.
    ///
    /// # Errors
    /// [`BackupFault`] when the restore is not possible. Nothing was changed.
    pub fn prepare(
        store: &Path,
        file: &Path,
        terms: Terms,
        world: &dyn World,
        watcher: Watcher<'_>,
    ) -> Result<Self, BackupFault> {
        let (store, file) = (resolved(store), resolved(file));
        if !file.exists() {
            return Err(BackupFault::Missing { path: file });
        }
        if store == file {
            return Err(BackupFault::SameFile { path: file });
        }
        check_closed(&file)?;
        let (alone, in_use) = lock(&store, terms.intent)?;
        let source = open_unchanged(&file).map_err(|error| Doing::of("open", &file).sql(error))?;
        // Checks first that the file is a store of a known version, before it is read from beginning to end.
        if check(&source, &file)? == 0 {
            return Err(BackupFault::Empty { path: file });
        }
        check_sound(&source, &file, watcher)?;
        let backup = Contents::read(&source, &file)?;
        let access = Access::read(&source).map_err(|fault| Doing::of("read", &file).sql(fault))?;
        let (replaced, replaced_access) = look_at(&store)?;

        let now = world.now();
        let floor = floor_of(&replaced);
        let gap = match terms.order_number_gap {
            Some(gap) => gap,
            None => default_gap(floor.is_some(), (&file, &backup), now)?,
        };
        let keys = KeysAfter::of(access.keys, replaced_access.keys);
        let suspended: BTreeSet<PartnerId> =
            replaced_access.suspended.difference(&access.suspended).cloned().collect();
        let (floor, terms) = (floor.unwrap_or_default(), (gap, terms.held));
        let taken = (keys.revoked_again.clone(), suspended.clone());
        let ahead = Ahead::try_new((&file, &backup), floor, terms, taken, now)?;
        let plan = Plan {
            kept: is_anything(&store).then(|| kept_name(&store, now)),
            gap,
            next_number: OrderNumber::from_counter(ahead.register.next),
            gate: ahead.gate,
            revoked_again: keys.revoked_again,
            suspended_again: suspended,
            keys_gone: keys.gone,
            keys_working: keys.working,
            file,
            backup,
            store,
            replaced,
            in_use,
        };
        Ok(Self { plan, ahead, source, alone })
    }

    /// Returns the plan.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Carries out the restore. Blocks until the new store is synced.
    ///
    /// # Errors
    /// [`BackupFault`]: the old store is still in place. [`BackupFault::InUse`] after [`Intent::Look`].
    pub fn carry_out(self, watcher: Watcher<'_>) -> Result<Plan, BackupFault> {
        self.carry_out_on(&RealDisk, watcher)
    }

    fn carry_out_on(self, disk: &dyn Disk, watcher: Watcher<'_>) -> Result<Plan, BackupFault> {
        let Self { plan, ahead, source, alone } = self;
        let Some(alone) = alone else {
            return Err(BackupFault::InUse { lock: lock_of(&plan.store), store: plan.store });
        };
        let prepared = Prepared { path: beside(&plan.store, ".restoring"), disk };
        let tidied = tidy_up(disk, &plan.store, &prepared.path);
        tidied.map_err(|error| Doing::of("clean up beside", &plan.store).file(error))?;

        let fresh = copy((&source, &plan.file), &prepared.path, Some(&plan.store), watcher)?;
        ahead.write(&fresh).map_err(|fault| Doing::of("write", &prepared.path).sql(fault))?;
        check_sound(&fresh, &prepared.path, watcher)?;
        seal(fresh, &prepared.path)?;
        let handed_over = hand_over(&prepared.path, &plan.store);
        handed_over
            .map_err(|error| Doing::of("give to the owner of the store", &prepared.path).file(error))?;

        // Locked until the end: no other process reads or writes the old file.
        let settled = if plan.store.exists() { settle(&plan.store)? } else { None };
        // If there is no store, no file gets this name.
        let kept = plan.kept.clone().unwrap_or_else(|| beside(&plan.store, KEPT_MARK));
        replace(disk, &plan.store, &prepared.path, &kept)?;
        drop((settled, alone));
        Ok(plan)
    }
}

/// The copy that becomes the store. It is removed if the restore fails.
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

/// Acquires the lock of the store if it is to be replaced, and returns whether other processes use the store.
fn lock(store: &Path, intent: Intent) -> Result<(Option<StoreLock>, bool), BackupFault> {
    let folder = folder_of(store);
    match intent {
        Intent::Look if !folder.exists() => Ok((None, false)),
        // Released at once: showing a plan must not prevent the service from starting.
        Intent::Look => Ok((None, StoreLock::alone(store)?.is_none())),
        Intent::Replace => {
            private::create_folder(folder)
                .map_err(|source| OpenFault::Folder { folder: folder.to_owned(), source })?;
            let alone = StoreLock::alone(store)?;
            let in_use = || BackupFault::InUse { store: store.to_owned(), lock: lock_of(store) };
            let alone = alone.ok_or_else(in_use)?;
            // The replaced store is kept, and SQLite creates files beside it with its mode.
            private::narrow(store);
            Ok((Some(alone), false))
        }
    }
}

/// The API keys after the restore.
struct KeysAfter {
    revoked_again: Vec<ApiKeyRecord>,
    gone: Vec<ApiKeyRecord>,
    working: Vec<ApiKeyRecord>,
}

impl KeysAfter {
    fn of(backup: Vec<ApiKeyRecord>, mut replaced: Vec<ApiKeyRecord>) -> Self {
        let in_backup = |id: &str| backup.iter().any(|key| key.id == id);
        let gone = replaced.iter().filter(|key| key.revoked_at.is_none() && !in_backup(&key.id));
        let gone = gone.cloned().collect();
        replaced.retain(|key| key.revoked_at.is_some());
        let mut working: Vec<ApiKeyRecord> =
            backup.into_iter().filter(|key| key.revoked_at.is_none()).collect();
        replaced.retain(|key| working.iter().any(|works| works.id == key.id));
        working.retain(|key| replaced.iter().all(|revoked| revoked.id != key.id));
        Self { revoked_again: replaced, gone, working }
    }
}

/// Gives the copy the owner of the store that it replaces: a restore may run as root, and the service does not. If
/// there was no store, the copy gets the owner of the folder.
fn hand_over(prepared: &Path, store: &Path) -> io::Result<()> {
    let file = File::open(prepared)?;
    let model = store.metadata().or_else(|_| folder_of(store).metadata())?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (model.uid(), model.gid()) {
        match fchown(&file, Some(model.uid()), Some(model.gid())) {
            // The process may not assign the group of the folder; the owner can read the file anyway.
            Err(error) if own.uid() == model.uid() && error.kind() == io::ErrorKind::PermissionDenied => {}
            given => given?,
        }
    }
    file.sync_all()
}

/// Returns whether the store, or a file that SQLite keeps beside it, exists.
fn is_anything(store: &Path) -> bool {
    store.exists() || SIDECARS.iter().any(|suffix| beside(store, suffix).exists())
}

/// Returns the name under which a store is kept that was replaced at that time.
fn kept_name(store: &Path, now: Timestamp) -> PathBuf {
    let time: String = now.to_string().chars().filter(|c| !matches!(c, '-' | ':')).collect();
    beside(store, &format!("{KEPT_MARK}{time}"))
}

#[cfg(test)]
mod tests;
