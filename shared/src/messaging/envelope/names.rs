//! What a body without a valid seal says: the names of transactions, and nothing else.
//!
//! Amounts, revisions and counters in such a body are not read at all. It keeps its items as they came, so
//! that what is sent on or set aside stays as unsealed as it was.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use super::{Row, Unreadable, WORK_VERSION, item, version, write};
use crate::domain::ids::TransactionKey;

/// The items of a body without a seal. At least one where it was read.
#[derive(Debug, Clone, Default)]
pub struct Names(Vec<Name>);

/// One item of a body without a seal.
#[derive(Debug, Clone)]
pub struct Name {
    /// The transaction that it names; `None` where it names none.
    pub key: Option<TransactionKey>,
    /// The item as it came.
    item: Box<RawValue>,
}

/// Most items of a body: one that names a transaction has three ids of 32 digits, so the largest payload, of
/// 768 KiB, has no more of them.
const ITEMS_MAX: usize = 8 * 1024;

/// The members of an item that name its transaction.
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
    /// Reads the names in the body of a message, whether it has a seal or not.
    ///
    /// # Errors
    /// [`Unreadable`] when it is no envelope with items of a version that this program knows.
    pub fn read(body: &[u8]) -> Result<Self, Unreadable> {
        let v = version(body)?;
        if v > WORK_VERSION {
            return Err(Unreadable::Unsealed(v));
        }
        // Borrowed until they are counted: a small payload must not become many small pieces of memory.
        let row: Row<&RawValue> = serde_json::from_slice(body).map_err(Unreadable::Malformed)?;
        if row.items.is_empty() {
            return Err(Unreadable::Empty);
        }
        if row.items.len() > ITEMS_MAX {
            let why = format!("it has {} items, and {ITEMS_MAX} are the most", row.items.len());
            return Err(Unreadable::Malformed(serde_json::Error::custom(why)));
        }
        let name = |item: &RawValue| Name { key: key_of(item), item: item.to_owned() };
        Ok(Self(row.items.into_iter().map(name).collect()))
    }

    /// The items, in order.
    pub fn items(&self) -> &[Name] {
        &self.0
    }

    /// The transactions that it names, each once.
    pub fn keys(&self) -> BTreeSet<&TransactionKey> {
        self.0.iter().filter_map(|name| name.key.as_ref()).collect()
    }

    /// Whether each of its items names a transaction.
    pub fn is_whole(&self) -> bool {
        self.0.iter().all(|name| name.key.is_some())
    }

    /// A body of some of its items as they came, without a seal. It may be larger than a message.
    pub fn body_of<'a>(items: impl IntoIterator<Item = &'a Name>) -> Vec<u8> {
        let items: Vec<&RawValue> = items.into_iter().map(|name| &*name.item).collect();
        write(&Row::of(None, items))
    }
}

fn key_of(item: &RawValue) -> Option<TransactionKey> {
    let NameRow { u, c, p, m } = serde_json::from_str(item.get()).ok()?;
    item::key([&u, &c, &p, &m]).ok()
}
