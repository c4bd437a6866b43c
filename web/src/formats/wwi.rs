//! The format of World Wide Importers. `schemas/xsd/wwi-account.xsd` is its XSD.
//!
//! The tables map our members, on the left, to their elements, on the right. Below them are the two codecs that only this
//! format needs: money as sign, digits and decimals, and times in their local time zone.
//!
//! Transactions have no type: a deposit has the sign `+`, and a withdrawal the sign `-`.

use jiff::tz::{Offset, OffsetConflict, TimeZone};
use jiff::{Timestamp, Zoned};
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::messaging::xml::Element;
use serde_json::{Map, Value, json};

use super::table::FieldCodec::{Code, Custom, List, Number, Pairs, Text};
use super::table::{CustomCodec, Row, Table, Tables, Unknown, row};

/// The namespace of the format.
pub const NAMESPACE: &str = "urn:wideworldimporters:account:1";
/// The time zone in which times are written.
const ZONE: &str = "America/Los_Angeles";
/// Maximum number of digits of a balance.
const BALANCE_DIGITS_MAX: usize = 19;
/// Maximum number of digits of an amount or a limit.
const AMOUNT_DIGITS_MAX: usize = 18;

/// The format with the media type `application/vnd.wwi.account+xml`.
pub static WWI: Tables = Tables {
    name: "wwi",
    media_type: "application/vnd.wwi.account+xml",
    problem_media_type: "application/vnd.wwi.account+xml",
    submission: &SUBMISSION,
    opening: &OPENING,
    change: &CHANGE,
    transaction: &TRANSACTION,
    transaction_page: &TRANSACTION_PAGE,
    account: &ACCOUNT,
    account_page: &ACCOUNT_PAGE,
    problem: &PROBLEM,
};

const STATUS_OF_TRANSACTION: &[(&str, &str)] =
    &[("accepted", "PENDING"), ("posted", "BOOKED"), ("rejected", "REFUSED")];

const STATUS_OF_ACCOUNT: &[(&str, &str)] =
    &[("open", "ACTIVE"), ("frozen", "FROZEN"), ("closed", "TERMINATED")];

const REASON: &[(&str, &str)] = &[
    ("insufficient_funds", "NOT SUFFICIENT FUNDS"),
    ("account_closed", "ACCOUNT TERMINATED"),
    ("account_frozen", "ACCOUNT FROZEN"),
    ("account_unknown", "NO SUCH ACCOUNT"),
    ("currency_mismatch", "WRONG CURRENCY"),
    ("amount_out_of_range", "OUT OF RANGE"),
    ("discarded", "CANCELED BY BANK"),
];

// Our member                    Their element                 Codec

#[rustfmt::skip]
static SUBMISSION: Table = open("BookingOrder", &[
    row("amount",                "Value/Money",                SIGNED_BY_TYPE),
    row("currency",              "Value/CurrencyCode",         Text),
    row("reference",             "Narrative",                  Text),
    row("metadata",              "Tags",                       Pairs("Tag", "Key", "Content")),
]);

#[rustfmt::skip]
static TRANSACTION: Table = open("Booking", &[
    row("message_id",            "BookingNo",                  Text),
    row("user_id",               "Customer",                   Text),
    row("account_id",            "AccountNo",                  Text),
    row("status",                "State",                      Code(STATUS_OF_TRANSACTION)),
    row("reason",                "RefusalReason",              Code(REASON)),
    row("amount",                "Value/Money",                SIGNED_BY_TYPE),
    row("currency",              "Value/CurrencyCode",         Text),
    row("reference",             "Narrative",                  Text),
    row("metadata",              "Tags",                       Pairs("Tag", "Key", "Content")),
    row("order_number",          "Receipt/Number",             Text),
    row("sequence",              "Receipt/StatementLine",      Number),
    row("balance_after",         "Receipt/NewBalance",         SIGNED),
    row("accepted_at",           "Received",                   LOCAL_TIME),
    row("posted_at",             "Booked",                     LOCAL_TIME),
    row("rejected_at",           "Refused",                    LOCAL_TIME),
]);

