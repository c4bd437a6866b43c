//! The queue message: many pieces of work in one envelope, versioned, at most 48 KiB.
//!
//! An item carries everything that posting needs, so that the worker reads nothing on the happy
//! path. The envelope also remembers what the queue cannot know of its receipts: those that were
//! nobody's failure (`forgiven`: an outage or a lost race must never push healthy work to the dead
//! letters), and attempts that were begun and never ended (`suspect`: the work may end its workers).
//!
//! Version rules: a reader ignores members that it does not know, so additions need no new version.
//! A change that an older worker would get wrong takes a new number, and an older worker leaves
//! such an envelope on the queue for a newer one ([`Unreadable::Newer`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::domain::account::Revision;
use crate::domain::decision::Work;
use crate::domain::ids::{AccountKey, PartnerId, TransactionKey};
use crate::domain::instruction::{Details, Instruction, TransactionKind};
use crate::domain::money::{Amount, Currency};
use crate::domain::time::Timestamp;
use crate::ports::queue::{BODY_BYTES_MAX, QueueName};
use crate::ports::roster::{ADDRESS_CHARS_MAX, Address};

/// The version that this program writes and the newest that it reads.
pub const VERSION: u32 = 1;

/// Longest trace that travels along; a longer one is dropped. Version 00 has 55 characters.
pub const TRACEPARENT_BYTES_MAX: usize = 128;

/// The type of work that names its queues: `work-0`, `work-1`, …
pub const WORK: &str = "work";

/// Which of `queue_count` queues the work of an account goes to: always the same one, so that one
/// worker tends to keep the account's row in its cache. Any worker may read any queue.
pub fn queue_of(account: AccountKey, queue_count: u16) -> QueueName {
    // FNV-1a, because it is the same on every machine and in every version of the standard library.
    let bytes = account.user.as_uuid().into_bytes().into_iter().chain(account.account.as_uuid().into_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let folded = hash ^ (hash >> 32);
    let partition = folded.checked_rem(u64::from(queue_count)).unwrap_or(0);
    QueueName::of_partition(WORK, u16::try_from(partition).expect("a remainder of a u16 is a u16"))
}

/// All the queues of accepted work.
pub fn queues(queue_count: u16) -> Vec<QueueName> {
    (0..queue_count).map(|partition| QueueName::of_partition(WORK, partition)).collect()
}

/// A decoded queue message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The trace of the request that sent it first (W3C Trace Context), if there was one.
    pub traceparent: Option<String>,
    /// The process that waits for an outcome of this work, and takes replies there.
    pub reply_to: Option<Address>,
    /// Receipts that do not count: outages and lost races.
    pub forgiven: u32,
    /// Attempts on this item alone that were begun and not known to have ended.
    pub suspect: u32,
    /// The work. At least one item; a key may stand twice.
    pub items: Vec<Work>,
}

/// Why a body is not an envelope for this program.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A newer program wrote it: it has to wait for a worker that knows it.
    #[error("the envelope has version {0}; this program reads up to {VERSION}")]
    Newer(u32),
    /// Nobody can read it.
    #[error("the body is not an envelope")]
    Malformed(#[source] serde_json::Error),
    /// It reads as an envelope, but not every item in it does.
    #[error("{} of {} items cannot be read: {why}", bad_count, readable.len().saturating_add(*bad_count))]
    Items {
        /// What is wrong with the first one.
        why: String,
        /// The items that can be read.
        readable: Vec<Work>,
        /// An envelope of the others, as they came.
        bad: Vec<u8>,
        /// How many those are.
        bad_count: usize,
    },
    /// An envelope without work: nobody sends one.
    #[error("the envelope has no items")]
    Empty,
}

