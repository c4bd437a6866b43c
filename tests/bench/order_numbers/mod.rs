//! Order numbers: as many as one process can take, and how often a hundred processes get in each other's
//! way at the shared value, beside the original algorithm under a lock.

mod crowd;
mod one_process;
mod original;
mod ours;

use std::sync::Arc;
use std::time::Duration;

use postonce_shared::ports::sync_store::SyncStore;
use postonce_tests::azurite::Azurite;

use crate::Wanted;
use crate::machine::Machine;
use crate::report::{Goal, Report};
use crate::rounds::interleave;
use crowd::{ATTEMPTS, Paces};
use one_process::{NUMBERS, Store};
use original::Original;
use ours::Ours;

/// Threads that take numbers from one allocator, and its store.
const PHASES: [(usize, Store); 4] =
    [(1, Store::AtHand), (8, Store::AtHand), (64, Store::AtHand), (64, Store::Distant)];
/// How long they take them in each round.
const LASTING: Duration = Duration::from_secs(2);
/// Numbers a second in one process, with any number of threads. (With a distant store it is the largest
/// range that decides.)
const NUMBERS_GOAL: Goal = Goal::AtLeast(20_000_000);
/// Hundredths of a write for each range.
const ATTEMPTS_GOAL: Goal = Goal::AtMost(110);
/// Most rounds of the crowd: each takes minutes, and counts hundreds of ranges.
const CROWD_ROUNDS_MAX: usize = 2;

/// Hands out numbers that no other allocator over the same store hands out.
trait Allocator: Send + Sync + 'static {
    /// One over that store; its tasks run in the runtime of the caller.
    fn over(sync: Arc<dyn SyncStore>) -> Self;

    /// The next number, for which the thread waits if it has to; `None` when others were faster at the
    /// store every time.
    fn next(&self) -> Option<u64>;
}

/// The arms.
#[derive(Debug, Clone, Copy)]
enum Algorithm {
    /// The bank's.
    Ours,
    /// The one that is well known.
    Original,
}

/// Prints how both compare.
pub async fn measure(wanted: &Wanted, machine: &Machine) {
    let mut arms = vec![("postonce", Algorithm::Ours)];
    if wanted.peers {
        arms.push(("original under a lock", Algorithm::Original));
    }
    let mut report = Report::of("order-numbers");
    let is_wanted = |callers: usize| wanted.connections.is_none_or(|only| only == callers);
    for (threads, store) in PHASES.into_iter().filter(|(threads, _)| is_wanted(*threads)) {
        let threads_shown = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        let (phase, goals): (_, &[_]) = match store {
            Store::AtHand => (threads_shown, &[(NUMBERS, NUMBERS_GOAL)]),
            Store::Distant => (format!("{threads_shown}, a store that takes 1 to 2 ms"), &[]),
        };
        let name = format!("order-numbers, {phase}");
        let series = interleave(&name, wanted.rounds, &arms, machine, async |arm| match arm {
            Algorithm::Ours => one_process::run::<Ours>(threads, store, LASTING).await,
            Algorithm::Original => one_process::run::<Original>(threads, store, LASTING).await,
        })
        .await;
        report.add(&phase, &series, goals);
    }
    if is_wanted(crowd::ALLOCATORS) {
        crowds(wanted, machine, &arms, &mut report).await;
    }
    report.finish(machine);
}

async fn crowds(wanted: &Wanted, machine: &Machine, arms: &[(&'static str, Algorithm)], report: &mut Report) {
    let azurite = Azurite::private_in_memory();
    for paces in [Paces::Own, Paces::Same] {
        let phase = format!("{} allocators, {paces}", crowd::ALLOCATORS);
        let name = format!("order-numbers, {phase}");
        let rounds = wanted.rounds.min(CROWD_ROUNDS_MAX);
        let series = interleave(&name, rounds, arms, machine, async |arm| match arm {
            Algorithm::Ours => crowd::run::<Ours>(&azurite, paces).await,
            Algorithm::Original => crowd::run::<Original>(&azurite, paces).await,
        })
        .await;
        report.add(&phase, &series, &[(ATTEMPTS, ATTEMPTS_GOAL)]);
    }
}
