//! Batches: many deposits in one NDJSON document, from the first byte that is sent until the batch is completed.
//!
//! Every item is new and can be posted. The document is in memory before the time starts. Each arm of each round is a
//! new store, so the rounds are alike, and the largest memory of the processes is that of one batch.

mod azure;
mod client;
mod document;
mod embedded;
mod inserts;
mod store_file;

use std::path::Path;

use bytes::Bytes;
use postonce_shared::domain::ids::AccountKey;
use postonce_tests::process_probe::memory_peak_kib;

use crate::bench::prelude::*;
use crate::bench::throughput::{Cost, POSTED, PROCESSOR, cost};

pub use azure::measure as measure_azure;
pub use embedded::measure as measure_embedded;

/// From the first byte of the document to the answer that shows the completion.
const TIME: Measure = Measure::of("until completed", Unit::Microseconds);
/// The largest memory of a process of the bank so far.
const MEMORY: Measure = Measure::of("most memory of a process", Unit::Kibibytes);
/// Growth of the files of the store.
const STORED: Measure = Measure::of("bytes stored an item", Unit::Bytes);

const MIB: u64 = 1024;
const MEMORY_MAX: u64 = 256 * MIB;

/// The size of a batch.
#[derive(Debug, Clone, Copy)]
struct Size {
    items: u64,
    accounts: usize,
}

impl Size {
    /// The name of the phase.
    fn named(self) -> String {
        let Self { items, accounts } = self;
        format!("{items} items to {accounts} accounts")
    }

    /// A document of this size. Its accounts are in the order of their ids, which is not that of their openings.
    fn document(self, accounts: &[AccountKey]) -> Bytes {
        let mut accounts = accounts.to_vec();
        accounts.sort_unstable();
        document::deposits(self.items, &accounts)
    }
}

/// Posts a batch of deposits to accounts in turn.
pub async fn deposit(target: &Target, accounts: &[AccountKey], items: u64) {
    client::post(target, items, document::deposits(items, accounts)).await;
}

/// Posts a batch. Returns the figures that every arm has, and the cost.
async fn post(arm: &Arm, items: u64, document: Bytes) -> (Sample, Cost) {
    let stored_before = arm.files.as_deref().map_or(0, bytes_in);
    let posting = async {
        client::post(&arm.target, items, document).await;
        items
    };
    let cost = cost(arm, posting).await;
    let mut sample = Sample::from([
        (TIME, micros(cost.took)),
        (POSTED, cost.posted_per_second()),
        (PROCESSOR, cost.processor_each_ns()),
    ]);
    if let Some(files) = &arm.files {
        sample.extend([(STORED, cost.each(bytes_in(files).saturating_sub(stored_before)))]);
    }
    (sample, cost)
}

/// The largest memory of a process of the arm so far.
fn memory(arm: &Arm) -> (Measure, u64) {
    let peaks = arm.processes.iter().map(|(_, pid)| memory_peak_kib(*pid));
    (MEMORY, peaks.max().unwrap_or(0))
}

/// The total size of the files in a directory and below it. Files that are removed meanwhile do not count.
fn bytes_in(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
