//! Monitors the free space of the file system of an embedded store. A process is reported as not ready when the file system is
//! almost full, before its first write fails.

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::select;
use postonce_shared::adapters::sqlite::{free_bytes_beside, log_of};
use postonce_shared::config::StorageConfig;
use postonce_shared::ports::world::World;
use tracing::{debug, info, warn};

use crate::background_task::{BackgroundTask, run_every};
use crate::drain::Drain;
use crate::meter::{DiskBytes, Meter};
use crate::readiness::{Part, Readiness};

/// Free bytes below which the process is not ready: the usual size of the write-ahead log.
const FREE_BYTES_MIN: u64 = 64 * MIB;
/// Free bytes below which a warning is logged.
const FREE_BYTES_LOW: u64 = 1024 * MIB;
/// Interval between two readings, each of which is a system call.
const INTERVAL: Duration = Duration::from_secs(5);
const MIB: u64 = 1024 * 1024;

/// Monitors and records the free space until the drain starts. Returns immediately for a store on other machines.
pub async fn watch(
    storage: &StorageConfig,
    readiness: &Arc<Readiness>,
    meter: &Arc<Meter>,
    (world, drain): (&dyn World, &Drain),
) {
    let StorageConfig::Sqlite { path } = storage else { return };
    let disk = Disk {
        file: path.clone(),
        readiness: Arc::clone(readiness),
        meter: Arc::clone(meter),
        is_low: AtomicBool::new(false),
    };
    let reading = async {
        disk.run().await;
        run_every(&disk, INTERVAL, world, drain).await;
    };
    // The drain must not wait for a file system that does not respond.
    select(pin!(drain.started()), pin!(reading)).await;
}

struct Disk {
    file: PathBuf,
    readiness: Arc<Readiness>,
    meter: Arc<Meter>,
    /// Whether a warning was logged and the space is still low.
    is_low: AtomicBool,
}

#[async_trait]
impl BackgroundTask for Disk {
    async fn run(&self) {
        let file = self.file.clone();
        // The file system may not respond.
        let read = tokio::task::spawn_blocking(move || {
            let database = std::fs::metadata(&file).ok().map(|file| file.len());
            // A missing write-ahead log has no bytes.
            let log = std::fs::metadata(log_of(&file)).map_or(0, |file| file.len());
            (free_bytes_beside(&file), database, log)
        });
        match read.await {
            Ok((free, database, log)) => {
                let bytes =
                    DiskBytes { free: free.as_ref().ok().copied().flatten(), database, log: Some(log) };
                self.meter.disk.record(bytes);
                self.note(free);
            }
            Err(ended) => self.note(Err(io::Error::other(ended))),
        }
    }
}

impl Disk {
    /// Records the free space; `None` if the file system does not report it.
    fn note(&self, free: io::Result<Option<u64>>) {
        let file = self.file.display();
        let free = match free {
            Ok(Some(free)) => free,
            Ok(None) => return,
            Err(error) => return debug!("The free space beside {file} cannot be read: {error}"),
        };
        let is_low = free < FREE_BYTES_LOW;
        if self.is_low.swap(is_low, Ordering::Relaxed) != is_low {
            let mib = free.div_euclid(MIB);
            if is_low {
                warn!(
                    "The file system of {file} has {mib} MiB left; below {} MiB the process is not ready",
                    FREE_BYTES_MIN.div_euclid(MIB)
                );
            } else {
                info!("The file system of {file} has room again: {mib} MiB");
            }
        }
        if free < FREE_BYTES_MIN {
            self.readiness.lose(Part::Disk);
        } else {
            self.readiness.gain(Part::Disk);
        }
    }
}

#[cfg(test)]
mod tests {
    use postonce_shared::adapters::memory::world::TestWorld;

    use super::*;

    #[tokio::test]
    async fn a_process_is_not_ready_while_the_disk_is_almost_full() {
        let world: Arc<dyn World> = Arc::new(TestWorld::new(1));
        let readiness = Readiness::starting([], &world);
        let disk = Disk {
            file: PathBuf::from("data/store.db"),
            readiness: Arc::clone(&readiness),
            meter: Arc::default(),
            is_low: AtomicBool::new(false),
        };
        let missing = |free| {
            disk.note(free);
            readiness.missing().iter().map(|missing| missing.part).collect::<Vec<_>>()
        };
        assert_eq!(missing(Ok(Some(FREE_BYTES_MIN))), []);
        assert_eq!(missing(Ok(Some(FREE_BYTES_MIN - 1))), [Part::Disk]);
        // An unknown value changes nothing.
        assert_eq!(missing(Ok(None)), [Part::Disk]);
        assert_eq!(missing(Err(io::Error::other("no answer"))), [Part::Disk]);
        assert_eq!(missing(Ok(Some(FREE_BYTES_LOW))), []);
    }

    #[tokio::test]
    async fn the_free_space_of_a_real_file_system_is_read() {
        let world: Arc<dyn World> = Arc::new(TestWorld::new(1));
        let readiness = Readiness::starting([Part::Disk], &world);
        let file = std::env::current_dir().unwrap().join("Cargo.toml");
        let (meter, is_low) = (Arc::<Meter>::default(), AtomicBool::new(false));
        Disk { file, readiness: Arc::clone(&readiness), meter: Arc::clone(&meter), is_low }.run().await;
        assert_eq!(readiness.missing(), [], "the tests need more than {FREE_BYTES_MIN} bytes");
        let bytes = meter.disk.get().unwrap();
        assert!(bytes.free > Some(FREE_BYTES_MIN) && bytes.database > Some(100), "{bytes:?}");
        assert_eq!(bytes.log, Some(0), "there is no log");
    }
}
