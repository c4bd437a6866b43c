//! Messages without a valid seal: they name transactions, and the rows of these say what is to be done.
//!
//! Such messages come from processes of an older version or with an older secret, or from a client that may
//! write to the queue and nothing else. All of them are treated alike.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::messaging::envelope::{Envelope, Name, Names, Unreadable};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::ledger::{Ledger, StoredTransaction};

use crate::listening::delivery::Unopened;

/// Rows that are read at once.
const READS_AT_ONCE: usize = 16;

/// What the log knows of a transaction that was named.
type Row = Result<Option<StoredTransaction>, Arc<StoreFault>>;

/// The work of messages without a seal by their rows, message by message. Each row is read once, however many
/// messages name it.
pub async fn look_up(ledger: &dyn Ledger, named: &[&Names]) -> Vec<Result<Envelope, Unopened>> {
    let keys: BTreeSet<&TransactionKey> = named.iter().flat_map(|names| names.keys()).collect();
    let keys: Vec<&TransactionKey> = keys.into_iter().collect();
    let mut rows: BTreeMap<&TransactionKey, Row> = BTreeMap::new();
    for some in keys.chunks(READS_AT_ONCE) {
        let reads = some.iter().map(async |key| (*key, ledger.transaction(key).await.map_err(Arc::new)));
        let read = join_all(reads).await;
        let is_away = read.iter().any(|(_, row)| matches!(row, Err(fault) if fault.is_transient()));
        rows.extend(read);
        // In an outage the rest would only wait for it, too.
        if is_away {
            break;
        }
    }
    named.iter().map(|names| by_rows(names, &rows)).collect()
}

/// The work of one message. What it names and the log does not know was never accepted.
fn by_rows(names: &Names, rows: &BTreeMap<&TransactionKey, Row>) -> Result<Envelope, Unopened> {
    let mut work = BTreeMap::new();
    let mut bad: Vec<&Name> = Vec::new();
    let mut why = String::new();
    for (place, name) in names.items().iter().enumerate() {
        let Some(key) = &name.key else {
            bad.push(name);
            why = "it has no seal, and an item that names no transaction".to_owned();
            continue;
        };
        match rows.get(key) {
            None => return Err(Unopened::LedgerAway("reading ended at an earlier fault".into())),
            Some(Err(fault)) if fault.is_transient() => {
                return Err(Unopened::LedgerAway(Box::new(Arc::clone(fault))));
            }
            Some(Err(fault)) => {
                bad.push(name);
                why = format!("the row of transaction {key} cannot be read: {}", chain(&**fault));
            }
            Some(Ok(None)) => {
                bad.push(name);
                why = format!("it has no seal, and names transaction {key}, which was never accepted");
            }
            // What lies in the dead letters waits for a person, and a name is no decision of one.
            Some(Ok(Some(row))) if row.marks.dead_letter => {}
            Some(Ok(Some(row))) => {
                if let Some(open) = row.work() {
                    work.entry(key).or_insert((place, open));
                }
            }
        }
    }
    let mut work: Vec<_> = work.into_values().collect();
    work.sort_by_key(|(place, _)| *place);
    let work: Vec<_> = work.into_iter().map(|(_, work)| work).collect();
    if !bad.is_empty() {
        let (bad_count, bad) = (bad.len(), Names::body_of(bad));
        return Err(Unopened::Unreadable(Unreadable::Items { why, readable: work, bad, bad_count }));
    }
    if work.is_empty() { Err(Unopened::Settled) } else { Ok(Envelope::of(work, None)) }
}
