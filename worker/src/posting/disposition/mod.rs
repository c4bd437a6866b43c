//! Decides how a message is handled, from its receipts and the results of its items. Pure functions.

use postonce_shared::domain::decision::Work;
use postonce_shared::ports::fault::chain;
use postonce_shared::posting::PostFault;

/// How the work of a message is posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Treatment {
    /// Together with the work of other messages.
    Together,
    /// The message was received too often and never settled: either its work was not tried, or it ended its workers. Its single
    /// item is posted alone ([`LoneAttempts`](crate::listening::lone_attempts::LoneAttempts)).
    Alone,
    /// Like [`Self::Alone`], but with several items: the message is split, and the counters of each item start at zero.
    Split,
}

/// Decides how the work of a message is posted. `receipts` includes the current one.
pub const fn treat(items: usize, receipts: u32, dequeue_count_max: u32) -> Treatment {
    if receipts <= dequeue_count_max || items == 0 {
        Treatment::Together
    } else if items > 1 {
        Treatment::Split
    } else {
        Treatment::Alone
    }
}

/// The next step for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// The work is final: the message is deleted.
    Delete,
    /// The unfinished work is retried later.
    RetryLater {
        /// The unfinished work.
        rest: Vec<Work>,
        /// Whether this receipt does not count, because of a transient fault.
        forgive: bool,
    },
    /// The gate is held: the unfinished work waits in the queue, and can be received as soon as the gate is released. This
    /// receipt does not count.
    AwaitRelease {
        /// The unfinished work.
        rest: Vec<Work>,
    },
    /// The unfinished work is sent again with one item per message, so that a failing item does not affect others.
    Split {
        /// The unfinished work.
        rest: Vec<Work>,
    },
    /// The message becomes a dead letter for an operator, unless its row has become final.
    DeadLetter {
        /// The item that cannot be posted.
        item: Box<Work>,
        /// The reason for operators.
        reason: String,
    },
}

/// The results of the items of a message, in order.
pub type Results<'a> = &'a [(&'a Work, Result<(), PostFault>)];

/// Decides from the results of the items. `receipts` includes the current one.
///
/// An outage of any length never turns valid work into dead letters: a receipt with a transient fault does not count. Only an
/// item that was tried alone becomes a dead letter, because items on the same account can fail together.
pub fn choose(results: Results<'_>, receipts: u32, alone: bool, dequeue_count_max: u32) -> Disposition {
    let mut rest: Vec<Work> = Vec::new();
    let (mut transient, mut held) = (false, false);
    let mut reason = String::new();
    for (work, result) in results {
        let Err(fault) = result else { continue };
        rest.push((*work).clone());
        if matches!(fault, PostFault::GateHeld) {
            held = true;
        } else if fault.is_transient() {
            transient = true;
        } else if reason.is_empty() {
            reason = chain(fault);
        }
    }
    match rest.as_slice() {
        [] => Disposition::Delete,
        _ if transient => Disposition::RetryLater { rest, forgive: true },
        _ if held => Disposition::AwaitRelease { rest },
        [item] if alone => Disposition::DeadLetter { item: Box::new(item.clone()), reason },
        [_, _, ..] if receipts >= dequeue_count_max => Disposition::Split { rest },
        _ => Disposition::RetryLater { rest, forgive: false },
    }
}

#[cfg(test)]
mod tests;
