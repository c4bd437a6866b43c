//! Mutations of the steps of batches, applied to the reads and writes of a process.

use std::collections::{BTreeMap, BTreeSet};

use postonce_shared::batches::blobs::digest_of;
use postonce_shared::batches::chunks::ChunkEntry;
use postonce_shared::batches::items::{self, ResultLine};
use postonce_shared::batches::results::PageEntry;
use postonce_shared::testing::prelude::*;
use serde_json::{Value, json};

use super::checks;
use crate::simulation::mutations::Mutation;
use crate::simulation::network::now;
use crate::simulation::ports::StoreConnection;

/// State of a process that makes a mistake.
#[derive(Debug, Default)]
pub struct Mistaken {
    /// Chunks whose outcome was received since the record was last read.
    reported: BTreeSet<(String, u32)>,
    /// For each batch, the phase with the last manifest that the process stored.
    manifests: BTreeMap<String, Value>,
    /// The digests of changed bodies, by the digests of the original ones.
    changed: BTreeMap<[u8; 32], [u8; 32]>,
}

fn id_of(BatchKey { partner, batch }: &BatchKey) -> String {
    format!("{partner}-{}", batch.simple())
}

/// Records that a process received a message.
pub fn received(connection: &StoreConnection, body: &[u8]) {
    if connection.makes(Mutation::ChunkCountedTwice)
        && let Some((key, _, chunk)) = checks::reported(body)
    {
        connection.mistaken.lock().reported.insert((id_of(&key), chunk));
    }
}

/// Changes a record that the process reads.
pub fn found(connection: &StoreConnection, id: &str, found: Versioned<String>) -> Versioned<String> {
    let Ok(mut row) = serde_json::from_str::<Value>(&found.value) else { return found };
    let mut mistaken = connection.mistaken.lock();
    if connection.makes(Mutation::ChunkCountedTwice) {
        let reported: Vec<(String, u32)> =
            mistaken.reported.iter().filter(|(of, _)| of == id).cloned().collect();
        for reported in reported {
            let outcomes = row.pointer_mut("/phase/posting/outcomes");
            if let Some(outcomes) = outcomes.and_then(Value::as_object_mut) {
                outcomes.remove(&reported.1.to_string());
            }
            mistaken.reported.remove(&reported);
        }
    } else if connection.makes(Mutation::ChunkOfNoManifest) {
        let is_open = row["phase"] == "splitting" || row["phase"]["posting"].is_object();
        let own = mistaken.manifests.get(id).filter(|_| is_open);
        match own {
            Some(own) if row["phase"]["posting"]["split"] != own["posting"]["split"] => {
                row["phase"] = own.clone()
            }
            Some(_) | None => return found,
        }
    } else if connection.makes(Mutation::CompletedBeforeTheLastChunk) && row["phase"]["posting"].is_object() {
        let posting = &row["phase"]["posting"];
        let counted = posting["outcomes"].as_object().map_or(0, serde_json::Map::len);
        let valid = sum(&posting["totals"]);
        row["phase"]["posting"]["chunks"] = json!(counted.max(1));
        row["valid"] = valid;
    } else {
        return found;
    }
    Versioned { value: row.to_string(), revision: found.revision }
}

/// Returns the stored form of the sum of all totals.
fn sum(totals: &Value) -> Value {
    let (mut count, mut sums) = (0_u64, BTreeMap::<(String, String), u128>::new());
    for tally in totals.as_object().into_iter().flat_map(serde_json::Map::values) {
        count = count.saturating_add(tally["count"].as_u64().unwrap_or(0));
        for one in tally["sums"].as_array().into_iter().flatten() {
            let text = |at: usize| one[at].as_str().unwrap_or_default().to_owned();
            let sum = sums.entry((text(0), text(1))).or_default();
            *sum = sum.saturating_add(text(2).parse().unwrap_or(0));
        }
    }
    let sums: Vec<Value> =
        sums.iter().map(|((currency, kind), sum)| json!([currency, kind, sum.to_string()])).collect();
    json!({ "count": count, "sums": sums })
}

/// Changes a record that the process writes.
pub fn to_save(connection: &StoreConnection, id: &str, body: &str) -> String {
    let Ok(mut row) = serde_json::from_str::<Value>(body) else { return body.to_owned() };
    let stored = now(connection.network.raw.records.find(Collection::Batches, id)).ok().flatten();
    let stored = stored.and_then(|stored| serde_json::from_str::<Value>(&stored.value).ok());
    let stored = stored.unwrap_or_else(|| row.clone());
    if connection.makes(Mutation::ChunkOfNoManifest) && stored["phase"] == "splitting" {
        // The process believes in its own manifest, so the phase is not written.
        if connection.mistaken.lock().manifests.contains_key(id) {
            row["phase"] = stored["phase"].clone();
        }
    } else if connection.makes(Mutation::CompletedBeforeTheLastChunk) {
        if row["phase"]["posting"].is_object() && stored["phase"]["posting"].is_object() {
            row["phase"]["posting"]["chunks"] = stored["phase"]["posting"]["chunks"].clone();
        }
        row["valid"] = stored["valid"].clone();
    } else if connection.makes(Mutation::ResultsOutOfOrder) && row["phase"]["completed"].is_object() {
        let mut digest = [0; 32];
        let results = row["phase"]["completed"]["results"].as_str().unwrap_or_default();
        let decoded = hex::decode_to_slice(results, &mut digest);
        if let (Ok(()), Some(changed)) = (decoded, connection.mistaken.lock().changed.get(&digest)) {
            row["phase"]["completed"]["results"] = json!(hex::encode(changed));
        }
    } else {
        return body.to_owned();
    }
    row.to_string()
}

/// Records that a body was stored.
pub fn stored(connection: &StoreConnection, name: &str, body: &[u8]) {
    if connection.makes(Mutation::ChunkOfNoManifest)
        && let Some((key, split)) = checks::manifest_of(name)
        && let Ok(chunks) = items::decode::<ChunkEntry>(body)
    {
        let posting = json!({ "posting": {
            "split": split, "manifest": hex::encode(digest_of(body).0), "chunks": chunks.len(),
            "outcomes": {}, "totals": {}, "since": 0,
        }});
        connection.mistaken.lock().manifests.insert(id_of(&key), posting);
    }
}

/// Changes a body that the process writes, and its name.
pub fn to_put(connection: &StoreConnection, name: &str, body: &[u8]) -> (String, Vec<u8>) {
    let unchanged = (name.to_owned(), body.to_vec());
    let (true, Some((head, _))) = (connection.makes(Mutation::ResultsOutOfOrder), name.rsplit_once('-'))
    else {
        return unchanged;
    };
    let mut mistaken = connection.mistaken.lock();
    let changed = if head.ends_with("-pages") {
        let mut pages: Vec<PageEntry> = items::decode(body).unwrap_or_default();
        for page in &mut pages {
            page.digest = mistaken.changed.get(&page.digest).copied().unwrap_or(page.digest);
        }
        items::encode(&pages)
    } else if head.rsplit_once("-o").is_some_and(|(_, page)| page.parse::<u32>().is_ok()) {
        let mut lines: Vec<ResultLine> = items::decode(body).unwrap_or_default();
        let by = usize::from(lines.len() > 1);
        lines.rotate_left(by);
        items::encode(&lines)
    } else {
        return unchanged;
    };
    let digest = digest_of(&changed).0;
    mistaken.changed.insert(digest_of(body).0, digest);
    let short = digest.get(..8).map(hex::encode).unwrap_or_default();
    (format!("{head}-{short}"), changed)
}
