//! Small versioned documents of several kinds. Stores do not interpret them: the module that owns a kind defines its ids
//! and its encoding.

use async_trait::async_trait;

use super::fault::StoreFault;
use super::sync_store::Swapped;
use crate::domain::account::{Revision, Versioned};

/// Maximum length of the id of a record, in characters.
pub const RECORD_ID_CHARS_MAX: usize = 100;

/// Maximum size of the body of a record, in bytes. In base64 it has 960,000 characters; the Azure Storage emulator refuses
/// requests of more than 1 MiB for one row.
pub const RECORD_BODY_BYTES_MAX: usize = 720_000;

/// A kind of record. Its code is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collection {
    /// Partners, with their permissions.
    Partners,
    /// The batches.
    Batches,
    /// Batches that are not final, so that they can be found without reading all batches.
    OpenBatches,
    /// The rows of the audit trail.
    AuditRows,
    /// Used signatures, until they expire.
    UsedSignatures,
    /// The anchors.
    Anchors,
    /// Parts of the leaf lists of anchors.
    AnchorLeaves,
}

impl Collection {
    /// Every collection.
    pub const ALL: [Self; 7] = [
        Self::Partners,
        Self::Batches,
        Self::OpenBatches,
        Self::AuditRows,
        Self::UsedSignatures,
        Self::Anchors,
        Self::AnchorLeaves,
    ];

    /// Returns the stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Partners => "partner",
            Self::Batches => "batch",
            Self::OpenBatches => "open-batch",
            Self::AuditRows => "audit",
            Self::UsedSignatures => "used-signature",
            Self::Anchors => "anchor",
            Self::AnchorLeaves => "anchor-leaves",
        }
    }
}

/// A record in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The id.
    pub id: String,
    /// The body.
    pub body: String,
}

/// The records of one store. Ids of different collections are independent.
///
/// Every method panics for an id that [`is_id`] rejects, and for a body of more than [`RECORD_BODY_BYTES_MAX`] bytes.
#[async_trait]
pub trait Records: Send + Sync {
    /// Reads a record. Takes one store operation.
    async fn find(&self, collection: Collection, id: &str) -> Result<Option<Versioned<String>>, StoreFault>;

    /// Returns at most `limit` records whose ids start with `prefix` and are greater than `after`, in byte order of the
    /// ids. A shorter list means that none follow. Both texts must consist of id characters; the empty prefix matches all ids.
    async fn list(
        &self,
        collection: Collection,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreFault>;

    /// Writes a record if its revision is still `expected` (`None`: if it does not exist). A revision is never reused,
    /// even if the record is removed and saved again.
    ///
    /// **Implementations never retry**: after a fault the record may have been written, or may still be.
    async fn save(
        &self,
        collection: Collection,
        id: &str,
        body: &str,
        expected: Option<&Revision>,
    ) -> Result<Swapped, StoreFault>;

    /// Removes a record whatever its revision. Succeeds if it does not exist. After a fault it may have been removed, or
    /// may still be.
    async fn remove(&self, collection: Collection, id: &str) -> Result<(), StoreFault>;
}

/// Returns whether an id is valid: 1 to [`RECORD_ID_CHARS_MAX`] lower-case letters, digits, `_` and `-`.
pub fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= RECORD_ID_CHARS_MAX && has_id_characters(id)
}

fn has_id_characters(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-'))
}

/// Panics unless every store can keep a record with this id.
pub fn assert_id(id: &str) {
    assert!(is_id(id), "{id:?} cannot be the id of a record");
}

/// Panics unless every store can keep this record.
pub fn assert_record(id: &str, body: &str) {
    assert_id(id);
    assert!(body.len() <= RECORD_BODY_BYTES_MAX, "the record {id} has {} bytes", body.len());
}

/// Returns the range of ids that start with `prefix` and are greater than `after`.
pub fn id_range(prefix: &str, after: Option<&str>) -> std::ops::Range<String> {
    let after = after.unwrap_or_default();
    assert!(has_id_characters(prefix) && has_id_characters(after), "{prefix:?} or {after:?} is not of an id");
    // `!` sorts before every character of an id, and `~` after.
    let (start, end) = (format!("{after}!"), format!("{prefix}~"));
    start.max(prefix.to_owned()).min(end.clone())..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_contains_the_ids_with_the_prefix_after_the_given_one() {
        let ids = ["-", "0", "a", "a-", "a-1", "a0", "a_", "aa", "b"];
        for (prefix, after) in ids.iter().flat_map(|prefix| ids.iter().map(move |after| (*prefix, *after))) {
            let check = |prefix: &str, after: Option<&str>| {
                let range = id_range(prefix, after);
                assert!(range.start <= range.end);
                for id in ids {
                    let is_expected = id.starts_with(prefix) && after.is_none_or(|after| id > after);
                    assert_eq!(range.contains(&id.to_owned()), is_expected, "{id} in {range:?}");
                }
            };
            check(prefix, Some(after));
            check(prefix, None);
            check("", Some(after));
        }
        assert!(ids.iter().all(|id| id_range("", None).contains(&(*id).to_owned())));
    }

    #[test]
    fn ids_have_few_characters_and_a_length() {
        for id in ["a", "0", "-", "_", "shop_1-2", &"x".repeat(RECORD_ID_CHARS_MAX)] {
            assert!(is_id(id), "{id}");
        }
        for id in ["", "A", "ä", "a b", "a'", "a/b", "a.b", "a\0", &"x".repeat(RECORD_ID_CHARS_MAX + 1)] {
            assert!(!is_id(id), "{id}");
        }
    }
}
