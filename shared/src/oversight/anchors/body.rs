//! The JSON encoding of an anchor. The record id is the sequence subtracted from `u64::MAX`, so that a listing starts
//! with the last anchor.

use serde::{Deserialize, Serialize};

use crate::domain::anchor::signed::SignedAnchor;
use crate::domain::anchor::{Statement, StatementError};

/// The version that this program writes, and the only one that it reads.
const VERSION: u32 = 1;

/// A stored anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnchor {
    /// The signed statement, decoded.
    pub statement: Statement,
    /// The text of the statement, with its signature.
    pub signed: SignedAnchor,
    /// The id of its list of leaves.
    pub list: String,
}

/// Why a record cannot be decoded as an anchor.
#[derive(Debug, thiserror::Error)]
pub enum AnchorBodyError {
    /// The record id does not encode a sequence.
    #[error("{0:?} is not the id of an anchor")]
    Id(String),
    /// The text is not the expected JSON.
    #[error("the anchor is not the expected JSON")]
    Json(#[source] serde_json::Error),
    /// A newer program wrote the text.
    #[error("the anchor has version {0}, which this program does not read")]
    Newer(u32),
    /// The statement cannot be read.
    #[error("the statement cannot be read")]
    Statement(#[source] StatementError),
    /// The statement belongs to another anchor.
    #[error("the statement is that of anchor {0}")]
    Sequence(u64),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    v: u32,
    list: String,
    anchor: SignedAnchor,
}

/// Returns the record id of an anchor.
pub(super) fn id(sequence: u64) -> String {
    format!("{:020}", u64::MAX.saturating_sub(sequence))
}

pub(super) fn sequence(text: &str) -> Option<u64> {
    let number = text.parse().ok().map(|number: u64| u64::MAX.saturating_sub(number));
    number.filter(|sequence| *sequence > 0 && id(*sequence) == text)
}

pub(super) fn encode(signed: &SignedAnchor, list: &str) -> String {
    let body = Body { v: VERSION, list: list.to_owned(), anchor: signed.clone() };
    serde_json::to_string(&body).expect("strings and numbers always serialize to JSON")
}

/// Decodes an anchor without verifying its signature.
pub(super) fn decode(id: &str, text: &str) -> Result<StoredAnchor, AnchorBodyError> {
    let sequence = sequence(id).ok_or_else(|| AnchorBodyError::Id(id.to_owned()))?;
    let Body { v, list, anchor: signed } = serde_json::from_str(text).map_err(AnchorBodyError::Json)?;
    if v != VERSION {
        return Err(AnchorBodyError::Newer(v));
    }
    let statement = signed.decode().map_err(AnchorBodyError::Statement)?;
    if statement.sequence != sequence {
        return Err(AnchorBodyError::Sequence(statement.sequence));
    }
    Ok(StoredAnchor { statement, signed, list })
}
