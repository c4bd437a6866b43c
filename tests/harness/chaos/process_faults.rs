//! Who kills: one process or several at once; who lets one stand still for longer than its leases, or
//! asks it to end. On SQLite somebody else also holds the lock of the file for a while.

use std::path::Path;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rusqlite::{Connection, OpenFlags};

use super::fleet::Fleet;
use super::tally::{Kill, Tally};
use super::watch::Watch;
use crate::wait;

/// Between two strikes, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 400..1_300;
/// How long a process stands still, in milliseconds: longer than a lease.
const STILL_MS: std::ops::Range<u64> = 2_300..4_500;
/// Between two that stand still, in milliseconds.
const STILL_PAUSE_MS: std::ops::Range<u64> = 500..4_000;
/// Between two times at which the lock is held, and how long it is, in milliseconds. A process waits
/// some five seconds for the lock before it answers that the store is away.
const LOCK_PAUSE_MS: std::ops::Range<u64> = 2_000..8_000;
const LOCK_SHORT_MS: std::ops::Range<u64> = 50..1_500;
const LOCK_LONG_MS: std::ops::Range<u64> = 5_200..6_500;

/// Kills processes of that kind, or of any, while it is rough.
pub async fn kill(fleet: &Fleet, watch: &Watch, prey: Option<Kill>, tally: &Tally, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        wait::pass(milliseconds(&mut rng, PAUSE_MS)).await;
        if !watch.is_rough() {
            return;
        }
        let mut running = fleet.running(prey);
        if running.is_empty() {
            continue;
        }
        let one = running.swap_remove(rng.random_range(0..running.len()));
        if rng.random_range(0..4) > 0 {
            fleet.kill(one);
            continue;
        }
        let others = running.into_iter().filter(|_| rng.random_range(0..2) == 0);
        let struck = others.chain([one]).filter(|place| fleet.kill(*place)).count();
        if struck > 1 {
            tally.count(|counts| counts.killed_together = counts.killed_together.saturating_add(1));
        }
    }
}

/// Lets one process after the other stand still. It goes on with old leases in its hands. Some are asked
/// to end instead, as in a rolling upgrade.
pub async fn disturb(fleet: &Fleet, watch: &Watch, tally: &Tally, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        wait::pass(milliseconds(&mut rng, STILL_PAUSE_MS)).await;
        if !watch.is_rough() {
            return;
        }
        let running = fleet.running(None);
        let Some(place) = running.get(rng.random_range(0..running.len().max(1))).copied() else { continue };
        if rng.random_range(0..3) == 0 {
            fleet.ask_to_end(place);
        } else if fleet.let_sleep(place, milliseconds(&mut rng, STILL_MS)).await {
            tally.count(|counts| counts.suspensions = counts.suspensions.saturating_add(1));
        }
    }
}

/// Holds the write lock of the file now and then, as a backup or a person with a shell would.
pub async fn hold_lock(file: &Path, watch: &Watch, tally: &Tally, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    while watch.is_rough() {
        wait::pass(milliseconds(&mut rng, LOCK_PAUSE_MS)).await;
        // Opened for each time: before the first process there is no file.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let Ok(connection) = Connection::open_with_flags(file, flags) else { continue };
        drop(connection.busy_timeout(Duration::ZERO));
        // The lock is free for a moment only while processes write.
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
            connection.execute_batch("ROLLBACK").expect("a transaction without changes can be given up");
            tally.count(|counts| counts.locks_held = counts.locks_held.saturating_add(1));
        }
    }
}

fn milliseconds(rng: &mut StdRng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.random_range(range))
}
