//! Messages without a valid seal only name transactions. The worker reads their rows, and posts the work in the rows.
//!
//! Such messages come from processes with an older secret, or from clients that only have write access to the queue. All are
//! handled in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::messaging::envelope::{Envelope, Name, Names, Unreadable};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::ledger::{Ledger, StoredTransaction};

use crate::listening::delivery::DeliveryError;

const READS_AT_ONCE: usize = 16;

/// The result of reading a named transaction.
type Row = Result<Option<StoredTransaction>, Arc<StoreFault>>;

/// Returns the work of each message without a seal, from the rows of its transactions. Each row is read once.
pub async fn look_up(ledger: &dyn Ledger, named: &[&Names]) -> Vec<Result<Envelope, DeliveryError>> {
    let keys: BTreeSet<&TransactionKey> = named.iter().flat_map(|names| names.keys()).collect();
    let keys: Vec<&TransactionKey> = keys.into_iter().collect();
    let mut rows: BTreeMap<&TransactionKey, Row> = BTreeMap::new();
    for chunk in keys.chunks(READS_AT_ONCE) {
        let reads = chunk.iter().map(async |key| (*key, ledger.transaction(key).await.map_err(Arc::new)));
        let read = join_all(reads).await;
        let is_away = read.iter().any(|(_, row)| matches!(row, Err(fault) if fault.is_transient()));
        rows.extend(read);
        // During an outage, the other reads would fail too.
        if is_away {
            break;
        }
    }
    named.iter().map(|names| by_rows(names, &rows)).collect()
}

/// Returns the work of one message. A named transaction without a row was never accepted.
fn by_rows(names: &Names, rows: &BTreeMap<&TransactionKey, Row>) -> Result<Envelope, DeliveryError> {
    let mut work = BTreeMap::new();
    let mut bad: Vec<&Name> = Vec::new();
    let mut why = String::new();
    for (index, name) in names.items().iter().enumerate() {
        let Some(key) = &name.key else {
            bad.push(name);
            why = "it has no seal, and an item that names no transaction".to_owned();
            continue;
        };
        match rows.get(key) {
            None => return Err(DeliveryError::LedgerUnavailable("reading ended at an earlier fault".into())),
            Some(Err(fault)) if fault.is_transient() => {
                return Err(DeliveryError::LedgerUnavailable(Box::new(Arc::clone(fault))));
            }
            Some(Err(fault)) => {
                bad.push(name);
                why = format!("the row of transaction {key} cannot be read: {}", chain(&**fault));
            }
            Some(Ok(None)) => {
                bad.push(name);
                why = format!("it has no seal, and names transaction {key}, which was never accepted");
            }
            // A dead letter requires a decision of an operator, which a name in a message does not replace.
            Some(Ok(Some(row))) if row.marks.dead_letter => {}
            Some(Ok(Some(row))) => {
                if let Some(open) = row.work() {
                    work.entry(key).or_insert((index, open));
                }
            }
        }
    }
    let mut work: Vec<_> = work.into_values().collect();
    work.sort_by_key(|(index, _)| *index);
    let work: Vec<_> = work.into_iter().map(|(_, work)| work).collect();
    if !bad.is_empty() {
        let (bad_count, bad) = (bad.len(), Names::body_of(bad));
        return Err(DeliveryError::Unreadable(Unreadable::Items { why, readable: work, bad, bad_count }));
    }
    if work.is_empty() { Err(DeliveryError::Settled) } else { Ok(Envelope::of(work)) }
}
