//! The body of a reply: final transactions with their outcomes, as compact JSON. Readers ignore unknown members, and
//! skip items that they cannot decode.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Completion;
use crate::domain::ids::{AccountKey, OrderNumber, PartnerId, TransactionKey};
use crate::domain::money::{Balance, Currency};
use crate::domain::rejection::RejectReason;
use crate::domain::time::Timestamp;
use crate::domain::transaction::{Outcome, TransactionStatus};

/// Maximum number of completions in one reply.
pub const REPLY_ITEMS_MAX: usize = 1000;
/// Maximum size of one item in bytes. Every member is an id, a number or a code of bounded length.
pub const REPLY_ITEM_BYTES_MAX: usize = 320;

#[derive(Serialize, Deserialize)]
struct ReplyBody<T> {
    #[serde(rename = "final")]
    items: Vec<T>,
}

/// Member names are short because a busy worker sends many rows.
#[derive(Serialize, Deserialize)]
struct Row {
    /// User.
    u: String,
    /// Account.
    c: String,
    /// Partner.
    p: String,
    /// Message id.
    m: String,
    /// Status.
    s: String,
    /// Decision time, in milliseconds since 1970.
    t: String,
    /// Order number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    /// Sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    q: Option<String>,
    /// Balance after the posting, in minor units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b: Option<String>,
    /// Currency of the balance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cur: Option<String>,
    /// Reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    r: Option<String>,
    /// Version of the account after a rejection that is part of the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    v: Option<String>,
}

/// Encodes a reply body.
pub fn encode(completions: &[Completion]) -> Vec<u8> {
    let body = ReplyBody { items: completions.iter().map(to_row).collect() };
    serde_json::to_vec(&body).expect("texts can always be written as JSON")
}

/// Decodes a reply body. Skips items that cannot be decoded.
///
/// # Errors
/// When the body as a whole is not valid.
pub fn decode(body: &[u8]) -> Result<Vec<Completion>, serde_json::Error> {
    let body: ReplyBody<Box<RawValue>> = serde_json::from_slice(body)?;
    Ok(body.items.iter().filter_map(|item| from_row(serde_json::from_str(item.get()).ok()?)).collect())
}

fn to_row(completion: &Completion) -> Row {
    let Completion { key: TransactionKey { account, partner, message }, outcome } = completion;
    let row = Row {
        u: account.user.simple(),
        c: account.account.simple(),
        p: partner.as_str().to_owned(),
        m: message.simple(),
        s: outcome.status().code().to_owned(),
        t: String::new(),
        n: None,
        q: None,
        b: None,
        cur: None,
        r: None,
        v: None,
    };
    match outcome {
        Outcome::Posted { order_number, sequence, balance_after, posted_at } => Row {
            t: posted_at.unix_ms().to_string(),
            n: Some(order_number.to_string()),
            q: Some(sequence.to_string()),
            b: Some(balance_after.minor_units().to_string()),
            cur: Some(balance_after.currency().code().to_owned()),
            ..row
        },
        Outcome::Rejected { reason, rejected_at, version } => Row {
            t: rejected_at.unix_ms().to_string(),
            r: Some(reason.code().to_owned()),
            v: version.map(|version| version.to_string()),
            ..row
        },
    }
}

fn from_row(row: Row) -> Option<Completion> {
    let Row { u, c, p, m, s, t, n, q, b, cur, r, v } = row;
    let account = AccountKey { user: u.parse().ok()?, account: c.parse().ok()? };
    let key = TransactionKey { account, partner: PartnerId::parse(&p).ok()?, message: m.parse().ok()? };
    let at = Timestamp::from_unix_ms(t.parse().ok()?);
    let outcome = match TransactionStatus::from_code(&s)? {
        TransactionStatus::Accepted => return None,
        TransactionStatus::Posted => Outcome::Posted {
            order_number: OrderNumber::parse(&n?).ok()?,
            sequence: q?.parse().ok()?,
            balance_after: Balance::try_new(b?.parse().ok()?, Currency::parse(&cur?).ok()?)?,
            posted_at: at,
        },
        TransactionStatus::Rejected => Outcome::Rejected {
            reason: RejectReason::from_code(&r?)?,
            rejected_at: at,
            version: v.map(|version| version.parse()).transpose().ok()?,
        },
    };
    Some(Completion { key, outcome })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{AccountId, MessageId, PARTNER_CHARS_MAX, UserId};
    use crate::domain::money::BALANCE_MINOR_UNITS_MAX;
    use uuid::Uuid;

    fn completion(number: u128, outcome: Outcome) -> Completion {
        let account = AccountKey {
            user: UserId::from_uuid(Uuid::from_u128(1)),
            account: AccountId::from_uuid(Uuid::from_u128(2)),
        };
        let message = MessageId::from_uuid(Uuid::from_u128(number));
        let partner = PartnerId::parse("shop").unwrap();
        Completion { key: TransactionKey { account, partner, message }, outcome }
    }

    fn completions() -> Vec<Completion> {
        let at = Timestamp::from_unix_ms(1_795_248_000_123);
        let balance_after = Balance::try_new(-1250, Currency::parse("EUR").unwrap()).unwrap();
        let order_number = OrderNumber::from_counter(1_000_042);
        let posted = Outcome::Posted { order_number, sequence: 12, balance_after, posted_at: at };
        let rejected = RejectReason::ALL
            .into_iter()
            .map(|reason| completion(7, Outcome::Rejected { reason, rejected_at: at, version: Some(7) }));
        std::iter::once(completion(8, posted)).chain(rejected).collect()
    }

    #[test]
    fn a_reply_body_survives_a_round_trip() {
        assert_eq!(decode(&encode(&completions())).unwrap(), completions());
        assert_eq!(decode(&encode(&[])).unwrap(), []);
    }

    #[test]
    fn the_longest_item_is_within_the_limit() {
        let balance_after =
            Balance::try_new(-BALANCE_MINOR_UNITS_MAX, Currency::parse("EUR").unwrap()).unwrap();
        let order_number = OrderNumber::from_counter(OrderNumber::COUNTER_MAX);
        let posted_at = Timestamp::from_unix_ms(i64::MAX);
        let outcome = Outcome::Posted { order_number, sequence: u64::MAX, balance_after, posted_at };
        let Completion { key, outcome } = completion(u128::MAX, outcome);
        let partner = PartnerId::parse(&"p".repeat(PARTNER_CHARS_MAX)).unwrap();
        let longest = Completion { key: TransactionKey { partner, ..key }, outcome };
        let rejected = completions().split_off(1);
        for completion in rejected.into_iter().chain([longest]) {
            let bytes = encode(std::slice::from_ref(&completion)).len();
            assert!(bytes < REPLY_ITEM_BYTES_MAX, "{bytes} bytes of {completion:?}");
        }
    }

    #[test]
    fn invalid_items_do_not_hide_valid_ones() {
        let text = String::from_utf8(encode(&completions())).unwrap();
        let damaged = text.replacen("\"posted\"", "\"accepted\"", 1).replace("{\"u\"", "{\"new\":1,\"u\"");
        assert_eq!(decode(damaged.as_bytes()).unwrap(), completions().split_off(1));
        for invalid in ["", "[]", "{}", r#"{"final":1}"#] {
            assert!(decode(invalid.as_bytes()).is_err(), "{invalid}");
        }
    }
}
