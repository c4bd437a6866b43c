//! Order numbers: the rate of one process, and the conflicts of a hundred processes at the shared value, beside
//! the original algorithm with a lock.

mod many_processes;
mod one_process;
mod original;
mod ours;

use std::sync::Arc;
use std::time::Duration;

use postonce_shared::ports::sync_store::SyncStore;
use postonce_tests::prelude::*;

use crate::bench::prelude::*;
use many_processes::{ATTEMPTS, Rates};
use one_process::{NUMBERS, Store};
use original::Original;
use ours::Ours;

/// The name of the arm of the bank.
const OURS: &str = "postonce";
/// Numbers of threads that take numbers from one allocator, and the store of the allocator.
const PHASES: [(usize, Store); 4] =
    [(1, Store::Local), (8, Store::Local), (64, Store::Local), (64, Store::Remote)];
/// Duration of each round.
const LASTING: Duration = Duration::from_secs(2);
/// Numbers a second in one process, with any number of threads. (With a remote store, the largest range is the
/// limit.)
const NUMBERS_GOAL: GoalOf = (OURS, NUMBERS, Goal::AtLeast(20_000_000));
/// Write attempts for each range, in hundredths.
const ATTEMPTS_GOAL: GoalOf = (OURS, ATTEMPTS, Goal::AtMost(110));
/// Most rounds with many processes: each takes minutes, and counts hundreds of ranges.
const MANY_PROCESSES_ROUNDS_MAX: usize = 2;

/// Allocates numbers that no other allocator over the same store allocates.
trait Allocator: Send + Sync + 'static {
    /// An allocator over that store; its tasks run in the runtime of the caller.
    fn over(sync: Arc<dyn SyncStore>) -> Self;

    /// The next number, for which the thread waits if necessary; `None` if all attempts to reserve a range
    /// failed because other allocators were faster.
    fn next(&self) -> Option<u64>;
}

/// The arms.
#[derive(Debug, Clone, Copy)]
enum Algorithm {
    /// The allocator of the bank.
    Ours,
    /// The common algorithm.
    Original,
}

/// Prints the comparison.
pub async fn measure(options: &Options, machine: &Machine) {
    let mut arms = vec![(OURS, Algorithm::Ours)];
    if options.peers {
        arms.push(("original under a lock", Algorithm::Original));
    }
    let mut report = Report::of("order-numbers");
    let is_selected = |callers: usize| options.connections.is_none_or(|only| only == callers);
    for (threads, store) in PHASES.into_iter().filter(|(threads, _)| is_selected(*threads)) {
        let threads_shown = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        let (phase, goals): (_, &[_]) = match store {
            Store::Local => (threads_shown, &[NUMBERS_GOAL]),
            Store::Remote => (format!("{threads_shown}, a store that takes 1 to 2 ms"), &[]),
        };
        let name = format!("order-numbers, {phase}");
        let series = interleave(&name, options.rounds, &arms, machine, async |arm| match arm {
            Algorithm::Ours => one_process::run::<Ours>(threads, store, LASTING).await,
            Algorithm::Original => one_process::run::<Original>(threads, store, LASTING).await,
        })
        .await;
        report.add(&phase, &series, goals);
    }
    if is_selected(many_processes::ALLOCATORS) {
        with_many_processes(options, machine, &arms, &mut report).await;
    }
    report.finish(machine);
}

async fn with_many_processes(
    options: &Options,
    machine: &Machine,
    arms: &[(&'static str, Algorithm)],
    report: &mut Report,
) {
    let azurite = Azurite::private_in_memory();
    let proxies = StorageProxies::before(azurite.ports(), Likeness::chosen());
    for rates in [Rates::Own, Rates::Same] {
        let phase = format!("{} allocators, {rates}", many_processes::ALLOCATORS);
        let name = format!("order-numbers, {phase}");
        let rounds = options.rounds.min(MANY_PROCESSES_ROUNDS_MAX);
        let series = interleave(&name, rounds, arms, machine, async |arm| match arm {
            Algorithm::Ours => many_processes::run::<Ours>(proxies.ports(), rates).await,
            Algorithm::Original => many_processes::run::<Original>(proxies.ports(), rates).await,
        })
        .await;
        report.add(&phase, &series, &[ATTEMPTS_GOAL]);
    }
}