#[rustfmt::skip]
static TRANSACTION_PAGE: Table = closed("Bookings", &[
    row("transactions",          "Booking",                    List(&TRANSACTION)),
    row("next_cursor",           "ContinueAt",                 Text),
]);

#[rustfmt::skip]
static OPENING: Table = closed("CustomerAccountOrder", &[
    row("currency",              "CurrencyCode",               Text),
    row("overdraft_limit",       "CreditLine",                 NOT_NEGATIVE),
    row("holder.given_name",     "AccountHolder/FirstName",    Text),
    row("holder.family_name",    "AccountHolder/LastName",     Text),
]);

#[rustfmt::skip]
static CHANGE: Table = closed("CustomerAccountAmendment", &[
    row("overdraft_limit",       "CreditLine",                 NOT_NEGATIVE),
    row("status",                "State",                      Code(STATUS_OF_ACCOUNT)),
    row("holder.given_name",     "AccountHolder/FirstName",    Text),
    row("holder.family_name",    "AccountHolder/LastName",     Text),
]);

#[rustfmt::skip]
static ACCOUNT: Table = closed("CustomerAccount", &[
    row("user_id",               "Customer",                   Text),
    row("account_id",            "AccountNo",                  Text),
    row("version",               "Revision",                   Number),
    row("status",                "State",                      Code(STATUS_OF_ACCOUNT)),
    row("currency",              "CurrencyCode",               Text),
    row("balance",               "Balances/Booked",            SIGNED),
    row("available",             "Balances/AtDisposal",        SIGNED),
    row("overdraft_limit",       "Balances/CreditLine",        SIGNED),
    row("holder.given_name",     "AccountHolder/FirstName",    Text),
    row("holder.family_name",    "AccountHolder/LastName",     Text),
    row("opened_at",             "Opened",                     LOCAL_TIME),
]);

#[rustfmt::skip]
static ACCOUNT_PAGE: Table = closed("CustomerAccounts", &[
    row("accounts",              "CustomerAccount",            List(&ACCOUNT)),
    row("next_cursor",           "ContinueAt",                 Text),
]);

#[rustfmt::skip]
static PROBLEM: Table = closed("Refusal", &[
    row("code",                  "Code",                       Text),
    row("status",                "HttpStatus",                 Number),
    row("type",                  "Kind",                       Text),
    row("title",                 "Headline",                   Text),
    row("detail",                "Explanation",                Text),
    row("reason",                "RefusalReason",              Code(REASON)),
    row("violations",            "Faults/Fault",               List(&VIOLATION)),
]);

#[rustfmt::skip]
static VIOLATION: Table = closed("Fault", &[
    row("field",                 "Element",                    Text),
    row("message",               "Rule",                       Text),
]);

const fn closed(root: &'static str, rows: &'static [Row]) -> Table {
    Table { namespace: NAMESPACE, root, rows, unknown: Unknown::Refused }
}

const fn open(root: &'static str, rows: &'static [Row]) -> Table {
    Table { namespace: NAMESPACE, root, rows, unknown: Unknown::OfOthers }
}

const SIGNED: super::table::FieldCodec = Custom(&Money::Signed);
const NOT_NEGATIVE: super::table::FieldCodec = Custom(&Money::NotNegative);
const SIGNED_BY_TYPE: super::table::FieldCodec = Custom(&Money::SignedByType);
const LOCAL_TIME: super::table::FieldCodec = Custom(&LocalTime);

/// Codec for money such as `<Sign>-</Sign><Digits>1250</Digits><Decimals>2</Decimals>`.
enum Money {
    /// The sign is the sign of the number.
    Signed,
    /// Like `Signed`, for a number that must not be negative in requests.
    NotNegative,
    /// The sign represents the type of the transaction.
    SignedByType,
}

/// Returns the sign for a kind of transaction.
const fn sign(kind: TransactionKind) -> &'static str {
    match kind {
        TransactionKind::Deposit => "+",
        TransactionKind::Withdrawal => "-",
    }
}

