//! The records and payloads of one process, and the commits of chunks. Each call goes over the network, and the auditor checks
//! the store after it.

use std::sync::Arc;

use async_trait::async_trait;
use postonce_shared::testing::prelude::*;

use super::mistakes;
use crate::simulation::event_counts::answer_name;
use crate::simulation::faults::Fault;
use crate::simulation::mutations::Mutation;
use crate::simulation::network::{Network, StoreRequest, now};
use crate::simulation::ports::{StoreConnection, short};

#[async_trait]
impl Records for StoreConnection {
    async fn find(&self, of: Collection, id: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        let kept = id.to_owned();
        let request = StoreRequest::read("record", format!("{} {id}", of.code()));
        let found = self.request(request, move |network| now(network.raw.records.find(of, &kept))).await?;
        Ok(if of == Collection::Batches { found.map(|it| mistakes::found(self, id, it)) } else { found })
    }

    async fn list(
        &self,
        of: Collection,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreFault> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.request(StoreRequest::read("records", of.code()), move |network| {
            now(network.raw.records.list(of, &prefix, after.as_deref(), limit))
        })
        .await
    }

    async fn save(
        &self,
        of: Collection,
        id: &str,
        body: &str,
        expected: Option<&Revision>,
    ) -> Result<Swapped, StoreFault> {
        let body =
            if of == Collection::Batches { mistakes::to_save(self, id, body) } else { body.to_owned() };
        let (id, expected) = (id.to_owned(), expected.cloned());
        let request = StoreRequest::write("save", format!("{} {id}", of.code()));
        self.request(request, move |network| {
            let saved = now(network.raw.records.save(of, &id, &body, expected.as_ref()));
            if of == Collection::Batches {
                network.auditor.batches(|batches| batches.saved(&network.raw, &id));
            }
            saved
        })
        .await
    }

    async fn remove(&self, of: Collection, id: &str) -> Result<(), StoreFault> {
        let kept = id.to_owned();
        let request = StoreRequest::write("remove", format!("{} {id}", of.code()));
        self.request(request, move |network| now(network.raw.records.remove(of, &kept))).await
    }
}

#[async_trait]
impl PayloadStore for StoreConnection {
    async fn put(&self, name: &str, body: &[u8]) -> Result<(), StoreFault> {
        let (kept_name, kept) = mistakes::to_put(self, name, body);
        let put = self.request(StoreRequest::write("put", name), move |network| {
            network.auditor.batches(|batches| batches.splits(&kept_name));
            network.auditor.payload_stored(&kept_name, &kept);
            now(network.raw.payloads.put(&kept_name, &kept))
        });
        put.await?;
        mistakes::stored(self, name, body);
        Ok(())
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreFault> {
        let kept = name.to_owned();
        let is_lost = name.starts_with(PAYLOADS) && self.network.injects(Fault::PayloadLost);
        self.request(StoreRequest::read("payload", name), move |network| {
            network.auditor.batches(|batches| batches.reads_chunk(&kept));
            if is_lost {
                now(network.raw.payloads.delete(&kept))?;
            }
            now(network.raw.payloads.get(&kept))
        })
        .await
    }

    async fn delete(&self, name: &str) -> Result<(), StoreFault> {
        let kept = name.to_owned();
        let request = StoreRequest::write("delete-payload", name);
        self.request(request, move |network| now(network.raw.payloads.delete(&kept))).await
    }

    async fn list(
        &self,
        prefix: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<PayloadEntry>, StoreFault> {
        let (prefix, cursor) = (prefix.to_owned(), cursor.map(str::to_owned));
        self.request(StoreRequest::read("payloads", &prefix), move |network| {
            now(network.raw.payloads.list(&prefix, cursor.as_deref(), limit))
        })
        .await
    }
}

/// Returns whether a commit belongs to a chunk.
pub fn is_of_chunk(commit: &AccountCommit) -> bool {
    commit.inserted().iter().any(|insertion| insertion.pending.submission.batch_line.is_some())
}

/// Sends a commit of a chunk.
///
/// # Errors
/// Same as [`Network::request`].
pub async fn post(connection: &StoreConnection, commit: &AccountCommit) -> Result<Committed, StoreFault> {
    let kept = commit.clone();
    let names: Vec<String> = commit.outcomes().map(|(key, _)| short(key)).collect();
    let request = StoreRequest::write("commit-chunk", names.join(" "));
    let unguarded = connection.makes(Mutation::ChunkKeysNotGuarded);
    // If the strong reference is gone, the sender has received an error, or its process has ended.
    let in_progress = Arc::new(());
    let sender = Arc::downgrade(&in_progress);
    let answer = connection.request(request, move |network| {
        let store = if unguarded { &network.unguarded } else { &network.raw };
        let answer = now(store.ledger.commit(&kept));
        network.auditor.committed(&network.raw, &kept, &answer);
        if matches!(answer, Ok(Committed::Done { revision: Some(_) })) {
            network.auditor.batches(|batches| batches.posted(&network.raw, kept.inserted()));
            let is_late = sender.strong_count() == 0;
            count(network, "commit: written after its sender gave up", u64::from(is_late));
        }
        answer
    });
    let answer = answer.await;
    drop(in_progress);
    count_answer(connection, commit, &answer);
    believed(connection, answer)
}

/// Sends the rejections of items of an account that does not exist.
///
/// # Errors
/// Same as [`Network::request`].
pub async fn reject(
    connection: &StoreConnection,
    commit: &UnknownAccountCommit,
) -> Result<Committed, StoreFault> {
    let kept = commit.clone();
    let names: Vec<String> = commit.decided.iter().map(|one| short(one.key())).collect();
    let unguarded = connection.makes(Mutation::ChunkKeysNotGuarded);
    let answer = connection.request(StoreRequest::write("reject", names.join(" ")), move |network| {
        let exists =
            |key: &TransactionKey| now(network.raw.ledger.transaction(key)).is_ok_and(|row| row.is_some());
        let is_repeated = kept.decided.iter().all(|it| exists(it.key()));
        let store = if unguarded { &network.unguarded } else { &network.raw };
        let answer = now(store.ledger.reject_unknown(&kept));
        let is_written = matches!(answer, Ok(Committed::Done { .. })) && !is_repeated;
        network.auditor.rejected_unknown(&network.raw, &kept, is_written);
        if is_written {
            network.auditor.batches(|batches| batches.posted(&network.raw, &kept.decided));
        }
        answer
    });
    believed(connection, answer.await)
}

/// Simulates a worker that reports its decision instead of the outcome in the rows.
fn believed(
    connection: &StoreConnection,
    answer: Result<Committed, StoreFault>,
) -> Result<Committed, StoreFault> {
    match answer {
        Err(_) | Ok(Committed::Taken(_)) if connection.makes(Mutation::OutcomeBelieved) => {
            Ok(Committed::Done { revision: None })
        }
        answer => answer,
    }
}

fn count(network: &Network, name: &str, more: u64) {
    network.auditor.batches(|batches| batches.count(name, more));
}

/// Counts the response to a commit of a chunk.
pub fn count_answer(
    connection: &StoreConnection,
    commit: &AccountCommit,
    answer: &Result<Committed, StoreFault>,
) {
    let network = &connection.network;
    let name = answer_name(answer);
    count(network, name, 1);
    if name == "commit: written" {
        let accepted = u64::try_from(commit.stored().len()).unwrap_or(0);
        count(network, "item: accepted before as a request of its own", accepted);
    }
}
