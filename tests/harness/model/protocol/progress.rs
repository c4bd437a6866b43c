//! A rank: how far the system is from quiescence. It expresses progress by two properties of single states
//! and steps, which a checker can decide:
//!
//! 1. each fault-free step lowers the rank, and a rank cannot fall for ever, so **every** run in which the
//!    faults have stopped ends, in any schedule;
//! 2. where a run ends no process has anything to do, and everything acknowledged is final.
//!
//! The `eventually` of stateright is not sufficient: it does not distinguish a cycle from two paths that
//! meet, and drops a pending condition when a path meets a visited state.
//!
//! Repeated requests of clients do not count: a step of a client is no progress.

use super::rules::Rules;
use super::state::{AttemptStage, Row, Slot, Stage, State, Status, Web, Work, Worker};

/// Compared from the left; each number outweighs all numbers after it.
pub(super) type Rank = [usize; 5];

/// Added while something that was read is out of date: the commit will be refused, and reading again costs
/// less than this.
const OUTDATED: usize = 100;

impl State {
    /// How far the system is from quiescence.
    pub(super) fn rank(&self, rules: &Rules) -> Rank {
        let waits = |row: &&Row| row.status == Status::Accepted;
        [
            self.webs.iter().map(web_rank).sum(),
            self.rows.iter().flatten().filter(waits).count(),
            self.queue.len(),
            (0..self.queue.len()).map(|place| self.message_rank(place, rules)).sum(),
            self.workers.iter().map(|worker| self.worker_rank(worker)).sum(),
        ]
    }

    /// A visible message will be received; a message that cannot be settled will become visible first.
    fn message_rank(&self, place: usize, rules: &Rules) -> usize {
        let lease = self.queue[place].lease;
        let settling = lease.holder().filter(|holder| self.workers[*holder].stage == Stage::Settling);
        match settling {
            Some(holder) if !self.is_deletable(holder, place, rules) => 2,
            Some(_) | None => usize::from(lease.is_visible()),
        }
    }

    fn worker_rank(&self, worker: &Worker) -> usize {
        let Worker { stage, cache, work, settled: _ } = worker;
        let is_old = |work: &Work| self.rows[work.key].is_none_or(|row| row.revision != work.revision);
        let old_account = *cache != Some(self.account);
        let outdated = |old: bool| if old { OUTDATED } else { 0 };
        match stage {
            Stage::Idle => 0,
            Stage::Settling => 1,
            Stage::Committing { .. } => outdated(old_account || work.iter().any(is_old)).saturating_add(2),
            Stage::ReadingBack { refused: false } => {
                outdated(old_account || work.iter().any(is_old)).saturating_add(3)
            }
            // The commit was refused, so something is out of date and remains so.
            Stage::ReadingBack { refused: true } => OUTDATED.saturating_add(1),
            Stage::Loading => outdated(work.iter().any(is_old)).saturating_add(4),
            Stage::Reloading(place) => {
                let rest = work.len().saturating_sub(*place);
                outdated(work.iter().take(*place).any(is_old)).saturating_add(5).saturating_add(rest)
            }
        }
    }
}

/// Each request takes the queue after its commit was refused, and each commit ends.
fn web_rank(web: &Web) -> usize {
    let slots = web.slots.iter().enumerate().map(|(key, slot)| match slot {
        Slot::Idle => 0_usize,
        Slot::Sending { .. } => 1,
        Slot::Inserting(_) => 2,
        Slot::Waiting(_) if web.attempt.is_some_and(|attempt| attempt.key == key) => 3,
        Slot::Waiting(_) => 10,
    });
    let attempt = web.attempt.map_or(0, |attempt| match attempt.stage {
        AttemptStage::ReadingBack { refused: true } => 1,
        AttemptStage::Committing { unclear: true } => 2,
        AttemptStage::ReadingBack { refused: false } => 3,
        AttemptStage::Committing { unclear: false } => 4,
    });
    slots.sum::<usize>().saturating_add(attempt)
}
