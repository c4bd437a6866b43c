//! The content of a body without a valid seal: only the names of transactions.
//!
//! Amounts, revisions and counters in such a body are ignored. Its items are kept unchanged and unsealed when the body
//! is sent on or set aside.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use super::{Row, Unreadable, WORK_VERSION, item, version, write};
use crate::domain::ids::TransactionKey;

/// The items of a body without a valid seal; at least one after decoding.
#[derive(Debug, Clone, Default)]
pub struct Names(Vec<Name>);

/// One item of a body without a valid seal.
#[derive(Debug, Clone)]
pub struct Name {
    /// The transaction that the item names, if it names one.
    pub key: Option<TransactionKey>,
    /// The unchanged item.
    item: Box<RawValue>,
}

/// Largest number of items in a body. The largest payload (768 KiB) cannot contain more items with three ids of 32 digits.
const ITEMS_MAX: usize = 8 * 1024;

/// The members of an item that form the transaction key.
#[derive(Deserialize)]
struct NameRow<'a> {
    #[serde(borrow)]
    u: Cow<'a, str>,
    #[serde(borrow)]
    c: Cow<'a, str>,
    #[serde(borrow)]
    p: Cow<'a, str>,
    #[serde(borrow)]
    m: Cow<'a, str>,
}

impl Names {
    /// Decodes the names in a body. Its seal is not checked.
    ///
    /// # Errors
    /// [`Unreadable`] if the body is not an envelope with work of a known version.
    pub fn read(body: &[u8]) -> Result<Self, Unreadable> {
        let v = version(body)?;
        if v > WORK_VERSION {
            return Err(Unreadable::Unsealed(v));
        }
        // Items are borrowed until they are counted, so that a small payload cannot cause many allocations.
        let row: Row<&RawValue> = serde_json::from_slice(body).map_err(Unreadable::Malformed)?;
        if row.items.is_empty() {
            return Err(Unreadable::Empty);
        }
        if row.items.len() > ITEMS_MAX {
            let why = format!("it has {} items, more than {ITEMS_MAX}", row.items.len());
            return Err(Unreadable::Malformed(serde_json::Error::custom(why)));
        }
        let name = |item: &RawValue| Name { key: key_of(item), item: item.to_owned() };
        Ok(Self(row.items.into_iter().map(name).collect()))
    }

    /// Returns the items, in order.
    pub fn items(&self) -> &[Name] {
        &self.0
    }

    /// Returns the distinct transactions that the body names.
    pub fn keys(&self) -> BTreeSet<&TransactionKey> {
        self.0.iter().filter_map(|name| name.key.as_ref()).collect()
    }

    /// Returns whether each item names a transaction.
    pub fn is_complete(&self) -> bool {
        self.0.iter().all(|name| name.key.is_some())
    }

    /// Encodes a body with unchanged items, without a seal. It may be larger than a message.
    pub fn body_of<'a>(items: impl IntoIterator<Item = &'a Name>) -> Vec<u8> {
        let items: Vec<&RawValue> = items.into_iter().map(|name| &*name.item).collect();
        write(&Row::of(items))
    }
}

fn key_of(item: &RawValue) -> Option<TransactionKey> {
    let NameRow { u, c, p, m } = serde_json::from_str(item.get()).ok()?;
    item::key([&u, &c, &p, &m]).ok()
}