impl Money {
    /// Returns the schema pattern of a whole number with at most `most` digits.
    fn digits(&self, most: usize) -> String {
        let more = most.saturating_sub(1);
        match self {
            Self::SignedByType => format!("^[1-9][0-9]{{0,{more}}}$"),
            Self::Signed | Self::NotNegative => format!("^(0|[1-9][0-9]{{0,{more}}})$"),
        }
    }
}

impl CustomCodec for Money {
    fn write(&self, element: Element, member: &str, members: &Map<String, Value>) -> Element {
        let text = members.get(member).and_then(Value::as_str).unwrap_or_default();
        let (own_sign, number) = text.strip_prefix('-').map_or(("+", text), |rest| ("-", rest));
        let sign = match self {
            Self::Signed | Self::NotNegative => own_sign,
            Self::SignedByType => {
                let kind = members.get("type").and_then(Value::as_str).and_then(TransactionKind::from_code);
                kind.map_or(own_sign, sign)
            }
        };
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        let all = format!("{whole}{decimals}");
        let digits = match all.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        };
        let part = |local: &str, text: &str| Element::new(NAMESPACE, local).with_text(text);
        element
            .with(part("Sign", sign))
            .with(part("Digits", digits))
            .with(part("Decimals", &decimals.len().to_string()))
    }

    fn read(&self, element: &Element, member: &str) -> Result<Vec<(String, Value)>, String> {
        let [sign_text, digits, decimals] = texts(element, ["Sign", "Digits", "Decimals"])?;
        let kind = TransactionKind::ALL.iter().find(|kind| sign(**kind) == sign_text);
        let kind = kind.ok_or_else(|| "must have the Sign + or -".to_owned())?;
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || (digits.starts_with('0') && digits != "0") || digits.len() > 30 {
            return Err("must have Digits that are a whole number of at most 30 digits".to_owned());
        }
        let decimals: usize = match decimals {
            "0" => 0,
            "1" => 1,
            "2" => 2,
            "3" => 3,
            "4" => 4,
            _ => return Err("must have Decimals from 0 to 4".to_owned()),
        };
        let padded = format!("{digits:0>width$}", width = decimals.saturating_add(1));
        let (whole, rest) = padded.split_at(padded.len().saturating_sub(decimals));
        let number = if rest.is_empty() { whole.to_owned() } else { format!("{whole}.{rest}") };
        Ok(match self {
            Self::Signed | Self::NotNegative => {
                let signed = if sign_text == "-" { format!("-{number}") } else { number };
                vec![(member.to_owned(), signed.into())]
            }
            Self::SignedByType => {
                vec![(member.to_owned(), number.into()), ("type".to_owned(), kind.code().into())]
            }
        })
    }

    fn schema(&self, kind: Option<TransactionKind>) -> Value {
        let signs = match (self, kind) {
            (Self::Signed, _) | (Self::SignedByType, None) => json!(["+", "-"]),
            (Self::NotNegative, _) => json!(["+"]),
            (Self::SignedByType, Some(kind)) => json!([sign(kind)]),
        };
        let part = |decimals: &[&str], digits: usize| json!({"properties": {"Decimals": {"enum": decimals}, "Digits": {"pattern": self.digits(digits)}}});
        let forms = match self {
            Self::Signed => vec![part(&["0", "1", "2", "3", "4"], BALANCE_DIGITS_MAX)],
            // No currency has one decimal: a number with one decimal gets a second one, which uses up a digit.
            Self::NotNegative | Self::SignedByType => {
                vec![
                    part(&["0", "2", "3", "4"], AMOUNT_DIGITS_MAX),
                    part(&["1"], AMOUNT_DIGITS_MAX.saturating_sub(1)),
                ]
            }
        };
        json!({
            "type": "object",
            "description": "12.50 is Digits 1250 with Decimals 2.",
            "properties": {
                "Sign": {"type": "string", "enum": signs},
                "Digits": {"type": "string"},
                "Decimals": {"type": "string"},
            },
            "required": ["Sign", "Digits", "Decimals"],
            "additionalProperties": false,
            "anyOf": forms,
        })
    }

    fn amount_schemas(&self, decimals: usize) -> Vec<Value> {
        let schema = |written: usize| {
            // Omitted decimals count as digits.
            let digits_max = AMOUNT_DIGITS_MAX.saturating_sub(decimals).saturating_add(written);
            json!({"properties": {
                "Decimals": {"enum": [written.to_string()]}, "Digits": {"pattern": self.digits(digits_max)},
            }})
        };
        (0..=decimals).map(schema).collect()
    }
}

