//! Takes backups of an embedded store into a folder at an interval, and removes the oldest ones.
//!
//! The name of a backup contains its time, and the newest name decides when the next one is due: so a restart delays nothing,
//! and of several processes with the same store only one takes each backup. A lock of the store excludes two at a time. Stores with
//! the same file name cannot share a folder: each would take the backups of the other for its own.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::select;
use parking_lot::Mutex;
use postonce_shared::adapters::sqlite::backup::{
    self, BackupFault, BackupOptions, Existing, SpaceLimits, TakenBackup,
};
use postonce_shared::adapters::sqlite::create_private_folder;
use postonce_shared::config::{Config, StorageConfig};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::files::{create_private, read_regular};
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::background_task::{BackgroundTask, run_every};
use crate::drain::Drain;
use crate::meter::Meter;

/// Longest time between two looks into the folder.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Shortest time between a failed backup and the next attempt.
const FAILURE_PAUSE: Duration = Duration::from_secs(600);
/// The end of the name of a backup.
const SUFFIX: &str = ".db";
/// The end of the name of a backup that is not complete.
const PARTIAL: &str = ".db.partial";
/// The end of the name of the file with the path of the store, beside the backups.
const OWNER: &str = ".store";
/// Longest path of a store in bytes.
const PATH_BYTES_MAX: u64 = 4096;

/// Takes backups until the drain starts. Returns at once without a folder, or for a store on other machines.
pub async fn run(config: &Config, meter: &Arc<Meter>, world: &Arc<dyn World>, drain: &Drain) {
    let Some(folder) = config.backups.backup_folder.clone() else { return };
    let StorageConfig::Sqlite { path } = &config.storage else {
        return warn!("backup-folder is not used: on Azure, schedule `postonce-web backup`");
    };
    let task = ScheduledBackup {
        folder: Folder { path: folder, stem: stem_of(path) },
        store: path.clone(),
        every: config.backups.backup_every,
        keep: config.backups.backup_keep,
        meter: Arc::clone(meter),
        world: Arc::clone(world),
        not_before: Mutex::new(Duration::ZERO),
    };
    let interval = INTERVAL_MAX.min(task.every.checked_div(4).unwrap_or(INTERVAL_MAX));
    let taking = async {
        task.run().await;
        run_every(&task, interval, &**world, drain).await;
    };
    // A backup in progress must not delay the drain: its unfinished file is removed when the next one was taken.
    select(pin!(drain.started()), pin!(taking)).await;
}

/// The folder of the backups of one store.
#[derive(Debug, Clone)]
struct Folder {
    path: PathBuf,
    stem: String,
}

impl Folder {
    /// Returns the name of a backup that is taken at that time: it sorts by time.
    fn name(&self, at: Timestamp) -> String {
        let seconds = at.to_string().split('.').next().unwrap_or_default().to_owned();
        let time: String = seconds.chars().filter(char::is_ascii_alphanumeric).collect();
        format!("{}-{time}Z{SUFFIX}", self.stem)
    }

    /// Writes that the backups are those of this store, or returns the store whose backups they are. A store that is no longer there
    /// was moved, or is not used any more.
    fn owner_before(&self, store: &Path) -> io::Result<Option<PathBuf>> {
        let file = self.path.join(format!("{}{OWNER}", self.stem));
        // The backup reports that it is missing.
        let Ok(store) = store.canonicalize() else { return Ok(None) };
        let written = match create_private(&file) {
            Ok(mut created) => return created.write_all(store.as_os_str().as_bytes()).map(|()| None),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                read_regular(&file, PATH_BYTES_MAX)?
            }
            Err(error) => return Err(error),
        };
        let owner = PathBuf::from(OsString::from_vec(written));
        // The folder of the store may have been moved, with a link in its place.
        if owner.canonicalize().is_ok_and(|found| found != store && found.is_file()) {
            return Ok(Some(owner));
        }
        if owner != store {
            std::fs::write(&file, store.as_os_str().as_bytes())?;
        }
        Ok(None)
    }

    /// Returns the names with this end that were made for backups, oldest first.
    fn names(&self, suffix: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let time = name.strip_prefix(&self.stem).and_then(|rest| rest.strip_prefix('-'));
            let time =
                time.and_then(|rest| rest.strip_suffix(suffix)).and_then(|time| time.strip_suffix('Z'));
            let is_time = |time: &str| {
                let (date, clock) = time.split_once('T').unwrap_or_default();
                let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
                (date.len(), clock.len()) == (8, 6) && digits(date) && digits(clock)
            };
            if time.is_some_and(is_time) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Removes the backups beyond the newest ones, and what backups that were interrupted before `newest` have left.
    fn clean_up(&self, keep: u16, newest: &str) -> io::Result<Vec<String>> {
        let mut old = self.names(SUFFIX)?;
        old.truncate(old.len().saturating_sub(usize::from(keep)));
        let left = self.names(PARTIAL)?.into_iter().filter(|name| name.as_str() < newest);
        for name in old.iter().cloned().chain(left) {
            std::fs::remove_file(self.path.join(name))?;
        }
        Ok(old)
    }
}

