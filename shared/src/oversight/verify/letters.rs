//! Checks marked transactions against the dead letters. A transaction marked as a dead letter is not enqueued again.
//! Unless an open letter contains it, no operator would find it.

use std::collections::BTreeSet;

use super::finding::{Finding, FindingKind};
use super::{RetryingReader, Verifier};
use crate::batches::messages;
use crate::domain::ids::TransactionKey;
use crate::messaging::envelope::{self, Names, Unreadable};
use crate::ports::Store;
use crate::ports::dead_letters::DeadLetter;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;

const LETTERS_LIMIT: usize = 50;
/// Number of passes. A letter is written before its transactions are marked, and a replay removes the marks before it
/// resolves the letter. A transaction that stays marked before and after every pass is therefore in no letter.
const PASSES: usize = 3;

impl Verifier<'_> {
    /// Looks up all marked transactions in the open letters. Reads nothing if there are none.
    pub(super) async fn check_marked(&self) -> Result<(), StoreFault> {
        let (marked, more) = {
            let mut shared = self.shared.lock();
            (std::mem::take(&mut shared.marked), shared.marked_more)
        };
        let mut missing: BTreeSet<TransactionKey> = marked.into_iter().collect();
        let mut unread = 0_u64;
        for _ in 0..PASSES {
            if missing.is_empty() {
                break;
            }
            unread = self.remove_found(&mut missing).await?;
            let mut still = BTreeSet::new();
            for key in missing {
                let found = self.reader.read(|| self.store.ledger.transaction(&key)).await;
                let is_marked = match found {
                    Ok(Some(stored)) => stored.work().is_some() && stored.marks.dead_letter,
                    // A missing or unreadable row was reported with its account.
                    Ok(None) | Err(StoreFault::Corrupt { .. }) => false,
                    Err(fault) => return Err(fault),
                };
                if is_marked {
                    still.insert(key);
                }
            }
            missing = still;
        }
        let kind = if unread > 0 { FindingKind::DeadLetterUnknown } else { FindingKind::DeadLetterMissing };
        for key in &missing {
            let finding = Finding::of(kind, Some(key.account)).about(key);
            self.report(&if unread > 0 {
                finding.finding(format!("{unread} letters cannot be read"))
            } else {
                finding
            });
        }
        if more > 0 {
            let finding = Finding::of(FindingKind::More, None);
            self.report(
                &finding.finding(format!("{more} more marked transactions, which were not searched")),
            );
        }
        Ok(())
    }

    /// Removes the keys contained in open letters. Returns the number of unreadable letters.
    async fn remove_found(&self, missing: &mut BTreeSet<TransactionKey>) -> Result<u64, StoreFault> {
        let mut unread = 0_u64;
        let mut cursor: Option<String> = None;
        loop {
            let Listing { items, next } = list(&self.reader, self.store, cursor.as_deref()).await?;
            for letter in items {
                match content(&letter) {
                    Some(names) => {
                        let held = names.keys();
                        missing.retain(|key| !held.contains(key));
                    }
                    None => unread = unread.saturating_add(1),
                }
            }
            if next.is_none() {
                return Ok(unread);
            }
            cursor = next;
        }
    }
}

async fn list(
    reader: &RetryingReader,
    store: &Store,
    cursor: Option<&str>,
) -> Result<Listing<DeadLetter>, StoreFault> {
    reader.read(|| store.dead_letters.list(true, cursor, LETTERS_LIMIT)).await
}

/// Returns the transactions in a letter; `None` if not all of them can be decoded. The seal is not checked, because the
/// rows are marked. A letter with a claim check contains no transactions: those in its payload are not marked with it,
/// and the payload may have changed since.
fn content(letter: &DeadLetter) -> Option<Names> {
    if messages::is_of_batches(&letter.queue) {
        // The items of a batch are not marked: they have no rows before they are final.
        return Some(Names::default());
    }
    let names = match envelope::claimed(&letter.body) {
        None => Names::read(&letter.body),
        Some(_) => Ok(Names::default()),
    };
    match names {
        Ok(names) if names.is_complete() => Some(names),
        Err(Unreadable::Empty) => Some(Names::default()),
        Ok(_)
        | Err(
            Unreadable::Items { .. }
            | Unreadable::Newer(_)
            | Unreadable::Unsealed(_)
            | Unreadable::Malformed(_)
            | Unreadable::Damaged { .. },
        ) => None,
    }
}