/// Why an item is none.
#[derive(Debug, thiserror::Error)]
enum UnreadableItem {
    #[error("it is not the JSON of an item")]
    Json(#[from] serde_json::Error),
    #[error("its field {0} is impossible")]
    Field(&'static str),
}

#[derive(Deserialize)]
struct Head {
    v: u32,
}

#[derive(Serialize, Deserialize)]
struct Row {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    forgiven: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    suspect: u32,
    /// Raw, so that an item that cannot be read neither hides its neighbors nor changes.
    items: Vec<Box<RawValue>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
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

impl Envelope {
    /// An envelope around work.
    pub const fn of(items: Vec<Work>, traceparent: Option<String>) -> Self {
        Self { traceparent, reply_to: None, forgiven: 0, suspect: 0, items }
    }

    /// The body of the queue message.
    pub fn encode(&self) -> Vec<u8> {
        let Self { traceparent, reply_to, forgiven, suspect, items } = self;
        let items = items.iter().map(|work| raw(&to_row(work))).collect();
        write(&Row {
            v: VERSION,
            traceparent: traceparent.clone(),
            reply_to: reply_to.as_ref().map(ToString::to_string),
            forgiven: *forgiven,
            suspect: *suspect,
            items,
        })
    }

    /// Reads the body of a queue message.
    ///
    /// # Errors
    /// [`Unreadable`], by what is to be done about it.
    pub fn decode(body: &[u8]) -> Result<Self, Unreadable> {
        let Head { v } = serde_json::from_slice(body).map_err(Unreadable::Malformed)?;
        if v > VERSION {
            return Err(Unreadable::Newer(v));
        }
        let row: Row = serde_json::from_slice(body).map_err(Unreadable::Malformed)?;
        let (mut readable, mut bad, mut why) =
            (Vec::with_capacity(row.items.len()), Vec::new(), String::new());
        for item in row.items {
            match read(&item) {
                Ok(work) => readable.push(work),
                Err(unreadable) => {
                    bad.push(item);
                    why = unreadable.to_string();
                }
            }
        }
        if !bad.is_empty() {
            let bad_count = bad.len();
            let bad = write(&Row {
                v: VERSION,
                traceparent: row.traceparent,
                reply_to: None,
                forgiven: 0,
                suspect: 0,
                items: bad,
            });
            return Err(Unreadable::Items { why, readable, bad, bad_count });
        }
        if readable.is_empty() {
            return Err(Unreadable::Empty);
        }
        let Row { v: _, traceparent, reply_to, forgiven, suspect, items: _ } = row;
        // Nobody is told at an address that makes no sense; whoever waits reads the row then.
        let reply_to = reply_to.and_then(|address| Address::parse(&address).ok());
        Ok(Self { traceparent, reply_to, forgiven, suspect, items: readable })
    }
}

/// The items of a body that can be read, whatever else is in it.
pub fn readable_items(body: &[u8]) -> Vec<Work> {
    match Envelope::decode(body) {
        Ok(envelope) => envelope.items,
        Err(Unreadable::Items { readable, .. }) => readable,
        Err(Unreadable::Newer(_) | Unreadable::Malformed(_) | Unreadable::Empty) => Vec::new(),
    }
}

fn write(row: &Row) -> Vec<u8> {
    serde_json::to_vec(row).expect("texts and numbers can always be written as JSON")
}

fn raw(row: &ItemRow) -> Box<RawValue> {
    serde_json::value::to_raw_value(row).expect("texts can always be written as JSON")
}

fn read(item: &RawValue) -> Result<Work, UnreadableItem> {
    from_row(serde_json::from_str(item.get())?)
}

/// Splits work into as few envelopes as the size of a queue message allows, in order.
pub fn pack(items: &[Work], traceparent: Option<&str>) -> Vec<Envelope> {
    /// What the envelope itself takes: braces, version, counters, the longest address, and a trace of
    /// the longest length with every character escaped.
    const FRAME_BYTES: usize = 1024 + ADDRESS_CHARS_MAX;
    let traceparent = traceparent.filter(|trace| trace.len() <= TRACEPARENT_BYTES_MAX);
    let mut envelopes: Vec<Envelope> = Vec::new();
    let mut bytes = usize::MAX;
    for item in items {
        let size = raw(&to_row(item)).get().len().saturating_add(1);
        let grown = bytes.saturating_add(size);
        match envelopes.last_mut() {
            Some(envelope) if grown <= BODY_BYTES_MAX => {
                envelope.items.push(item.clone());
                bytes = grown;
            }
            _ => {
                envelopes.push(Envelope::of(vec![item.clone()], traceparent.map(str::to_owned)));
                bytes = FRAME_BYTES.saturating_add(size);
            }
        }
    }
    envelopes
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{AccountId, MessageId, UserId};
    use uuid::Uuid;

    fn work(id: u128, reference: &str) -> Work {
        let account = AccountKey {
            user: UserId::from_uuid(Uuid::from_u128(1)),
            account: AccountId::from_uuid(Uuid::from_u128(2)),
        };
        let metadata = BTreeMap::from([("shop".to_owned(), "ü\"12".to_owned())]);
        Work {
            key: TransactionKey {
                account,
                partner: PartnerId::parse("shop").unwrap(),
                message: MessageId::from_uuid(Uuid::from_u128(id)),
            },
            instruction: Instruction {
                kind: TransactionKind::Withdrawal,
                amount: Amount::parse("12.50", Currency::parse("EUR").unwrap()).unwrap(),
                details: Details::from_stored(Some(reference.to_owned()), metadata, r#"{"x":1}"#.to_owned()),
            },
            accepted_at: Timestamp::from_unix_ms(1_795_248_000_123),
            revision: Revision::new("W/\"datetime'2026'\""),
        }
    }

    #[test]
    fn an_envelope_is_read_back_as_it_was_written() {
        let mut envelope = Envelope::of(vec![work(1, "a"), work(2, "b")], Some("00-ab-cd-01".to_owned()));
        (envelope.forgiven, envelope.suspect) = (3, 1);
        assert_eq!(Envelope::decode(&envelope.encode()).unwrap(), envelope);
        envelope.reply_to = Some(Address::parse("http://10.0.0.7:8080").unwrap());
        let body = String::from_utf8(envelope.encode()).unwrap();
        assert_eq!(Envelope::decode(body.as_bytes()).unwrap(), envelope);
        let elsewhere = body.replace("http://10.0.0.7:8080", "https://thief.example/");
        let unknown = Envelope { reply_to: None, ..envelope };
        assert_eq!(Envelope::decode(elsewhere.as_bytes()).unwrap(), unknown, "nobody is told there");
    }

    #[test]
    fn bodies_are_sorted_by_what_is_to_be_done() {
        let check = |body: &str, newer: bool| {
            let unreadable = Envelope::decode(body.as_bytes()).unwrap_err();
            assert_eq!(matches!(unreadable, Unreadable::Newer(_)), newer, "{body}: {unreadable}");
        };
        check(r#"{"v":2,"anything":"else"}"#, true);
        check(r#"{"v":4000000000}"#, true);
        check("", false);
        check("{", false);
        check("<UserAccountTransaction/>", false);
        check(r#"{"v":1}"#, false);
        check(r#"{"v":1,"items":[]}"#, false);
        check(r#"{"v":1,"items":[{"u":"x"}]}"#, false);
        let sound = String::from_utf8(Envelope::of(vec![work(1, "a")], None).encode()).unwrap();
        check(&sound.replace("1250", "-1250"), false);
        check(&sound.replace("EUR", "EUX"), false);
        assert!(Envelope::decode(sound.replace(r#""v":1"#, r#""v":1,"new":true"#).as_bytes()).is_ok());
    }

    #[test]
    fn an_unreadable_item_hides_none_of_its_neighbors() {
        let items = vec![work(1, "a"), work(2, "b"), work(3, "c")];
        let body = String::from_utf8(Envelope::of(items.clone(), None).encode()).unwrap();
        let damaged = body.replacen("withdrawal", "withdrawn", 2).replacen("withdrawn", "withdrawal", 1);
        let Err(Unreadable::Items { readable, bad, bad_count, why }) = Envelope::decode(damaged.as_bytes())
        else {
            panic!("one item is damaged");
        };
        assert_eq!((readable, bad_count), (vec![items[0].clone(), items[2].clone()], 1));
        assert!(why.contains("field k"), "{why}");
        assert!(String::from_utf8(bad).unwrap().contains("withdrawn"));
    }

    #[test]
    fn packing_keeps_order_and_size() {
        let items: Vec<Work> = (0..400).map(|id| work(id, &"r".repeat(140))).collect();
        let envelopes = pack(&items, Some("00-ab-cd-01"));
        assert!(envelopes.len() > 1 && envelopes.len() < 8, "{} envelopes", envelopes.len());
        assert!(envelopes.iter().all(|envelope| envelope.encode().len() <= BODY_BYTES_MAX));
        let unpacked: Vec<Work> = envelopes.into_iter().flat_map(|envelope| envelope.items).collect();
        assert_eq!(unpacked, items);
        assert!(pack(&[], None).is_empty());
    }

    #[test]
    fn accounts_spread_over_all_queues_and_stay_there() {
        let mut counts = BTreeMap::new();
        for id in 0..4000 {
            let user = UserId::from_uuid(Uuid::from_u128(id));
            let account = AccountKey { user, account: AccountId::from_uuid(Uuid::from_u128(7)) };
            assert_eq!(queue_of(account, 4), queue_of(account, 4));
            let count: &mut u32 = counts.entry(queue_of(account, 4)).or_default();
            *count += 1;
        }
        assert_eq!(counts.keys().cloned().collect::<Vec<_>>(), queues(4));
        assert!(counts.values().all(|count| (700..1300).contains(count)), "{counts:?}");
    }
}
