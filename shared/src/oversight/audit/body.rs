//! The JSON encoding of an audit row, the same in every store. The record id is the sequence subtracted from
//! `u64::MAX`, so that a listing starts with the last row.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::audit_row::{AuditRow, DoneAct};
use crate::domain::ids::Nonce;
use crate::domain::journal::PageHash;
use crate::domain::time::Timestamp;

/// The version that this program writes, and the only one that it reads.
const VERSION: u32 = 1;

/// Why a record cannot be decoded as an audit row.
#[derive(Debug, thiserror::Error)]
pub enum AuditBodyError {
    /// The record id does not encode a sequence.
    #[error("{0:?} is not the id of an audit row")]
    Id(String),
    /// The text is not the expected JSON.
    #[error("the row is not the expected JSON")]
    Json(#[source] serde_json::Error),
    /// A newer program wrote the text.
    #[error("the row has version {0}; this program reads version {VERSION}")]
    Newer(u32),
    /// A member cannot be parsed.
    #[error("the {0} of the row cannot be read")]
    Member(&'static str),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    v: u32,
    at: i64,
    actor: String,
    key_id: String,
    act: String,
    target: String,
    origin: String,
    nonce: Uuid,
    previous_hash: String,
    hash: String,
}

pub(super) fn id(sequence: u64) -> String {
    format!("{:020}", u64::MAX.saturating_sub(sequence))
}

pub(super) fn sequence(text: &str) -> Result<u64, AuditBodyError> {
    let number = text.parse().ok().map(|number: u64| u64::MAX.saturating_sub(number));
    let sequence = number.filter(|sequence| *sequence > 0 && id(*sequence) == text);
    sequence.ok_or_else(|| AuditBodyError::Id(text.to_owned()))
}

pub(super) fn encode(row: &AuditRow) -> String {
    // The record id contains the sequence.
    let AuditRow { sequence: _, done, previous_hash, hash } = row.clone();
    let DoneAct { at, actor, key_id, act, target, origin, nonce } = done;
    let (nonce, previous_hash, hash) = (nonce.as_uuid(), previous_hash.to_string(), hash.to_string());
    let body =
        Body { v: VERSION, at: at.unix_ms(), actor, key_id, act, target, origin, nonce, previous_hash, hash };
    serde_json::to_string(&body).expect("strings and numbers always serialize to JSON")
}

/// Decodes a row without verifying its hashes.
pub(super) fn decode(sequence: u64, text: &str) -> Result<AuditRow, AuditBodyError> {
    let body: Body = serde_json::from_str(text).map_err(AuditBodyError::Json)?;
    let Body { v, at, actor, key_id, act, target, origin, nonce, previous_hash, hash } = body;
    if v != VERSION {
        return Err(AuditBodyError::Newer(v));
    }
    let stored_at = at;
    let at = Timestamp::from_unix_ms(stored_at);
    if at.unix_ms() != stored_at {
        return Err(AuditBodyError::Member("time"));
    }
    let parsed = |text: &str, member| PageHash::parse(text).ok_or(AuditBodyError::Member(member));
    let (previous_hash, hash) = (parsed(&previous_hash, "previous_hash")?, parsed(&hash, "hash")?);
    let nonce = Nonce::from_uuid(nonce);
    let done = DoneAct { at, actor, key_id, act, target, origin, nonce };
    Ok(AuditRow { sequence, done, previous_hash, hash })
}

pub(super) fn encode_head((sequence, hash): (u64, PageHash)) -> String {
    format!("1 {sequence} {hash}")
}

pub(super) fn decode_head(text: &str) -> Result<(u64, PageHash), AuditBodyError> {
    let parts: Option<[&str; 3]> = text.split(' ').collect::<Vec<_>>().try_into().ok();
    let head = parts.filter(|[version, ..]| *version == "1").and_then(|[_, sequence, hash]| {
        let sequence = sequence.parse().ok().filter(|sequence| *sequence > 0)?;
        Some((sequence, PageHash::parse(hash)?))
    });
    head.ok_or(AuditBodyError::Member("sequence and hash of the last row"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written() {
        let done = DoneAct {
            at: Timestamp::from_unix_ms(1_767_225_600_007),
            actor: "shop".to_owned(),
            key_id: String::new(),
            act: "store.restore".to_owned(),
            target: r#"file="a \"b\".db""#.to_owned(),
            origin: "command line".to_owned(),
            nonce: Nonce::from_uuid(Uuid::from_u128(7)),
        };
        let row = AuditRow::after((41, PageHash::from_bytes([3; 32])), done);
        assert_eq!(decode(42, &encode(&row)).unwrap(), row);
        let head = (row.sequence, row.hash);
        assert_eq!(decode_head(&encode_head(head)).unwrap(), head);
        for wrong in [
            "",
            "{}",
            &encode(&row).replace("\"v\":1", "\"v\":2"),
            &encode(&row).replace("\"at\":1", "\"at\":-1"),
        ] {
            assert!(decode(42, wrong).is_err(), "{wrong}");
        }
        for wrong in [
            "",
            "1 0 00",
            "1 7",
            "2 7 00",
            &encode_head(head).replacen('1', "2", 1),
            &format!("{} ", encode_head(head)),
        ] {
            assert!(decode_head(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn later_rows_have_lower_ids() {
        assert!(id(2) < id(1) && id(10) < id(9) && id(u64::MAX) < id(u64::MAX - 1));
        for number in [1, 2, 1_000_000, u64::MAX] {
            assert_eq!(sequence(&id(number)).unwrap(), number);
        }
        for wrong in
            ["", "x", "1", &id(0), "+8446744073709551614", "99999999999999999999", "018446744073709551614"]
        {
            assert!(sequence(wrong).is_err(), "{wrong}");
        }
    }
}
