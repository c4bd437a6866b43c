//! Encodes the statement of an anchor as one line of JSON. Signatures and hashes cover exactly these bytes, so that a
//! check needs no canonical form of JSON.

use serde::{Deserialize, Serialize};

use super::Hash;
use crate::domain::page_hash::PageHash;
use crate::domain::time::Timestamp;

/// The version that this program writes, and the only one that it reads.
const VERSION: u32 = 1;

/// The occasion on which an anchor was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnchorKind {
    /// A round of the scrubber, or a command.
    Round,
    /// A restore, after which the store continues from an earlier state.
    Restore {
        /// The last anchor that the restored state does not contradict, if any. Anchors between it and this one are abandoned.
        returned_to: Option<AnchorRef>,
    },
}

impl AnchorKind {
    /// Returns the stable code: `round` or `restore`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Round => "round",
            Self::Restore { .. } => "restore",
        }
    }
}

/// Identifies an anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnchorRef {
    /// The sequence of the anchor.
    pub sequence: u64,
    /// The hash of the text of its statement.
    pub hash: Hash,
}

/// The last row of the audit trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditPosition {
    /// The sequence of the row.
    pub sequence: u64,
    /// The hash of the row.
    pub hash: PageHash,
}

/// The leaves of an anchor, one for each account, in the order of their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeavesStatement {
    /// Number of leaves.
    pub count: u64,
    /// Root of the Merkle tree over the leaves.
    pub root: Hash,
    /// Digest of the parts in which the list is stored; see [`Hash::with_part`].
    pub digest: Hash,
    /// Number of parts.
    pub parts: u32,
}

/// The content of an anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    /// The position among the anchors, from 1, without gaps.
    pub sequence: u64,
    /// The hash of the text of the previous statement; [`Hash::ZERO`] in the first one.
    pub previous: Hash,
    /// The occasion of the anchor.
    pub kind: AnchorKind,
    /// The time when the statement was made.
    pub made_at: Timestamp,
    /// The time when the collection of the leaves began.
    pub began_at: Timestamp,
    /// The list of leaves that the anchor covers.
    pub leaves: LeavesStatement,
    /// The last row of the audit trail; `None` if there is none.
    pub audit: Option<AuditPosition>,
}

/// Error: the text is not a statement.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// The text is not the expected JSON.
    #[error("the statement is not the expected JSON")]
    Json(#[source] serde_json::Error),
    /// The text has a version that this program does not read.
    #[error("the statement has version {0}; this program reads version {VERSION}")]
    Newer(u32),
    /// A member of the JSON object has an invalid value.
    #[error("the member {0} of the statement cannot be read")]
    Member(&'static str),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    v: u32,
    sequence: u64,
    previous: String,
    kind: String,
    made_at: String,
    began_at: String,
    leaves: LeavesText,
    audit: Option<PositionText>,
    returned_to: Option<PositionText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeavesText {
    count: u64,
    root: String,
    digest: String,
    parts: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PositionText {
    sequence: u64,
    hash: String,
}

impl Statement {
    /// Encodes the statement as one line of JSON.
    pub fn encode(&self) -> String {
        let Self { sequence, previous, kind, made_at, began_at, leaves, audit } = self;
        let LeavesStatement { count, root, digest, parts } = leaves;
        let position =
            |sequence, hash: &dyn std::fmt::Display| PositionText { sequence, hash: hash.to_string() };
        let returned_to = match kind {
            AnchorKind::Round => None,
            AnchorKind::Restore { returned_to } => *returned_to,
        };
        let text = Text {
            v: VERSION,
            sequence: *sequence,
            previous: previous.to_string(),
            kind: kind.code().to_owned(),
            made_at: made_at.to_string(),
            began_at: began_at.to_string(),
            leaves: LeavesText {
                count: *count,
                root: root.to_string(),
                digest: digest.to_string(),
                parts: *parts,
            },
            audit: audit.map(|audit| position(audit.sequence, &audit.hash)),
            returned_to: returned_to.map(|anchor| position(anchor.sequence, &anchor.hash)),
        };
        serde_json::to_string(&text).expect("strings and numbers always serialize to JSON")
    }

    /// Parses the output of [`Self::encode`].
    ///
    /// # Errors
    /// [`StatementError`] if the text is not a statement of a known version.
    pub fn decode(text: &str) -> Result<Self, StatementError> {
        let member = StatementError::Member;
        let version: serde_json::Value = serde_json::from_str(text).map_err(StatementError::Json)?;
        let version = version.get("v").and_then(serde_json::Value::as_u64).ok_or(member("v"))?;
        if version != u64::from(VERSION) {
            return Err(StatementError::Newer(u32::try_from(version).unwrap_or(u32::MAX)));
        }
        let text: Text = serde_json::from_str(text).map_err(StatementError::Json)?;
        let Text { v: _, sequence, previous, kind, made_at, began_at, leaves, audit, returned_to } = text;
        let hash = |text: &str, name| Hash::parse(text).ok_or(member(name));
        let time = |text: &str, name| Timestamp::parse(text).ok_or(member(name));
        let returned_to = returned_to
            .map(|it| Ok(AnchorRef { sequence: it.sequence, hash: hash(&it.hash, "returned_to")? }))
            .transpose()?;
        let kind = match (kind.as_str(), returned_to) {
            ("round", None) => AnchorKind::Round,
            ("restore", returned_to) => AnchorKind::Restore { returned_to },
            _ => return Err(member("kind")),
        };
        let audit = audit
            .map(|it| {
                let hash = PageHash::parse(&it.hash).ok_or(member("audit"))?;
                Ok(AuditPosition { sequence: it.sequence, hash })
            })
            .transpose()?;
        if sequence == 0 {
            return Err(member("sequence"));
        }
        let LeavesText { count, root, digest, parts } = leaves;
        let (root, digest) = (hash(&root, "root")?, hash(&digest, "digest")?);
        Ok(Self {
            sequence,
            previous: hash(&previous, "previous")?,
            kind,
            made_at: time(&made_at, "made_at")?,
            began_at: time(&began_at, "began_at")?,
            leaves: LeavesStatement { count, root, digest, parts },
            audit,
        })
    }
}