fn stem_of(store: &Path) -> String {
    store.file_stem().map_or_else(|| "postonce".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

struct ScheduledBackup {
    folder: Folder,
    store: PathBuf,
    every: Duration,
    keep: u16,
    meter: Arc<Meter>,
    world: Arc<dyn World>,
    /// The uptime before which no backup is tried, after a failure.
    not_before: Mutex<Duration>,
}

/// The result of a look into the folder.
enum Outcome {
    /// The newest backup is recent enough, or another process takes one.
    NotDue,
    /// A backup was taken.
    Taken(Box<TakenBackup>, String, Vec<String>),
}

/// Why no backup was taken, or old ones were not removed.
#[derive(Debug, thiserror::Error)]
enum ScheduleFault {
    #[error("the folder cannot be used")]
    Folder(#[source] io::Error),
    #[error("the folder has the backups of the store {}: each store needs a folder of its own", .0.display())]
    OfAnotherStore(PathBuf),
    #[error("old backups cannot be removed")]
    CleanUp(#[source] io::Error),
    #[error("a thread cannot be started")]
    Thread(#[source] io::Error),
    #[error("the thread of the backup panicked")]
    Ended,
    #[error(transparent)]
    Backup(#[from] BackupFault),
}

#[async_trait]
impl BackgroundTask for ScheduledBackup {
    fn is_due(&self) -> bool {
        self.world.uptime() >= *self.not_before.lock()
    }

    async fn run(&self) {
        let (folder, store, world) = (self.folder.clone(), self.store.clone(), Arc::clone(&self.world));
        let (every, keep, began) = (self.every, self.keep, self.world.uptime());
        // A copy of the whole file: on a thread that the end of the process does not wait for.
        let (sender, result) = oneshot::channel();
        let thread = std::thread::Builder::new().name("backup".to_owned()).spawn(move || {
            // Nobody waits for the result after the start of the drain.
            drop(sender.send(look(&folder, &store, (every, keep), &*world)));
        });
        let outcome = match thread {
            Ok(_) => result.await.unwrap_or_else(|_| Err(ScheduleFault::Ended)),
            Err(error) => Err(ScheduleFault::Thread(error)),
        };
        let folder = self.folder.path.display();
        match outcome {
            Ok(Outcome::NotDue) => self.meter.backups.note_current(true),
            Ok(Outcome::Taken(taken, name, removed)) => {
                let TakenBackup { bytes, contents } = *taken;
                let took = self.world.uptime().saturating_sub(began).as_millis();
                let (accounts, transactions) = (contents.accounts, contents.transactions());
                self.meter.backups.taken.add(1);
                self.meter.backups.note_current(true);
                info!(
                    bytes,
                    "Took the backup {name} in {folder}: {accounts} accounts, {transactions} transactions, in {took} ms; \
                     removed {} old ones",
                    removed.len()
                );
            }
            Err(fault) => {
                self.meter.backups.failed.add(1);
                self.meter.backups.note_current(false);
                *self.not_before.lock() = self.world.uptime().saturating_add(FAILURE_PAUSE.min(self.every));
                error!("No backup was taken in {folder}: {}", chain(&fault));
            }
        }
    }
}

/// Takes a backup if it is due, and removes old ones. Blocks.
fn look(
    folder: &Folder,
    store: &Path,
    (every, keep): (Duration, u16),
    world: &dyn World,
) -> Result<Outcome, ScheduleFault> {
    create_private_folder(&folder.path).map_err(ScheduleFault::Folder)?;
    if let Some(other) = folder.owner_before(store).map_err(ScheduleFault::Folder)? {
        return Err(ScheduleFault::OfAnotherStore(other));
    }
    let newest = folder.names(SUFFIX).map_err(ScheduleFault::Folder)?.pop();
    let now = world.now();
    // A name of the future, from a wrong clock, must not stop all backups.
    let (latest, oldest) = (folder.name(now), folder.name(now.before(every)));
    if newest.is_some_and(|newest| newest > oldest && newest <= latest) {
        return Ok(Outcome::NotDue);
    }
    let options = BackupOptions { existing: Existing::Keep, limits: SpaceLimits::DEFAULT };
    match backup::take(store, &folder.path.join(&latest), options, world, &mut |_| {}) {
        Ok(taken) => {
            let removed = folder.clean_up(keep, &latest).map_err(ScheduleFault::CleanUp)?;
            Ok(Outcome::Taken(Box::new(taken), latest, removed))
        }
        // Another process takes one, or has just taken it.
        Err(BackupFault::UnderWay | BackupFault::Exists { .. }) => Ok(Outcome::NotDue),
        Err(fault) => Err(fault.into()),
    }
}

#[cfg(test)]
mod tests {
    use postonce_shared::adapters::sqlite::{Enqueue, SqliteStore};
    use postonce_shared::adapters::system::SystemWorld;

    use super::*;

    fn task(folder: &Path, store: &Path, keep: u16) -> ScheduledBackup {
        ScheduledBackup {
            folder: Folder { path: folder.to_owned(), stem: stem_of(store) },
            store: store.to_owned(),
            every: Duration::from_secs(3600),
            keep,
            meter: Arc::default(),
            world: Arc::new(SystemWorld::new()),
            not_before: Mutex::new(Duration::ZERO),
        }
    }

    #[tokio::test]
    async fn a_backup_is_taken_when_it_is_due_and_the_oldest_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let (folder, store) = (home.path().join("backups"), home.path().join("bank.db"));
        let enqueue: Enqueue = Arc::new(|_| Vec::new());
        let _open = SqliteStore::open(&store, enqueue, Arc::new(SystemWorld::new())).unwrap();
        let task = task(&folder, &store, 2);
        task.run().await;
        task.run().await;
        assert_eq!(task.folder.names(SUFFIX).unwrap().len(), 1, "the second one is not due");
        assert_eq!((task.meter.backups.taken.get(), task.meter.backups.failed.get()), (1, 0));
        // Only old backups, and one of the future.
        let newest = task.folder.names(SUFFIX).unwrap().remove(0);
        std::fs::rename(folder.join(newest), folder.join("bank-20200101T000000Z.db")).unwrap();
        let others =
            ["bank-20190101T000000Z.db", "bank-20180101T000000Z.db.partial", "other.db", "bank-2020.db"];
        others.iter().for_each(|name| std::fs::write(folder.join(name), "x").unwrap());
        task.run().await;
        let kept = task.folder.names(SUFFIX).unwrap();
        assert_eq!((kept.len(), kept[0].as_str()), (2, "bank-20200101T000000Z.db"));
        assert_eq!(task.folder.names(PARTIAL).unwrap(), Vec::<String>::new());
        assert!(folder.join("other.db").exists() && folder.join("bank-2020.db").exists(), "of others");
        assert_eq!(task.meter.backups.current(), Some(true));
    }

    #[tokio::test]
    async fn a_folder_has_the_backups_of_one_store() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("backups");
        let (one, other) = (home.path().join("one/bank.db"), home.path().join("other/bank.db"));
        let enqueue: Enqueue = Arc::new(|_| Vec::new());
        let open =
            |store| SqliteStore::open(store, Arc::clone(&enqueue), Arc::new(SystemWorld::new())).unwrap();
        let _open = (open(&one), open(&other));
        let (of_one, of_other) = (task(&folder, &one, 2), task(&folder, &other, 2));
        of_one.run().await;
        of_other.run().await;
        assert_eq!((of_other.meter.backups.failed.get(), of_other.meter.backups.current()), (1, Some(false)));
        of_one.run().await;
        assert_eq!(of_one.meter.backups.current(), Some(true), "it is the owner as before");
        let moved = home.path().join("moved");
        std::fs::rename(home.path().join("one"), &moved).unwrap();
        std::os::unix::fs::symlink(&moved, home.path().join("one")).unwrap();
        let linked = task(&folder, &one, 2);
        linked.run().await;
        assert_eq!(linked.meter.backups.current(), Some(true), "it is the same store behind a link");
        std::fs::remove_dir_all(&moved).unwrap();
        of_other.run().await;
        assert_eq!(of_other.meter.backups.current(), Some(true));
    }

    #[tokio::test]
    async fn a_failure_is_counted_and_not_repeated_at_once() {
        let home = tempfile::tempdir().unwrap();
        let task = task(&home.path().join("backups"), &home.path().join("missing.db"), 2);
        task.run().await;
        assert_eq!((task.meter.backups.taken.get(), task.meter.backups.failed.get()), (0, 1));
        assert!(task.meter.backups.current() == Some(false) && !task.is_due());
    }
}
