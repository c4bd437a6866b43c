//! A backup that is filled row by row through the ports of a store. It is used for stores that are not files.
//!
//! Until the backup is complete, it is an ordinary store file named `FILE.partial`. The file remains after an
//! interruption, and the next backup continues it. `FILE` is always a complete backup or does not exist.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::contents::{ORIGIN, Origin};
use super::copy::{check_closed, check_sound, seal};
use super::{BackupFault, Contents, Existing, FileOperation, ProgressCallback, TakenBackup};
use super::{check_regular, lock_backups, publish, remove_if_exists};
use crate::adapters::sqlite::connection::{Role, connect};
use crate::adapters::sqlite::paths::{beside, database_files, folder_of, resolved};
use crate::adapters::sqlite::private;
use crate::adapters::sqlite::sync_store::overwrite;
use crate::domain::time::Timestamp;

/// The initial content of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// No content.
    Empty(Existing),
    /// The content of the existing file, which is replaced when the backup is complete.
    Update,
}

/// A backup that is not complete yet. A lock ensures that one process at a time fills it.
#[derive(Debug)]
pub struct Unfinished {
    file: PathBuf,
    partial: PathBuf,
    existing: Existing,
    is_continued: bool,
    _only_one: File,
}

impl Unfinished {
    /// Begins a backup, or continues an interrupted one.
    ///
    /// # Errors
    /// [`BackupFault`]: nothing was changed.
    pub fn begin(file: &Path, begin: Begin) -> Result<Self, BackupFault> {
        // Checked before symbolic links are resolved, because a backup must not replace the target of a link.
        check_regular(file)?;
        let file = resolved(file);
        let existing = match begin {
            Begin::Empty(Existing::Keep) if file.exists() => return Err(BackupFault::Exists { path: file }),
            Begin::Empty(existing) => existing,
            Begin::Update if !file.exists() => return Err(BackupFault::Missing { path: file }),
            Begin::Update => Existing::Replace,
        };
        if file.exists() {
            // The file may be a store in use and not an old backup.
            check_closed(&file)?;
        }
        let only_one = lock_backups(&file)?;
        let partial = beside(&file, ".partial");
        // The content is written to the partial file, so it must not be a link.
        check_regular(&partial)?;
        let is_continued = partial.exists();
        if !is_continued {
            // The lock records the identity of a removed partial file. With it, a new file would be refused as a lost store.
            let lock = beside(&partial, ".lock");
            remove_if_exists(&lock).map_err(|error| FileOperation::of("remove", &lock).file(error))?;
        }
        if !is_continued && begin == Begin::Update {
            copy_file(&file, &partial).map_err(|error| FileOperation::of("copy", &file).file(error))?;
        }
        Ok(Self { file, partial, existing, is_continued, _only_one: only_one })
    }

    /// Returns the path of the store file to fill. The file may not exist yet.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Returns whether this backup continues an interrupted one.
    pub const fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// Completes the backup: checks, syncs and renames the file. All ports of the partial store must be dropped. Blocks.
    ///
    /// # Errors
    /// [`BackupFault`]: unless the file was already renamed, an existing file is unchanged and the partial file remains.
    pub fn publish(
        self,
        taken_at: Timestamp,
        on_progress: ProgressCallback<'_>,
    ) -> Result<TakenBackup, BackupFault> {
        let Self { file, partial, existing, .. } = self;
        let writing = || FileOperation::of("write", &partial);
        let connection = connect(&partial, Role::Write).map_err(|error| writing().sql(error))?;
        overwrite(&connection, ORIGIN, &Origin::of(Some(taken_at), None).encode())
            .map_err(|fault| writing().sql(fault))?;
        // Checkpoints the write-ahead log, so that the file is complete without it.
        let journal_mode: String = connection
            .query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))
            .map_err(|error| writing().sql(error))?;
        if journal_mode != "delete" {
            return Err(writing().file(io::Error::other("another process has the file open")));
        }
        check_sound(&connection, &partial, on_progress)?;
        let contents = Contents::read(&connection, &partial)?;
        seal(connection, &partial)?;
        let bytes =
            partial.metadata().map_err(|error| FileOperation::of("read", &partial).file(error))?.len();
        publish(&partial, &file, existing)?;
        for left in database_files(&partial).chain([beside(&partial, ".lock")]) {
            remove_if_exists(&left).map_err(|error| FileOperation::of("remove", &left).file(error))?;
        }
        Ok(TakenBackup { bytes, contents })
    }
}

