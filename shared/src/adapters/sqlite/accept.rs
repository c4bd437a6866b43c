//! First half of the protocol. One database transaction inserts the transaction rows and the queue messages. The unique
//! key of the rows makes it idempotent.

use rusqlite::Connection;

use super::fault::SqlFault;
use super::names::{self, Partners};
use super::transaction_row::{self, FIRST_REVISION, NewRow};
use super::writer::Verdict;
use super::{Enqueue, columns, queue};
use crate::domain::decision::Submission;
use crate::domain::ids::Nonce;
use crate::domain::time::Timestamp;
use crate::messaging::envelope::EncodedItem;
use crate::ports::ledger::AcceptOutcome;

/// The row of a new transaction, and the work for its queue message.
pub(super) struct AcceptedRow {
    row: NewRow,
    work: EncodedItem,
}

impl AcceptedRow {
    pub(super) fn of(new: &Submission, nonce: Nonce) -> Self {
        let revision = columns::revision(FIRST_REVISION);
        let work = EncodedItem::of(&new.key, &new.instruction, new.accepted_at, &revision, &new.origin);
        Self { row: NewRow::accepted(new, nonce), work }
    }
}

/// Inserts the new transactions and enqueues their work.
pub(super) fn accept(
    connection: &Connection,
    group: &[AcceptedRow],
    enqueue: &Enqueue,
    now: Timestamp,
) -> Result<Verdict<Vec<AcceptOutcome>>, SqlFault> {
    let mut fresh = Vec::with_capacity(group.len());
    let mut outcomes = Vec::with_capacity(group.len());
    let mut partners = Partners::default();
    let mut insert = NewRow::prepare(connection)?;
    for AcceptedRow { row, work } in group {
        let key = &row.key;
        let account = names::account_or_new(connection, key.account)?;
        let partner = partners.number_or_new(connection, &key.partner)?;
        if row.insert(&mut insert, account, partner)? {
            fresh.push(work);
            outcomes.push(AcceptOutcome::Inserted {
                revision: columns::revision(FIRST_REVISION),
                enqueued: true,
            });
        } else {
            outcomes.push(taken(connection, row)?);
        }
    }
    if !fresh.is_empty() {
        for (name, body) in enqueue(&fresh) {
            queue::insert(connection, &name, &body, now, now)?;
        }
    }
    Ok(Verdict::Keep(outcomes))
}

fn taken(connection: &Connection, new: &NewRow) -> Result<AcceptOutcome, SqlFault> {
    let found = transaction_row::find(connection, &new.key)?
        .ok_or_else(|| SqlFault::Unsound("a key is taken by a row that cannot be found".into()))?;
    // A previous attempt of this call stored the row and the queue message, but its response was lost.
    if found.accept_nonce == new.nonce() && found.stored.outcome.is_none() {
        return Ok(AcceptOutcome::Inserted { revision: found.stored.revision, enqueued: true });
    }
    Ok(AcceptOutcome::Existing(Box::new(found.stored)))
}
