//! Encodes the content of a journal page as one JSON text. The format is the same in every store and must stay readable
//! for as long as the bank exists. Also contains the check that two pages are consecutive, which every store uses.

mod decided_row;

use std::collections::BTreeMap;

use decided_row::DecidedRow;
use serde::{Deserialize, Serialize};

use crate::domain::ids::{MessageId, OrderNumber, PartnerId};
use crate::domain::instruction::{Details, TransactionKind};
use crate::domain::journal::{Decided, Entry, JournalPage};
use crate::domain::money::{Amount, Balance, Currency};
use crate::domain::time::Timestamp;

/// An entry. Numbers are decimal texts, because some JSON parsers lose precision above 2^53. The names are short,
/// because entries are most of the data of an account.
#[derive(Serialize, Deserialize)]
struct EntryRow {
    /// Sequence.
    s: String,
    /// Partner.
    p: String,
    /// Message id.
    m: String,
    /// Kind.
    k: String,
    /// Amount in minor units.
    a: String,
    /// Currency.
    c: String,
    /// Order number, with its check digit.
    o: String,
    /// Balance after the entry, in minor units.
    b: String,
    /// Accepted at, milliseconds since 1970.
    t: String,
    /// Posted at, milliseconds since 1970.
    u: String,
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

/// Why a text is not a page written by [`encode`].
#[derive(Debug, thiserror::Error)]
pub enum PageBodyError {
    /// The text is not the expected JSON.
    #[error("the content of a page is not the expected JSON")]
    Json(#[source] serde_json::Error),
    /// A field cannot be parsed.
    #[error("the {0} of a decision cannot be read")]
    Field(&'static str),
}

/// Error for two pages that are not consecutive.
#[derive(Debug, thiserror::Error)]
#[error("the page from {0} does not follow the page from {1}")]
pub struct LinkError(u64, u64);

/// Checks that `page` follows `previous` in the journal. Both must contain entries. Only this check between neighbors detects
/// a page that was removed or swapped. Pages without entries may lie between them, unless their versions are consecutive.
///
/// # Errors
/// [`LinkError`] if the pages are not consecutive.
pub fn check_link(previous: &JournalPage, page: &JournalPage) -> Result<(), LinkError> {
    let follows = previous.last_sequence().checked_add(1) == Some(page.first_sequence);
    let are_adjacent = page.directly_follows(previous.version);
    let are_in_order = previous.version < page.version;
    if follows && are_in_order && (!are_adjacent || page.previous_hash == previous.hash) {
        return Ok(());
    }
    Err(LinkError(page.first_sequence, previous.first_sequence))
}

/// The JSON content of a page.
#[derive(Serialize, Deserialize)]
struct Content {
    /// The version of the account.
    version: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    entries: Vec<EntryRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    decided: Vec<DecidedRow>,
}

/// Version, entries and other decisions of a decoded page.
pub type Decoded = (u64, Vec<Entry>, Vec<Decided>);

/// Encodes the version, the entries and the other decisions of a page.
pub fn encode(page: &JournalPage) -> String {
    let entries: Vec<EntryRow> = page.entries.iter().map(to_row).collect();
    let decided = page.decided.iter().map(DecidedRow::of).collect();
    let content = Content { version: page.version.to_string(), entries, decided };
    serde_json::to_string(&content).expect("texts can always be written as JSON")
}

/// Decodes the version, the entries and the other decisions of a page.
///
/// # Errors
/// [`PageBodyError`] when the text is damaged.
pub fn decode(text: &str) -> Result<Decoded, PageBodyError> {
    let Content { version, entries, decided } = serde_json::from_str(text).map_err(PageBodyError::Json)?;
    let version = version.parse().map_err(|_| PageBodyError::Field("version"))?;
    let entries: Result<Vec<Entry>, _> = entries.into_iter().map(from_row).collect();
    let decided: Result<Vec<Decided>, _> = decided.into_iter().map(DecidedRow::read).collect();
    Ok((version, entries?, decided?))
}

fn to_row(entry: &Entry) -> EntryRow {
    EntryRow {
        s: entry.sequence.to_string(),
        p: entry.partner.as_str().to_owned(),
        m: entry.message.simple(),
        k: entry.kind.code().to_owned(),
        a: entry.amount.minor_units().to_string(),
        c: entry.amount.currency().code().to_owned(),
        o: entry.order_number.to_string(),
        b: entry.balance_after.minor_units().to_string(),
        t: entry.accepted_at.unix_ms().to_string(),
        u: entry.posted_at.unix_ms().to_string(),
        r: entry.details.reference().map(str::to_owned),
        d: entry.details.metadata().clone(),
        x: entry.details.unknown_members().to_owned(),
    }
}

fn from_row(row: EntryRow) -> Result<Entry, PageBodyError> {
    let EntryRow { s, p, m, k, a, c, o, b, t, u, r, d, x } = row;
    let field = PageBodyError::Field;
    let currency = Currency::parse(&c).map_err(|_| field("currency"))?;
    let minor_units = a.parse().map_err(|_| field("amount"))?;
    let balance = b.parse().map_err(|_| field("balance"))?;
    Ok(Entry {
        sequence: s.parse().map_err(|_| field("sequence"))?,
        partner: PartnerId::parse(&p).map_err(|_| field("partner"))?,
        message: m.parse::<MessageId>().map_err(|_| field("message id"))?,
        kind: TransactionKind::from_code(&k).ok_or(field("kind"))?,
        amount: Amount::try_new(minor_units, currency).map_err(|_| field("amount"))?,
        details: Details::from_stored(r, d, x),
        order_number: OrderNumber::parse(&o).map_err(|_| field("order number with its check digit"))?,
        balance_after: Balance::try_new(balance, currency).ok_or(field("balance"))?,
        accepted_at: t.parse().map(Timestamp::from_unix_ms).map_err(|_| field("time of acceptance"))?,
        posted_at: u.parse().map(Timestamp::from_unix_ms).map_err(|_| field("time of posting"))?,
    })
}
