//! Requests that wait for the outcome of their transaction.

use std::time::Duration;

use futures::future::{Either, select};

use super::Acceptor;
use crate::cluster::completions::{CompletionEvent, Waiter};
use crate::domain::ids::TransactionKey;
use crate::domain::transaction::Outcome;

/// Largest number of early reads of the row. Hints cause them, which are not authenticated and can come from any sender.
const EARLY_READS_MAX: u32 = 3;
/// Timeout of a read of the row.
const READ_TIME_MAX: Duration = Duration::from_millis(500);

impl Acceptor {
    /// Returns the outcome of the transaction if a worker of this process or a reply of another process reports it
    /// before `until` (by [`World::uptime`](crate::ports::world::World::uptime)) or the drain of this process. The row
    /// is read at the end, because replies can get lost, and after each hint that the transaction is final.
    pub(super) async fn await_outcome(
        &self,
        key: &TransactionKey,
        mut waiter: Waiter,
        until: Duration,
    ) -> Option<Outcome> {
        let wait_time = self.world.sleep(until.saturating_sub(self.world.uptime()));
        let over = std::pin::pin!(self.completions.until_waits_are_over());
        let mut wait_time = select(wait_time, over);
        for early_read in 0..=EARLY_READS_MAX {
            let event = async {
                if early_read < EARLY_READS_MAX {
                    waiter.next_event().await
                } else {
                    CompletionEvent::Final(waiter.outcome().await)
                }
            };
            match select(std::pin::pin!(event), &mut wait_time).await {
                Either::Left((CompletionEvent::Final(outcome), _)) => {
                    return Some(outcome);
                }
                Either::Left((CompletionEvent::Hint, _)) => {
                    // An outcome that arrives during the read is returned in the next iteration.
                    if let Some(outcome) = self.read_outcome(key).await {
                        return Some(outcome);
                    }
                }
                Either::Right(_) => break,
            }
        }
        self.read_outcome(key).await
    }

    /// Returns the outcome if the log contains it. An unavailable log neither fails nor delays the confirmed request.
    async fn read_outcome(&self, key: &TransactionKey) -> Option<Outcome> {
        let read = self.ledger.transaction(key);
        match select(read, self.world.sleep(READ_TIME_MAX)).await {
            Either::Left((Ok(Some(stored)), _)) => stored.outcome,
            Either::Left(_) | Either::Right(_) => None,
        }
    }
}
