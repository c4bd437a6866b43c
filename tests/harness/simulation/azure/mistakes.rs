//! Mistakes of the adapter for Azure, simulated by changing its input. For example, an adapter that compares nonces behaves
//! exactly like one that does not, if every row that it reads back has its nonce.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use async_trait::async_trait;
use hyper::Method;
use parking_lot::Mutex;
use postonce_shared::adapters::azure::wire::{Wire, WireFault, WireRequest, WireResponse};
use serde_json::{Map, Value};

use super::wire::{SimulatedWire, proxied};
use crate::simulation::mutations::Mutation;
use crate::storage_proxy::request::ProxiedRequest;
use crate::storage_proxy::rules::batch;
use crate::storage_proxy::rules::table::row_of;

/// Suffix of the names of all properties with a nonce.
const NONCE: &str = "Nonce";
/// Name of the property with the nonce of a commit.
const COMMIT_NONCE: &str = "CommitNonce";

/// Identifies a row: path of the table, partition key, row key.
type RowName = (String, String, String);

#[derive(Debug, Default)]
struct Seen {
    /// The last nonces that this process sent for each row.
    nonces: BTreeMap<RowName, Map<String, Value>>,
    /// The commits without a clear response.
    unclear: BTreeSet<String>,
    /// The commits that a read-back did not find.
    missed: BTreeSet<String>,
}

/// A wire that makes its adapter behave as if it had a mistake.
pub struct MistakenWire {
    wire: SimulatedWire,
    mutation: Mutation,
    seen: Mutex<Seen>,
}

impl fmt::Debug for MistakenWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MistakenWire").field("mutation", &self.mutation).finish_non_exhaustive()
    }
}

impl MistakenWire {
    /// Creates a wire with a mistake.
    pub fn new(wire: SimulatedWire, mutation: Mutation) -> Self {
        Self { wire, mutation, seen: Mutex::default() }
    }

    /// [`Mutation::ReadBackNonceNotCompared`]: replaces the nonces in a row that is read by those that this process sent.
    fn with_own_nonces(&self, row: &RowName, response: &mut WireResponse) {
        let seen = self.seen.lock();
        let Some(sent) = seen.nonces.get(row) else { return };
        let Ok(Value::Object(mut entity)) = serde_json::from_slice(&response.body) else { return };
        for (name, nonce) in sent {
            if let Some(stored) = entity.get_mut(name) {
                *stored = nonce.clone();
            }
        }
        response.body = Value::Object(entity).to_string().into();
    }

    /// [`Mutation::AbsenceProvesFailure`]: records commits that a read-back does not find.
    fn note_missed(&self, row: &RowName, response: &WireResponse) {
        let mut seen = self.seen.lock();
        let Some(Value::String(nonce)) =
            seen.nonces.get(row).and_then(|sent| sent.get(COMMIT_NONCE)).cloned()
        else {
            return;
        };
        let is_found = String::from_utf8_lossy(&response.body).contains(&nonce);
        if !is_found && seen.unclear.contains(&nonce) {
            seen.missed.insert(nonce);
        }
    }
}

#[async_trait]
impl Wire for MistakenWire {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, WireFault> {
        let read = proxied(request.clone());
        let operations = writes(&read);
        let commit = operations.iter().find_map(|(_, sent)| sent.get(COMMIT_NONCE)?.as_str());
        if let Some(nonce) = commit {
            let is_repeated = self.mutation == Mutation::AbsenceProvesFailure;
            if is_repeated && self.seen.lock().missed.contains(nonce) {
                // Sending the commit again would prove the failure. The mistake is to assume the failure without that proof.
                self.wire.note("a commit that was not read back is not sent again");
                return Ok(self.wire.stale_batch());
            }
        }
        for (row, sent) in &operations {
            self.seen.lock().nonces.entry(row.clone()).or_default().extend(sent.clone());
        }
        let mut answer = self.wire.send(request).await;
        if let Some(nonce) = commit
            && !answer.as_ref().is_ok_and(|response| response.status < 500)
        {
            self.seen.lock().unclear.insert(nonce.to_owned());
        }
        let Ok(response) = &mut answer else { return answer };
        let makes = |mutation| self.mutation == mutation;
        if let Some(row) = read_row(&read) {
            if makes(Mutation::ReadBackNonceNotCompared) && response.status == 200 {
                self.with_own_nonces(&row, response);
            }
            if makes(Mutation::AbsenceProvesFailure) {
                self.note_missed(&row, response);
            }
        }
        if makes(Mutation::MissingPartsCountAsWritten) && read.is_batch() {
            complete(response, operations.len());
        }
        if makes(Mutation::PageCountsAsLast) {
            response.headers.remove("x-ms-continuation-nextpartitionkey");
        }
        answer
    }
}

/// [`Mutation::MissingPartsCountAsWritten`]: adds the missing parts to the response to a batch.
fn complete(response: &mut WireResponse, operations: usize) {
    const STATUS: &str = "HTTP/1.1 ";
    let mut body = String::from_utf8_lossy(&response.body).into_owned();
    let received = body.matches(STATUS).count();
    for _ in received..operations {
        body.push_str(&format!("\r\n--changesetresponse_added\r\n\r\n{STATUS}204 No Content\r\n\r\n"));
    }
    response.body = body.into();
}

/// Returns the row that a request reads.
fn read_row(request: &ProxiedRequest) -> Option<RowName> {
    let is_read = request.method == Method::GET && request.target.path().contains("(PartitionKey=");
    let row = row_of(request.target.as_str(), &[]).ok().filter(|_| is_read)?;
    Some((row.table.to_owned(), row.keys.partition, row.keys.row))
}

/// Returns the rows that a request writes, with the nonces that it sends.
fn writes(request: &ProxiedRequest) -> Vec<(RowName, Map<String, Value>)> {
    let one = |target: &str, body: &[u8]| {
        let row = row_of(target, body).ok()?;
        let mut nonces = row.properties;
        nonces.retain(|name, _| name.ends_with(NONCE));
        Some(((row.table.to_owned(), row.keys.partition, row.keys.row), nonces))
    };
    if request.is_batch() {
        let kind = request.header("content-type").unwrap_or_default();
        let operations = batch::operations(kind, &request.body).unwrap_or_default();
        return operations.iter().filter_map(|it| one(it.path, it.body.as_bytes())).collect();
    }
    let is_write = request.method != Method::GET && !request.target.path().ends_with("/Tables");
    is_write.then(|| one(request.target.as_str(), &request.body)).flatten().into_iter().collect()
}
