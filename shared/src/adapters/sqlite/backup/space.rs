//! Limits the disk space that a copy of the store may use.
//!
//! A backup needs space for its own file and for the write-ahead log of the running service, which grows because SQLite
//! cannot reuse the log while the snapshot is open. Both are checked before each step of the copy. So the backup fails
//! before the disk is full, and the service continues.

use std::io;
use std::path::{Path, PathBuf};

use super::fault::{BackupFault, FileOperation};
use crate::adapters::sqlite::paths::{beside, folder_of};

/// One MiB, the unit in messages.
const MIB: u64 = 1024 * 1024;

/// Limits on the space that a backup uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceLimits {
    /// Bytes that must stay free on the file system of the backup, and on the file system of the store while the log grows.
    pub free_bytes_min: u64,
    /// Bytes by which the write-ahead log of the store may grow during the copy.
    pub log_growth_bytes_max: u64,
}

impl SpaceLimits {
    /// The default limits. 128 MiB stay free, which is twice the usual length of the log, and the log may grow by 1 GiB.
    pub const DEFAULT: Self = Self { free_bytes_min: 128 * MIB, log_growth_bytes_max: 1024 * MIB };
}

/// Returns the bytes that this process may still write to a file system, or `None` if it does not report its size.
pub(in crate::adapters::sqlite) fn free_bytes(folder: &Path) -> io::Result<Option<u64>> {
    let status = rustix::fs::statvfs(folder)?;
    Ok((status.f_blocks > 0).then(|| status.f_bavail.saturating_mul(status.f_frsize)))
}

/// Returns the free space of a folder, like [`free_bytes`]. Tests replace it.
pub(in crate::adapters::sqlite) type FreeBytes<'a> = &'a dyn Fn(&Path) -> io::Result<Option<u64>>;

/// Fails if fewer than `reserve` bytes would stay free after writing `rest` more bytes to a file.
pub(in crate::adapters::sqlite) fn check_room(
    file: &Path,
    (rest, reserve): (u64, u64),
    free: FreeBytes<'_>,
) -> Result<(), BackupFault> {
    match free_of(file, free)? {
        Some(free) if free < rest.saturating_add(reserve) => Err(BackupFault::NoRoom {
            file: file.to_owned(),
            free_mib: free.div_euclid(MIB),
            rest_mib: rest.div_ceil(MIB),
            reserve_mib: reserve.div_ceil(MIB),
        }),
        Some(_) | None => Ok(()),
    }
}

fn free_of(file: &Path, free: FreeBytes<'_>) -> Result<Option<u64>, BackupFault> {
    let folder = folder_of(file);
    free(folder).map_err(|error| FileOperation::of("read the free space of", folder).file(error))
}

/// Checks the disk space during a backup.
pub(super) struct SpaceWatch<'a> {
    store: &'a Path,
    log: PathBuf,
    log_bytes_before: u64,
    file: &'a Path,
    limits: SpaceLimits,
    free: FreeBytes<'a>,
}

impl<'a> SpaceWatch<'a> {
    /// Records the current length of the store's log.
    pub(super) fn start(
        (store, file): (&'a Path, &'a Path),
        limits: SpaceLimits,
        free: FreeBytes<'a>,
    ) -> Result<Self, BackupFault> {
        let log = beside(store, "-wal");
        let log_bytes_before = length(&log)?;
        Ok(Self { store, log, log_bytes_before, file, limits, free })
    }

    /// Fails if the log has grown too much, or if `rest` more bytes do not fit.
    pub(super) fn check(&self, rest: u64) -> Result<(), BackupFault> {
        let SpaceLimits { free_bytes_min, log_growth_bytes_max } = self.limits;
        let log_bytes = length(&self.log)?;
        let growth = log_bytes.saturating_sub(self.log_bytes_before);
        let growth_mib = growth.div_ceil(MIB);
        if growth > log_growth_bytes_max {
            return Err(BackupFault::LogGrows {
                log: self.log.clone(),
                log_mib: log_bytes.div_ceil(MIB),
                growth_mib,
                growth_mib_max: log_growth_bytes_max.div_euclid(MIB),
            });
        }
        // A store on a full disk can be copied to another disk, unless its log grows during the copy.
        if growth > 0
            && let Some(free) = free_of(self.store, self.free)?
            && free < free_bytes_min
        {
            return Err(BackupFault::StoreDiskFills {
                store: self.store.to_owned(),
                free_mib: free.div_euclid(MIB),
                reserve_mib: free_bytes_min.div_ceil(MIB),
                growth_mib,
            });
        }
        check_room(self.file, (rest, free_bytes_min), self.free)
    }
}

/// Returns the length of a file, or zero if it does not exist.
fn length(file: &Path) -> Result<u64, BackupFault> {
    match file.metadata() {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(FileOperation::of("read the length of", file).file(error)),
    }
}