/// Copies a file under a temporary name, and renames the copy when it is complete.
fn copy_file(file: &Path, to: &Path) -> io::Result<()> {
    let copying = beside(to, ".copying");
    remove_if_exists(&copying)?;
    let mut target = private::create(&copying, None)?;
    io::copy(&mut File::open(file)?, &mut target)?;
    target.sync_all()?;
    std::fs::rename(&copying, to)?;
    File::open(folder_of(to))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::sqlite::SqliteStore;
    use crate::adapters::sqlite::backup::{BackupOptions, SpaceLimits, take};
    use crate::adapters::sqlite::restore::{Intent, Restoration, RestoreOptions};
    use crate::adapters::system::SystemWorld;
    use crate::ports::fault::chain;
    use crate::ports::world::World as _;
    use std::sync::Arc;

    fn fill(unfinished: &Unfinished) {
        let enqueue: crate::adapters::sqlite::Enqueue = Arc::new(|_| Vec::new());
        drop(SqliteStore::open(unfinished.partial(), enqueue, Arc::new(SystemWorld::new())).unwrap());
    }

    #[test]
    fn the_name_refers_to_a_complete_backup_or_to_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (file, now) = (folder.path().join("a.db"), SystemWorld::new().now());
        let begin = |begin| Unfinished::begin(&file, begin);
        assert!(matches!(begin(Begin::Update), Err(BackupFault::Missing { .. })));
        let first = begin(Begin::Empty(Existing::Keep)).unwrap();
        assert!(!first.is_continued());
        assert!(matches!(begin(Begin::Empty(Existing::Keep)), Err(BackupFault::UnderWay)));
        fill(&first);
        drop(first);
        assert!(!file.exists(), "an interrupted backup has no name");
        let again = begin(Begin::Empty(Existing::Keep)).unwrap();
        assert!(again.is_continued());
        let taken = again.publish(now, &mut |_| {}).unwrap();
        assert_eq!(taken.contents.taken_at, Some(now));
        let names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert!(names.iter().all(|name| name == "a.db" || name == "a.db.backup-lock"), "{names:?}");
        assert!(matches!(begin(Begin::Empty(Existing::Keep)), Err(BackupFault::Exists { .. })));
        let update = begin(Begin::Update).unwrap();
        assert!(!update.is_continued() && update.partial().exists(), "an update begins with the content");
        fill(&update);
        let taken = update.publish(now.after(std::time::Duration::from_secs(1)), &mut |_| {}).unwrap();
        assert!(taken.contents.taken_at > Some(now));
    }

    #[test]
    fn a_backup_takes_the_place_of_no_link_and_of_no_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let world = SystemWorld::new();
        std::fs::write(path("target"), "kept").unwrap();
        std::os::unix::fs::symlink(path("target"), path("link.db")).unwrap();
        std::os::unix::fs::symlink(path("target"), path("a.db.partial")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe.db"), rustix::fs::Mode::RUSR).unwrap();
        fill(&Unfinished::begin(&path("store.db"), Begin::Empty(Existing::Keep)).unwrap());
        let store = path("store.db.partial");
        let options = BackupOptions { existing: Existing::Replace, limits: SpaceLimits::DEFAULT };
        for (name, kind) in
            [("link.db", "a symbolic link"), ("pipe.db", "a pipe"), ("a.db", "a symbolic link")]
        {
            let begun = Unfinished::begin(&path(name), Begin::Empty(Existing::Replace));
            let why = chain(&begun.unwrap_err());
            assert!(why.contains(kind), "{why}");
            if name != "a.db" {
                let taken = take(&store, &path(name), options, &world, &mut |_| {});
                let why = chain(&taken.unwrap_err());
                assert!(why.contains(kind), "{why}");
            }
        }
        // A backup with `take` removes remains of an earlier one, even a link, and creates a new file.
        take(&store, &path("a.db"), options, &world, &mut |_| {}).unwrap();
        assert_eq!(std::fs::read(path("target")).unwrap(), b"kept");
        let terms = RestoreOptions { intent: Intent::DryRun, order_number_gap: None, held: false };
        let prepared = Restoration::prepare(&store, &path("pipe.db"), terms, &world, &mut |_| {});
        let why = chain(&prepared.err().unwrap());
        assert!(why.contains("a pipe"), "{why}");
    }
}