/// Codec for a time as local date, local time, time zone and offset from UTC. The offset is needed because one hour occurs
/// twice when daylight saving time ends.
struct LocalTime;

impl CustomCodec for LocalTime {
    fn write(&self, element: Element, member: &str, members: &Map<String, Value>) -> Element {
        let text = members.get(member).and_then(Value::as_str).unwrap_or_default();
        let zone = TimeZone::get(ZONE).expect("the time zone database is part of the program");
        // The service writes only valid times. The epoch would be noticed as an error.
        let local = text.parse::<Timestamp>().unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(zone);
        let part = |local: &str, text: &str| Element::new(NAMESPACE, local).with_text(text);
        element
            .with(part("Date", &local.strftime("%Y-%m-%d").to_string()))
            .with(part("Time", &local.strftime("%H:%M:%S%.3f").to_string()))
            .with(part("Zone", ZONE))
            .with(part("Offset", &local.strftime("%:z").to_string()))
    }

    fn read(&self, element: &Element, member: &str) -> Result<Vec<(String, Value)>, String> {
        let [date, time, zone, offset] = texts(element, ["Date", "Time", "Zone", "Offset"])?;
        let form = |what: &str| format!("must have {what}");
        let date_time = format!("{date}T{time}").parse::<jiff::civil::DateTime>();
        let date_time = date_time.map_err(|_| form("a Date like 2026-11-21 and a Time like 09:30:00.123"))?;
        let named = TimeZone::get(zone).map_err(|_| form("a Zone of the IANA database"))?;
        let offset = offset_of(offset).ok_or_else(|| form("an Offset like -08:00"))?;
        let wrong = || form("the Offset that its Zone has at that time");
        let zoned: Zoned = OffsetConflict::Reject
            .resolve(date_time, offset, named)
            .and_then(|ambiguous| ambiguous.unambiguous())
            .map_err(|_| wrong())?;
        let utc = zoned.with_time_zone(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        Ok(vec![(member.to_owned(), utc.into())])
    }

    fn schema(&self, _: Option<TransactionKind>) -> Value {
        json!({
            "type": "object",
            "properties": {
                "Date": {"type": "string", "format": "date"},
                "Time": {"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}$"},
                "Zone": {"type": "string", "description": "A name of the IANA database."},
                "Offset": {"type": "string", "pattern": "^[+-][0-9]{2}:[0-9]{2}$"},
            },
            "required": ["Date", "Time", "Zone", "Offset"],
            "additionalProperties": false,
        })
    }

    fn amount_schemas(&self, _: usize) -> Vec<Value> {
        Vec::new()
    }
}

fn offset_of(text: &str) -> Option<Offset> {
    let (sign, rest) = text.split_at_checked(1)?;
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str| (text.len() == 2).then(|| text.parse::<i32>().ok()).flatten();
    let seconds = number(hours)?.checked_mul(3600)?.checked_add(number(minutes)?.checked_mul(60)?)?;
    let seconds = match sign {
        "+" => seconds,
        "-" => seconds.checked_neg()?,
        _ => return None,
    };
    Offset::from_seconds(seconds).ok()
}

/// Returns the texts of the child elements, which must be exactly those in `names`, each once, in any order.
fn texts<'a, const COUNT: usize>(
    element: &'a Element,
    names: [&str; COUNT],
) -> Result<[&'a str; COUNT], String> {
    let form =
        || format!("must contain the elements {}, each exactly once and with text only", names.join(", "));
    if element.elements().count() != COUNT || element.has_loose_text() {
        return Err(form());
    }
    let mut texts = [""; COUNT];
    for (name, text) in names.into_iter().zip(&mut texts) {
        let part = element.elements().find(|part| part.is(NAMESPACE, name) && part.attributes.is_empty());
        *text = part.and_then(Element::text).ok_or_else(form)?;
    }
    Ok(texts)
}
