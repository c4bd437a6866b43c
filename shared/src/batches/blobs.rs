//! The stored bodies of a batch. The name of a body contains the start of its digest. A body is used only if its digest
//! equals the one in the record of the batch, or in a body that the record refers to.

use std::fmt;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::BLOBS_AT_ONCE;
use crate::domain::batch::{BatchKey, Digest};
use crate::domain::ids::{BatchId, PartnerId};
use crate::ports::fault::{StoreFault, chain};
use crate::ports::payload_store::PayloadStore;

/// Prefix of the names of all bodies.
pub const BATCHES: &str = "batch-";
/// Number of bytes of the digest in a name.
const NAMED_DIGEST_BYTES: usize = 8;

/// The kind of a body of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blob {
    /// A part of the document, by number.
    Part(u32),
    /// The list of the parts.
    Parts,
    /// A chunk: the split that created it, and its number.
    Chunk(Uuid, u32),
    /// The list of the chunks of a split.
    Manifest(Uuid),
    /// The results of a chunk: the split that created it, and its number.
    Outcome(Uuid, u32),
    /// A page of the results of the batch, by number.
    Page(u32),
    /// The list of the pages.
    Pages,
}

impl fmt::Display for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(number) => write!(f, "part {number} of the document"),
            Self::Parts => f.write_str("the list of the parts of the document"),
            Self::Chunk(split, number) => write!(f, "chunk {number} of the split {split}"),
            Self::Manifest(split) => write!(f, "the list of the chunks of the split {split}"),
            Self::Outcome(split, number) => write!(f, "the results of chunk {number} of the split {split}"),
            Self::Page(number) => write!(f, "page {number} of the results"),
            Self::Pages => f.write_str("the list of the pages of results"),
        }
    }
}

/// The bodies of one upload of a batch.
#[derive(Clone)]
pub struct Blobs {
    payloads: Arc<dyn PayloadStore>,
    prefix: String,
}

/// Returns the digest of a body.
pub fn digest_of(body: &[u8]) -> Digest {
    Digest(Sha256::digest(body).into())
}

impl Blobs {
    /// Returns a handle to the bodies of one upload of a batch.
    pub fn new(payloads: Arc<dyn PayloadStore>, key: &BatchKey, upload: Uuid) -> Self {
        Self { payloads, prefix: prefix(key, upload) }
    }

    /// Stores a body, and returns its digest.
    ///
    /// # Errors
    /// [`StoreFault`]; the body may have been stored.
    pub async fn put(&self, blob: Blob, body: &[u8]) -> Result<Digest, StoreFault> {
        let digest = digest_of(body);
        self.payloads.put(&self.name(blob, digest), body).await?;
        Ok(digest)
    }

    /// Reads a body; `None` if it is missing or does not have this digest.
    ///
    /// # Errors
    /// [`StoreFault`] when the store is unavailable.
    pub async fn get(&self, blob: Blob, digest: Digest) -> Result<Option<Vec<u8>>, StoreFault> {
        let name = self.name(blob, digest);
        let body = match self.payloads.get(&name).await {
            Ok(body) => body,
            Err(fault) if fault.is_transient() => return Err(fault),
            Err(fault) => {
                tracing::error!(payload = name, "The payload {name} cannot be used: {fault}");
                None
            }
        };
        Ok(body.filter(|body| {
            let is_intact = digest_of(body) == digest;
            if !is_intact {
                tracing::error!(payload = name, "The payload {name} was changed after it was written");
            }
            is_intact
        }))
    }

    /// Removes bodies that are no longer needed. Logs a fault; the sweep removes the remaining bodies.
    pub async fn remove_all(&self, blobs: Vec<(Blob, Digest)>) {
        let names: Vec<String> = blobs.into_iter().map(|(blob, digest)| self.name(blob, digest)).collect();
        let removals: Vec<_> = names.iter().map(|name| self.payloads.delete(name)).collect();
        let removed: Result<(), StoreFault> =
            stream::iter(removals).buffer_unordered(BLOBS_AT_ONCE).try_collect().await;
        if let Err(fault) = removed {
            tracing::warn!("Bodies of a batch remain for the sweep: {}", chain(&fault));
        }
    }

    fn name(&self, blob: Blob, digest: Digest) -> String {
        let kind = match blob {
            Blob::Part(number) => format!("p{number}"),
            Blob::Parts => "parts".to_owned(),
            Blob::Chunk(split, number) => format!("{}-c{number}", split.simple()),
            Blob::Manifest(split) => format!("{}-manifest", split.simple()),
            Blob::Outcome(split, number) => format!("{}-r{number}", split.simple()),
            Blob::Page(number) => format!("o{number}"),
            Blob::Pages => "pages".to_owned(),
        };
        let short = digest.0.get(..NAMED_DIGEST_BYTES).map(hex::encode).unwrap_or_default();
        format!("{}-{kind}-{short}", self.prefix)
    }
}

/// The partner is hex-encoded, because its name may contain characters that payload names do not allow.
fn prefix(key: &BatchKey, upload: Uuid) -> String {
    let BatchKey { partner, batch } = key;
    format!("{BATCHES}{}-{}-{}", hex::encode(partner.as_str()), batch.simple(), upload.simple())
}

/// The parts of the name of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The batch.
    pub key: BatchKey,
    /// The upload.
    pub upload: Uuid,
    /// Whether the body belongs to the results, which are kept after the batch is completed.
    pub is_result: bool,
}

/// Parses the name of a body; `None` for any other name.
pub fn parse(name: &str) -> Option<Named> {
    let mut parts = name.strip_prefix(BATCHES)?.split('-');
    let partner = String::from_utf8(hex::decode(parts.next()?).ok()?).ok()?;
    let partner = PartnerId::parse(&partner).ok()?;
    let batch = BatchId::from_uuid(Uuid::try_parse(parts.next()?).ok()?);
    let upload = Uuid::try_parse(parts.next()?).ok()?;
    let kind = parts.next()?;
    let is_page = kind.strip_prefix('o').is_some_and(|number| number.parse::<u32>().is_ok());
    Some(Named { key: BatchKey { partner, batch }, upload, is_result: is_page || kind == "pages" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::memory::world::TestWorld;
    use crate::ports::payload_store::is_name;

    fn key(partner: &str) -> BatchKey {
        let batch = BatchId::from_uuid(Uuid::from_u128(u128::MAX));
        BatchKey { partner: PartnerId::parse(partner).unwrap(), batch }
    }

    #[test]
    fn names_are_valid_and_can_be_parsed() {
        let (key, upload) = (key(&format!("a{}", "_".repeat(31))), Uuid::from_u128(1));
        let store = MemoryStore::new(std::sync::Arc::new(TestWorld::new(1)));
        let blobs = Blobs::new(store.payloads, &key, upload);
        let split = Uuid::from_u128(u128::MAX);
        for (blob, is_result) in [
            (Blob::Part(u32::MAX), false),
            (Blob::Parts, false),
            (Blob::Chunk(split, u32::MAX), false),
            (Blob::Manifest(split), false),
            (Blob::Outcome(split, u32::MAX), false),
            (Blob::Page(7), true),
            (Blob::Pages, true),
        ] {
            let name = blobs.name(blob, Digest([255; 32]));
            assert!(is_name(&name), "{name}");
            assert_eq!(parse(&name), Some(Named { key: key.clone(), upload, is_result }), "{name}");
        }
        for foreign in ["", "work-1", "batch-", "batch-zz-1-2-p1", "batch-7a-1-2"] {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
    }
}
