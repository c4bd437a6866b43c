//! The formats in which partners speak, written and read as a client of each would, by hand and not with the
//! tables of the bank: a wish becomes a request, an answer becomes what it [tells](Told), in words that are
//! the same for all.
//!
//! **To add a format**: a variant, and what the match arms then ask for.

use postonce_shared::domain::ids::{AccountKey, MessageId};
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::messaging::xml::{self, Element, XmlLimits};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::client::{Answer, Client, Wish, path_of};

/// What the bank does not know, and gives back: a member of JSON, an element of another namespace.
const STRANGER: &str = "<x:loyalty xmlns:x=\"urn:example:loyalty\" card=\"77\">gold</x:loyalty>";

/// A format that partners speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// JSON.
    Json,
    /// The canonical XML.
    Xml,
    /// The model of World Wide Importers.
    Wwi,
}

/// What an answer says about a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The id.
    pub message_id: String,
    /// The account.
    pub account: String,
    /// `deposit` or `withdrawal`.
    pub kind: String,
    /// A decimal number.
    pub amount: String,
    /// The currency.
    pub currency: String,
    /// `accepted`, `posted` or `rejected`.
    pub status: String,
    /// The words on the statement; empty for none.
    pub reference: String,
    /// The only entry of the metadata, as `name=value`; empty for none.
    pub metadata: String,
    /// When posted.
    pub order_number: String,
    /// When posted, a decimal number.
    pub balance_after: String,
    /// What the bank does not know, as it came back; empty for nothing.
    pub stranger: String,
}

impl Dialect {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Json, Self::Xml, Self::Wwi];

    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Xml => "application/vnd.postonce+xml",
            Self::Wwi => "application/vnd.wwi.account+xml",
        }
    }

    /// The media type of its refusals.
    pub const fn problem_media_type(self) -> &'static str {
        match self {
            Self::Json => "application/problem+json",
            Self::Xml => "application/problem+xml",
            Self::Wwi => "application/vnd.wwi.account+xml",
        }
    }

    /// The request that submits a wish. No header says how it is answered.
    pub fn submission(
        self,
        client: &Client,
        account: AccountKey,
        id: MessageId,
        wish: &Wish,
    ) -> RequestBuilder {
        let path = format!("{}/{}s", path_of(account), wish.kind.code());
        let request = client.request(Method::POST, &path).header("Idempotency-Key", id.to_string());
        request.header("Content-Type", self.media_type()).body(self.body(wish))
    }

    /// The body of a request.
    pub fn body(self, wish: &Wish) -> String {
        let text = |name: &str| wish.body.get(name).and_then(Value::as_str).map(escaped);
        let element = |local: &str, name: &str| {
            text(name).map(|text| format!("<{local}>{text}</{local}>")).unwrap_or_default()
        };
        let metadata = |all: &str, entry: &str, name: &str, value: &str| {
            let entries = wish.body.get("metadata").and_then(Value::as_object).into_iter().flatten();
            let entries: String = entries
                .map(|(key, text)| {
                    let (key, text) = (escaped(key), escaped(text.as_str().unwrap_or_default()));
                    format!("<{entry}><{name}>{key}</{name}><{value}>{text}</{value}></{entry}>")
                })
                .collect();
            if entries.is_empty() { entries } else { format!("<{all}>{entries}</{all}>") }
        };
        let stranger = wish.body.get("loyalty").map(|_| STRANGER).unwrap_or_default();
        match self {
            Self::Json => wish.body.to_string(),
            Self::Xml => format!(
                "<TransactionRequest xmlns=\"urn:postonce:xml:1\">{}{}{}{}{stranger}</TransactionRequest>",
                element("Amount", "amount"),
                element("Currency", "currency"),
                element("Reference", "reference"),
                metadata("Metadata", "Entry", "Name", "Value"),
            ),
            Self::Wwi => {
                let amount = text("amount").unwrap_or_default();
                let (whole, decimals) = amount.split_once('.').unwrap_or((&amount, ""));
                let digits = format!("{whole}{decimals}");
                let sign = match wish.kind {
                    TransactionKind::Deposit => "+",
                    TransactionKind::Withdrawal => "-",
                };
                format!(
                    "<BookingOrder xmlns=\"urn:wideworldimporters:account:1\"><Value><Money><Sign>{sign}</Sign>\
                     <Digits>{}</Digits><Decimals>{}</Decimals></Money>{}</Value>{}{}{stranger}</BookingOrder>",
                    digits.trim_start_matches('0'),
                    decimals.len(),
                    element("CurrencyCode", "currency"),
                    element("Narrative", "reference"),
                    metadata("Tags", "Tag", "Key", "Content"),
                )
            }
        }
    }

    /// The wish, with something in it that the bank does not know.
    #[must_use]
    pub fn with_stranger(wish: Wish) -> Wish {
        wish.with("loyalty", json!({"card": "77", "rank": "gold"}))
    }

    /// What comes back of what the bank does not know, in this format.
    pub fn stranger(self) -> String {
        match self {
            Self::Json => json!({"card": "77", "rank": "gold"}).to_string(),
            Self::Xml | Self::Wwi => STRANGER.to_owned(),
        }
    }

    /// What an answer tells about a transaction.
    ///
    /// # Panics
    /// When it is in another format.
    pub fn told(self, answer: &Answer) -> Told {
        self.expect_type(answer, self.media_type());
        match self {
            Self::Json => told_in_json(answer),
            Self::Xml => told_in_xml(&root(answer, "Transaction")),
            Self::Wwi => told_by_wwi(&root(answer, "Booking")),
        }
    }

    /// The code of a refusal.
    ///
    /// # Panics
    /// When it is in another format.
    pub fn code(self, answer: &Answer) -> String {
        self.expect_type(answer, self.problem_media_type());
        match self {
            Self::Json => answer.code().to_owned(),
            Self::Xml => at(&root(answer, "problem"), "code"),
            Self::Wwi => at(&root(answer, "Refusal"), "Code"),
        }
    }

    fn expect_type(self, answer: &Answer, media_type: &str) {
        assert_eq!(answer.header("content-type"), media_type, "{self:?}: {answer:?}");
    }
}

