//! What is to become of a message, by its receipts and by what became of its items: pure functions.

use postonce_shared::domain::decision::Work;
use postonce_shared::ports::fault::chain;
use postonce_shared::protocol::post::PostFault;

/// How a message is to be worked off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Treatment {
    /// Together with all others.
    Together,
    /// It was received too often and never settled. Perhaps nobody ever tried; perhaps it ended its
    /// workers. Its single item is tried alone, and that is written on the message first.
    Alone,
    /// As above, but it has many items: they are taken apart, and each starts afresh.
    Apart,
    /// Its single item was tried alone too often, and no attempt ever ended.
    GiveUp,
}

/// How to work off a message: by its items, the receipts that count (this one included), and the
/// attempts on it alone that never ended.
///
/// A receipt is no attempt: answers get lost, and a worker that dies takes along what it holds
/// beside the one message that killed it. So receipts alone never make a dead letter.
pub const fn treat(items: usize, receipts: u32, suspect: u32, dequeue_count_max: u32) -> Treatment {
    if receipts <= dequeue_count_max || items == 0 {
        Treatment::Together
    } else if items > 1 {
        Treatment::Apart
    } else if suspect < dequeue_count_max {
        Treatment::Alone
    } else {
        Treatment::GiveUp
    }
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// Its work is final: it is removed.
    Delete,
    /// What is left of it is tried again later. `forgive`: this receipt was nobody's failure.
    RetryLater {
        /// What is not final.
        rest: Vec<Work>,
        /// Whether this receipt must not count.
        forgive: bool,
    },
    /// What is left of it is sent again, one item per message, so that a bad one stands alone.
    Split {
        /// What is not final.
        rest: Vec<Work>,
    },
    /// It is set aside for a person, unless its row says by now that it is final.
    DeadLetter {
        /// The single item that cannot be posted.
        item: Box<Work>,
        /// Why: a sentence for a person.
        reason: String,
    },
}

/// What became of each item of a message, in order.
pub type Results<'a> = &'a [(&'a Work, Result<(), PostFault>)];

/// Chooses from what became of the items. `receipts` are those that count, this one included.
///
/// An outage never turns healthy work into dead letters, however long it lasts: a receipt that met
/// a transient fault does not count. And only an item that was tried alone is set aside, since work
/// of the same account that is tried together can fail together.
pub fn choose(results: Results<'_>, receipts: u32, alone: bool, dequeue_count_max: u32) -> Disposition {
    let mut rest: Vec<Work> = Vec::new();
    let mut transient = false;
    let mut reason = String::new();
    for (work, result) in results {
        let Err(fault) = result else { continue };
        rest.push((*work).clone());
        if fault.is_transient() {
            transient = true;
        } else if reason.is_empty() {
            reason = chain(fault);
        }
    }
    match rest.as_slice() {
        [] => Disposition::Delete,
        _ if transient => Disposition::RetryLater { rest, forgive: true },
        [item] if alone => Disposition::DeadLetter { item: Box::new(item.clone()), reason },
        [_, _, ..] if receipts >= dequeue_count_max => Disposition::Split { rest },
        _ => Disposition::RetryLater { rest, forgive: false },
    }
}

#[cfg(test)]
mod tests;
