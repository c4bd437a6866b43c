//! Process faults: kills one process or several at once, suspends a process for longer than its leases, or drains it. On
//! SQLite, another connection also holds the lock of the file for some time.

use std::path::Path;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rusqlite::{Connection, OpenFlags};

use super::phase::CurrentPhase;
use super::process_group::ProcessGroup;
use super::results::{ProcessKind, RunResults};
use crate::wait;

/// Pause between two kills, in milliseconds.
const KILL_PAUSE_MS: std::ops::Range<u64> = 400..1_300;
/// Duration of a suspension in milliseconds, longer than a lease.
const SUSPENSION_MS: std::ops::Range<u64> = 2_300..4_500;
/// Pause between two suspensions, in milliseconds.
const SUSPENSION_PAUSE_MS: std::ops::Range<u64> = 500..4_000;
/// Pause between two holds of the lock, and short and long duration of a hold, in milliseconds. A process waits about five
/// seconds for the lock before it reports that the store is unavailable.
const LOCK_PAUSE_MS: std::ops::Range<u64> = 2_000..8_000;
const LOCK_SHORT_MS: std::ops::Range<u64> = 50..1_500;
const LOCK_LONG_MS: std::ops::Range<u64> = 5_200..6_500;

/// Kills processes of one kind, or of any kind, during the fault phase.
pub async fn kill_processes(
    processes: &ProcessGroup,
    phase: &CurrentPhase,
    kind: Option<ProcessKind>,
    results: &RunResults,
    seed: u64,
) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        wait::pass(milliseconds(&mut rng, KILL_PAUSE_MS)).await;
        if !phase.has_faults() {
            return;
        }
        let mut running = processes.running(kind);
        if running.is_empty() {
            continue;
        }
        let one = running.swap_remove(rng.random_range(0..running.len()));
        if rng.random_range(0..4) > 0 {
            processes.kill(one);
            continue;
        }
        let others = running.into_iter().filter(|_| rng.random_range(0..2) == 0);
        let killed = others.chain([one]).filter(|slot| processes.kill(*slot)).count();
        if killed > 1 {
            results.count(|counts| counts.killed_together = counts.killed_together.saturating_add(1));
        }
    }
}

/// Suspends processes one after the other. A resumed process still believes that it holds old leases. Some processes are
/// drained instead, as in a rolling upgrade.
pub async fn suspend_and_drain(
    processes: &ProcessGroup,
    phase: &CurrentPhase,
    results: &RunResults,
    seed: u64,
) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        wait::pass(milliseconds(&mut rng, SUSPENSION_PAUSE_MS)).await;
        if !phase.has_faults() {
            return;
        }
        let running = processes.running(None);
        let Some(slot) = running.get(rng.random_range(0..running.len().max(1))).copied() else { continue };
        if rng.random_range(0..3) == 0 {
            processes.drain(slot);
        } else if processes.suspend(slot, milliseconds(&mut rng, SUSPENSION_MS)).await {
            results.count(|counts| counts.suspensions = counts.suspensions.saturating_add(1));
        }
    }
}

/// Repeatedly holds the write lock of the file, as a backup or an operator could.
pub async fn hold_lock(file: &Path, phase: &CurrentPhase, results: &RunResults, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    while phase.has_faults() {
        wait::pass(milliseconds(&mut rng, LOCK_PAUSE_MS)).await;
        // Opened each time, because the file does not exist before the first process has started.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let Ok(connection) = Connection::open_with_flags(file, flags) else { continue };
        drop(connection.busy_timeout(Duration::ZERO));
        // While processes write, the lock is rarely free.
        let mut held = false;
        for _ in 0..200 {
            held = connection.execute_batch("BEGIN IMMEDIATE").is_ok();
            if held {
                break;
            }
            wait::pass(Duration::from_millis(1)).await;
        }
        if held {
            let range = if rng.random_range(0..8) == 0 { LOCK_LONG_MS } else { LOCK_SHORT_MS };
            wait::pass(milliseconds(&mut rng, range)).await;
            connection.execute_batch("ROLLBACK").expect("a transaction without changes can be rolled back");
            results.count(|counts| counts.locks_held = counts.locks_held.saturating_add(1));
        }
    }
}

fn milliseconds(rng: &mut StdRng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.random_range(range))
}
