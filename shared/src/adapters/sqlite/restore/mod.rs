//! A backup in the place of the store.
//!
//! 1. Nobody else may use the store, and the backup is read from beginning to end: until here nothing is
//!    touched ([`Restoration::prepare`]).
//! 2. A copy of it, beside the store, is moved ahead (`ahead`), checked again and synced.
//! 3. The old store takes its log into its file, and gets another name; the copy takes its place (`disk`).
//!
//! A crash at any moment leaves the old store or the new one, and a restore that is done again cleans up.

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

/// What is meant to come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Only the plan. The store may be in use.
    Look,
    /// The backup in the place of the store.
    Replace,
}

/// What the operator decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// What is meant to come of it.
    pub intent: Intent,
    /// Order numbers to be skipped; without one, as many as are surely enough.
    pub order_number_gap: Option<u64>,
    /// Whether the gate is to be held, so that nothing is posted before somebody has looked.
    pub held: bool,
}

/// A restore that can be done: the backup is sound. Nothing was changed yet.
#[derive(Debug)]
pub struct Restoration {
    plan: Plan,
    ahead: Ahead,
    source: Connection,
    alone: Option<StoreLock>,
}

impl Restoration {
    /// Checks everything, and says what would be done. Blocks while it reads the backup.
    ///
    /// # Errors
    /// [`BackupFault`] when it must not be done. Nothing was changed.
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
        // Ours at all, and one that this program knows, before it is read from beginning to end.
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

    /// What would be done.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Does it. Blocks until it is safe from a loss of power.
    ///
    /// # Errors
    /// [`BackupFault`]: the store is the old one. [`BackupFault::InUse`] where only a look was meant.
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

        // Held until the end: nobody else reads or writes the old file.
        let settled = if plan.store.exists() { settle(&plan.store)? } else { None };
        // Where nothing is there, nothing gets this name.
        let kept = plan.kept.clone().unwrap_or_else(|| beside(&plan.store, KEPT_MARK));
        replace(disk, &plan.store, &prepared.path, &kept)?;
        drop((settled, alone));
        Ok(plan)
    }
}

/// The copy that is to become the store. Removed when it did not.
struct Prepared<'a> {
    path: PathBuf,
    disk: &'a dyn Disk,
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if let Err(error) = remove_whole(self.disk, &self.path) {
            tracing::warn!(%error, "The copy {} stays; the next restore removes it", self.path.display());
        }
    }
}

/// The lock of the store for whoever means to replace it; and whether others use the store.
fn lock(store: &Path, intent: Intent) -> Result<(Option<StoreLock>, bool), BackupFault> {
    let folder = folder_of(store);
    match intent {
        Intent::Look if !folder.exists() => Ok((None, false)),
        // Given back at once: a look must not keep the service from starting.
        Intent::Look => Ok((None, StoreLock::alone(store)?.is_none())),
        Intent::Replace => {
            private::create_folder(folder)
                .map_err(|source| OpenFault::Folder { folder: folder.to_owned(), source })?;
            let alone = StoreLock::alone(store)?;
            let in_use = || BackupFault::InUse { store: store.to_owned(), lock: lock_of(store) };
            let alone = alone.ok_or_else(in_use)?;
            // The replaced store is kept, and the files that SQLite makes beside it have its mode.
            private::narrow(store);
            Ok((Some(alone), false))
        }
    }
}

/// What becomes of the keys.
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

/// Gives the copy the owner of the store that it replaces: a restore may run as root, and the service does
/// not. Where there was no store, its owner is the owner of the folder.
fn hand_over(prepared: &Path, store: &Path) -> io::Result<()> {
    let file = File::open(prepared)?;
    let model = store.metadata().or_else(|_| folder_of(store).metadata())?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (model.uid(), model.gid()) {
        match fchown(&file, Some(model.uid()), Some(model.gid())) {
            // A group of the folder that is not ours; the owner can read it all the same.
            Err(error) if own.uid() == model.uid() && error.kind() == io::ErrorKind::PermissionDenied => {}
            given => given?,
        }
    }
    file.sync_all()
}

/// Whether there is anything of a store at that path.
fn is_anything(store: &Path) -> bool {
    store.exists() || SIDECARS.iter().any(|suffix| beside(store, suffix).exists())
}

/// The name under which a store is kept that was replaced at that time.
fn kept_name(store: &Path, now: Timestamp) -> PathBuf {
    let time: String = now.to_string().chars().filter(|c| !matches!(c, '-' | ':')).collect();
    beside(store, &format!("{KEPT_MARK}{time}"))
}

#[cfg(test)]
mod tests;
