//! One piece of work as it is written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::domain::account::Revision;
use crate::domain::decision::Work;
use crate::domain::ids::{AccountKey, PartnerId, TransactionKey};
use crate::domain::instruction::{Details, Instruction, TransactionKind};
use crate::domain::money::{Amount, Currency};
use crate::domain::time::Timestamp;

/// Why an item is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnreadableItem {
    #[error("it is not the JSON of an item")]
    Json(#[from] serde_json::Error),
    #[error("its field {0} is impossible")]
    Field(&'static str),
}

/// One piece of work. Short names: up to 48 KiB of these go over the wire at once.
#[derive(Serialize, Deserialize)]
struct ItemRow {
    /// User.
    u: String,
    /// Account.
    c: String,
    /// Partner.
    p: String,
    /// Message id.
    m: String,
    /// Kind.
    k: String,
    /// Amount in minor units.
    a: String,
    /// Currency.
    cur: String,
    /// Accepted at, milliseconds since 1970.
    t: String,
    /// Revision of the transaction's row.
    e: String,
    /// Reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    r: Option<String>,
    /// Metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    d: BTreeMap<String, String>,
    /// Unknown members.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    x: String,
}

/// Writes work as an item.
pub(super) fn write(work: &Work) -> Box<RawValue> {
    serde_json::value::to_raw_value(&to_row(work)).expect("texts can always be written as JSON")
}

/// Reads what [`write()`] wrote.
pub(super) fn read(item: &RawValue) -> Result<Work, UnreadableItem> {
    from_row(serde_json::from_str(item.get())?)
}

fn to_row(work: &Work) -> ItemRow {
    let Work { key, instruction, accepted_at, revision } = work;
    let TransactionKey { account, partner, message } = key;
    let Instruction { kind, amount, details } = instruction;
    ItemRow {
        u: account.user.simple(),
        c: account.account.simple(),
        p: partner.as_str().to_owned(),
        m: message.simple(),
        k: kind.code().to_owned(),
        a: amount.minor_units().to_string(),
        cur: amount.currency().code().to_owned(),
        t: accepted_at.unix_ms().to_string(),
        e: revision.as_str().to_owned(),
        r: details.reference().map(str::to_owned),
        d: details.metadata().clone(),
        x: details.unknown_members().to_owned(),
    }
}

fn from_row(row: ItemRow) -> Result<Work, UnreadableItem> {
    let ItemRow { u, c, p, m, k, a, cur, t, e, r, d, x } = row;
    let field = UnreadableItem::Field;
    let currency = Currency::parse(&cur).map_err(|_| field("cur"))?;
    let minor_units = a.parse().map_err(|_| field("a"))?;
    let account =
        AccountKey { user: u.parse().map_err(|_| field("u"))?, account: c.parse().map_err(|_| field("c"))? };
    Ok(Work {
        key: TransactionKey {
            account,
            partner: PartnerId::parse(&p).map_err(|_| field("p"))?,
            message: m.parse().map_err(|_| field("m"))?,
        },
        instruction: Instruction {
            kind: TransactionKind::from_code(&k).ok_or(field("k"))?,
            amount: Amount::try_new(minor_units, currency).map_err(|_| field("a"))?,
            details: Details::from_stored(r, d, x),
        },
        accepted_at: t.parse().map(Timestamp::from_unix_ms).map_err(|_| field("t"))?,
        revision: Revision::new(e),
    })
}
