//! The current speed of the machine. Shared machines change their speed, and figures from before and after such a
//! change cannot be compared.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postonce_tests::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::bench::figures::micros;

/// Writes of a probe, each of which is made durable.
const WRITES: usize = 25;
/// The content of a write: one page.
const PAGE: [u8; 4096] = [7; 4096];
/// Runs of the processor probe; the fastest one counts.
const WORKOUTS: usize = 5;
/// Bytes that each run hashes.
const HASHED_BYTES: usize = 4 << 20;

/// Limit, in hundredths, above which a difference of the disk speed counts as a change. It varies a lot by itself.
const DISK_CHANGE: u128 = 220;
/// The same limit for the processor.
const PROCESSOR_CHANGE: u128 = 130;

/// The machine, and the directory for the files of measurements.
pub struct Machine {
    directory: PathBuf,
}

/// The result of a probe.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    /// Median time to make a page durable.
    pub disk: Duration,
    /// Time of a fixed amount of work.
    pub processor: Duration,
}

impl Machine {
    /// This machine. The files are in the build directory of Cargo, because `/tmp` may not be on a disk.
    pub fn here() -> Self {
        let directory = workspace::target_directory().join("bench");
        std::fs::create_dir_all(&directory).expect("create the directory for measurements");
        Self { directory }
    }

    /// The directory of the stores of all arms, of the file of the probe and of the results.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Measures the disk and the processor, in about a tenth of a second.
    pub fn probe(&self) -> Speed {
        Speed { disk: self.disk(), processor: processor() }
    }

    fn disk(&self) -> Duration {
        let path = self.directory.join("probe");
        let mut file = File::create(&path).expect("create a file");
        let mut times: Vec<Duration> = (0..WRITES)
            .map(|_| {
                let watch = Stopwatch::start();
                file.write_all(&PAGE).and_then(|()| file.sync_data()).expect("write a page");
                watch.elapsed()
            })
            .collect();
        drop(std::fs::remove_file(path));
        times.sort();
        times.get(WRITES.div_euclid(2)).copied().unwrap_or_default()
    }

    /// The description of the machine for readers of the figures.
    pub fn described(&self) -> Value {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let line = |text: &str, name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name));
            found.unwrap_or_default().trim_start_matches([':', ' ', '\t']).to_owned()
        };
        let Speed { disk, processor } = self.probe();
        json!({
            "processor": line(&read("/proc/cpuinfo"), "model name"),
            "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "memory": line(&read("/proc/meminfo"), "MemTotal"),
            "kernel": read("/proc/sys/kernel/osrelease").trim(),
            "fdatasync_us": micros(disk),
            "hashing_4_mib_us": micros(processor),
        })
    }
}

fn processor() -> Duration {
    let bytes = vec![7_u8; HASHED_BYTES];
    let run = || {
        let watch = Stopwatch::start();
        std::hint::black_box(Sha256::digest(&bytes));
        watch.elapsed()
    };
    (0..WORKOUTS).map(|_| run()).min().unwrap_or_default()
}

/// The change between the probes of a round, if there was one.
pub fn change(speeds: &[Speed]) -> Option<String> {
    let differs = |what: &str, speed: fn(&Speed) -> Duration, hundredths: u128| {
        let times: Vec<u128> = speeds.iter().map(|it| speed(it).as_micros()).collect();
        let (least, most) = (*times.iter().min()?, *times.iter().max()?);
        let limit = least.saturating_mul(hundredths).div_euclid(100);
        (most > limit).then(|| format!("the {what} went from {least} to {most} µs"))
    };
    differs("disk", |it| it.disk, DISK_CHANGE)
        .or_else(|| differs("processor", |it| it.processor, PROCESSOR_CHANGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_disk_or_processor_is_reported_and_normal_variation_is_not() {
        let speed = |disk, processor| Speed {
            disk: Duration::from_micros(disk),
            processor: Duration::from_micros(processor),
        };
        assert_eq!(change(&[speed(60, 9000), speed(110, 9900), speed(70, 9000)]), None);
        let disk = change(&[speed(60, 9000), speed(4000, 9000)]);
        assert_eq!(disk.as_deref(), Some("the disk went from 60 to 4000 µs"));
        let processor = change(&[speed(60, 9000), speed(60, 9000), speed(60, 14000)]);
        assert_eq!(processor.as_deref(), Some("the processor went from 9000 to 14000 µs"));
    }
}