fn told_in_json(answer: &Answer) -> Told {
    let text = |name: &str| answer.text_at(&format!("/{name}")).to_owned();
    let metadata = answer.body.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let metadata = metadata.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
    Told {
        message_id: text("message_id"),
        account: format!("{}/{}", text("user_id"), text("account_id")),
        kind: text("type"),
        amount: text("amount"),
        currency: text("currency"),
        status: text("status"),
        reference: text("reference"),
        metadata: metadata.collect(),
        order_number: text("order_number"),
        balance_after: text("balance_after"),
        stranger: answer.body.get("loyalty").map(Value::to_string).unwrap_or_default(),
    }
}

fn told_in_xml(root: &Element) -> Told {
    let text = |path: &str| at(root, path);
    Told {
        message_id: text("MessageId"),
        account: format!("{}/{}", text("UserId"), text("AccountId")),
        kind: text("Type"),
        amount: text("Amount"),
        currency: text("Currency"),
        status: text("Status"),
        reference: text("Reference"),
        metadata: pair(&text("Metadata/Entry/Name"), &text("Metadata/Entry/Value")),
        order_number: text("OrderNumber"),
        balance_after: text("BalanceAfter"),
        stranger: stranger_in(root),
    }
}

fn told_by_wwi(root: &Element) -> Told {
    let text = |path: &str| at(root, path);
    let sum = |path: &str| {
        let part = |name: &str| text(&format!("{path}/{name}"));
        let decimals: usize = part("Decimals").parse().unwrap_or_default();
        let digits = format!("{:0>width$}", part("Digits"), width = decimals.saturating_add(1));
        let (whole, rest) = digits.split_at(digits.len().saturating_sub(decimals));
        (part("Sign"), if rest.is_empty() { whole.to_owned() } else { format!("{whole}.{rest}") })
    };
    let (sign, amount) = sum("Value/Money");
    let balance_after = match sum("Receipt/NewBalance") {
        (sign, _) if sign.is_empty() => String::new(),
        (sign, number) => format!("{}{number}", sign.trim_start_matches('+')),
    };
    let status = match text("State").as_str() {
        "PENDING" => "accepted",
        "BOOKED" => "posted",
        "REFUSED" => "rejected",
        other => panic!("{other:?} is no state"),
    };
    Told {
        message_id: text("BookingNo"),
        account: format!("{}/{}", text("Customer"), text("AccountNo")),
        kind: if sign == "-" { "withdrawal" } else { "deposit" }.to_owned(),
        amount,
        currency: text("Value/CurrencyCode"),
        status: status.to_owned(),
        reference: text("Narrative"),
        metadata: pair(&text("Tags/Tag/Key"), &text("Tags/Tag/Content")),
        order_number: text("Receipt/Number"),
        balance_after,
        stranger: stranger_in(root),
    }
}

/// The outermost element of an answer in XML.
fn root(answer: &Answer, name: &str) -> Element {
    let root = xml::read(answer.text.as_bytes(), &XmlLimits::default());
    let root = root.unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    assert_eq!(root.name.local, name, "{answer:?}");
    root
}

/// The text at a path of elements; empty where there is none.
fn at(root: &Element, path: &str) -> String {
    let step = |element, name: &str| Element::elements(element).find(|inner| inner.name.local == name);
    let found = path.split('/').try_fold(root, step);
    found.and_then(Element::text).unwrap_or_default().to_owned()
}

fn pair(name: &str, value: &str) -> String {
    if name.is_empty() { String::new() } else { format!("{name}={value}") }
}

fn stranger_in(root: &Element) -> String {
    root.elements().filter(|inner| inner.name.namespace != root.name.namespace).map(xml::write).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
