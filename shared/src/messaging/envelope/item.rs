//! The JSON encoding of one item of an envelope.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::domain::account::Revision;
use crate::domain::decision::{Submission, Work};
use crate::domain::ids::{AccountKey, PartnerId, TransactionKey};
use crate::domain::instruction::{Details, Instruction, TransactionKind};
use crate::domain::money::{Amount, Currency};
use crate::domain::origin::{Origin, RequestId, TraceParent};
use crate::domain::time::Timestamp;

/// The reason why an item cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnvelopeItemError {
    #[error("it is not the JSON of an item")]
    Json(#[from] serde_json::Error),
    #[error("its field {0} has an invalid value")]
    Field(&'static str),
}

/// One transaction. The names are short because a message contains many items.
#[derive(Serialize, Deserialize)]
pub(super) struct ItemRow<'a> {
    /// User.
    #[serde(borrow)]
    u: Cow<'a, str>,
    /// Account.
    #[serde(borrow)]
    c: Cow<'a, str>,
    /// Partner.
    #[serde(borrow)]
    p: Cow<'a, str>,
    /// Message id.
    #[serde(borrow)]
    m: Cow<'a, str>,
    /// Code of the kind.
    #[serde(borrow)]
    k: Cow<'a, str>,
    /// Amount in minor units.
    #[serde(borrow)]
    a: Cow<'a, str>,
    /// Code of the currency.
    #[serde(borrow)]
    cur: Cow<'a, str>,
    /// Time of acceptance in milliseconds since 1970.
    #[serde(borrow)]
    t: Cow<'a, str>,
    /// Revision of the transaction's row.
    #[serde(borrow)]
    e: Cow<'a, str>,
    /// Reference.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    r: Option<Cow<'a, str>>,
    /// Metadata.
    #[serde(default, skip_serializing_if = "is_empty")]
    d: Cow<'a, BTreeMap<String, String>>,
    /// Canonical JSON of the unknown members.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    x: Cow<'a, str>,
    /// Id of the request.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    q: Option<Cow<'a, str>>,
    /// Value of `traceparent`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    tp: Option<Cow<'a, str>>,
}

fn is_empty(metadata: &BTreeMap<String, String>) -> bool {
    metadata.is_empty()
}

pub(super) fn write(row: &ItemRow<'_>) -> Box<RawValue> {
    serde_json::value::to_raw_value(row).expect("texts can always be written as JSON")
}

/// Decodes the output of [`write()`].
pub(super) fn read(item: &RawValue) -> Result<Work, EnvelopeItemError> {
    from_row(serde_json::from_str(item.get())?)
}

pub(super) fn row_of(work: &Work) -> ItemRow<'_> {
    let Work { submission, row: revision, delivered: _ } = work;
    // Items of batches are posted without a message.
    let Submission { key, instruction, accepted_at, origin, batch_line: _ } = submission;
    row(key, instruction, *accepted_at, revision, origin)
}

pub(super) fn row<'a>(
    key: &'a TransactionKey,
    instruction: &'a Instruction,
    accepted_at: Timestamp,
    revision: &'a Revision,
    Origin { request_id, traceparent }: &'a Origin,
) -> ItemRow<'a> {
    let TransactionKey { account, partner, message } = key;
    let Instruction { kind, amount, details } = instruction;
    ItemRow {
        u: account.user.simple().into(),
        c: account.account.simple().into(),
        p: partner.as_str().into(),
        m: message.simple().into(),
        k: kind.code().into(),
        a: amount.minor_units().to_string().into(),
        cur: amount.currency().code().into(),
        t: accepted_at.unix_ms().to_string().into(),
        e: revision.as_str().into(),
        r: details.reference().map(Cow::Borrowed),
        d: Cow::Borrowed(details.metadata()),
        x: details.unknown_members().into(),
        q: request_id.as_ref().map(|id| id.as_str().into()),
        tp: traceparent.as_ref().map(|trace| trace.as_str().into()),
    }
}

/// Parses the transaction key from the members for user, account, partner and message id.
pub(super) fn key([u, c, p, m]: [&str; 4]) -> Result<TransactionKey, EnvelopeItemError> {
    let field = EnvelopeItemError::Field;
    let account =
        AccountKey { user: u.parse().map_err(|_| field("u"))?, account: c.parse().map_err(|_| field("c"))? };
    let partner = PartnerId::parse(p).map_err(|_| field("p"))?;
    Ok(TransactionKey { account, partner, message: m.parse().map_err(|_| field("m"))? })
}

pub(super) fn from_row(row: ItemRow<'_>) -> Result<Work, EnvelopeItemError> {
    let ItemRow { u, c, p, m, k, a, cur, t, e, r, d, x, q, tp } = row;
    let field = EnvelopeItemError::Field;
    let currency = Currency::parse(&cur).map_err(|_| field("cur"))?;
    let minor_units = a.parse().map_err(|_| field("a"))?;
    let submission = Submission {
        key: key([&u, &c, &p, &m])?,
        instruction: Instruction {
            kind: TransactionKind::from_code(&k).ok_or(field("k"))?,
            amount: Amount::try_new(minor_units, currency).map_err(|_| field("a"))?,
            details: Details::from_stored(r.map(Cow::into_owned), d.into_owned(), x.into_owned()),
        },
        accepted_at: t.parse().map(Timestamp::from_unix_ms).map_err(|_| field("t"))?,
        // Invalid information for operators does not make an item unreadable.
        origin: Origin {
            request_id: q.and_then(|id| RequestId::parse(&id).ok()),
            traceparent: tp.and_then(|trace| TraceParent::parse(&trace)),
        },
        batch_line: None,
    };
    Ok(Work { submission, row: Revision::new(e.into_owned()), delivered: None })
}
