//! A transaction that is marked as a dead letter is kept away from repair: so one of the open letters
//! must hold it, or nobody would ever see it again.

use std::collections::BTreeSet;

use super::finding::{Finding, FindingKind};
use super::{Patient, Verifier};
use crate::domain::ids::TransactionKey;
use crate::messaging::envelope::{self, Names, Unreadable};
use crate::ports::Store;
use crate::ports::dead_letters::DeadLetter;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;

/// Letters of one request.
const LETTERS_LIMIT: usize = 50;
/// A letter is written before its transactions are marked, and replaying unmarks before it resolves. So
/// what is marked both before and after the letters were read, again and again, is in none of them.
const ROUNDS: usize = 3;

impl Verifier<'_> {
    /// Looks for all marked transactions among the open letters. Without any it reads nothing.
    pub(super) async fn check_marked(&self) -> Result<(), StoreFault> {
        let (marked, more) = {
            let mut shared = self.shared();
            (std::mem::take(&mut shared.marked), shared.marked_more)
        };
        let mut missing: BTreeSet<TransactionKey> = marked.into_iter().collect();
        let mut unread = 0_u64;
        for _ in 0..ROUNDS {
            if missing.is_empty() {
                break;
            }
            unread = self.strike_out(&mut missing).await?;
            let mut still = BTreeSet::new();
            for key in missing {
                let found = self.patient.read(async || self.store.ledger.transaction(&key).await).await;
                let is_marked = match found {
                    Ok(Some(stored)) => stored.work().is_some() && stored.marks.dead_letter,
                    // A row that is gone or cannot be read was told with its account.
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
            self.tell(&if unread > 0 {
                finding.finding(format!("{unread} letters cannot be read"))
            } else {
                finding
            });
        }
        if more > 0 {
            let finding = Finding::of(FindingKind::More, None);
            self.tell(
                &finding.finding(format!("{more} more marked transactions, which were not looked for")),
            );
        }
        Ok(())
    }

    /// Takes away what an open letter holds; gives how many letters cannot be read.
    async fn strike_out(&self, missing: &mut BTreeSet<TransactionKey>) -> Result<u64, StoreFault> {
        let mut unread = 0_u64;
        let mut cursor: Option<String> = None;
        loop {
            let Listing { items, next } = list(&self.patient, self.store, cursor.as_deref()).await?;
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
    patient: &Patient,
    store: &Store,
    cursor: Option<&str>,
) -> Result<Listing<DeadLetter>, StoreFault> {
    patient.read(async || store.dead_letters.list(true, cursor, LETTERS_LIMIT).await).await
}

/// The transactions that a letter holds; `None` when not all of them can be read. Whether it has a seal does
/// not matter here: it is the rows that are marked. A letter of a claim holds none: what is in its payload was
/// not marked with it, and others may have changed the payload since.
fn content(letter: &DeadLetter) -> Option<Names> {
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
