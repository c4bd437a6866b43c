//! The formats of partners, written and parsed by hand as a client would do it, without the tables of the bank. A submission
//! becomes a request, and a response becomes a [`ReportedTransaction`], which is the same for all formats.
//!
//! **To add a format**, add a variant and fill in the match arms.

use postonce_shared::messaging::xml::{self, Element, XmlLimits};
use postonce_shared::testing::prelude::*;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::client::{Answer, Client, Submission, path_of};

/// Content in XML that the bank does not know and returns unchanged: an element of another namespace.
const UNKNOWN_ELEMENT: &str = "<x:loyalty xmlns:x=\"urn:example:loyalty\" card=\"77\">gold</x:loyalty>";

/// A format of partners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// JSON.
    Json,
    /// The canonical XML.
    Xml,
    /// The format of World Wide Importers.
    Wwi,
}

/// The content of a response about a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedTransaction {
    /// The message id.
    pub message_id: String,
    /// The account id.
    pub account: String,
    /// `deposit` or `withdrawal`.
    pub kind: String,
    /// The amount, a decimal number.
    pub amount: String,
    /// The currency code.
    pub currency: String,
    /// `accepted`, `posted` or `rejected`.
    pub status: String,
    /// The reference on the statement; empty if there is none.
    pub reference: String,
    /// The only entry of the metadata as `name=value`; empty if there is none.
    pub metadata: String,
    /// The order number of a posted transaction.
    pub order_number: String,
    /// The balance after a posted transaction, a decimal number.
    pub balance_after: String,
    /// The unknown content as it was returned; empty if there is none.
    pub unknown_content: String,
}

impl Dialect {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Json, Self::Xml, Self::Wwi];

    /// Returns the media type of documents.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Xml => "application/vnd.postonce+xml",
            Self::Wwi => "application/vnd.wwi.account+xml",
        }
    }

    /// Returns the media type of problems.
    pub const fn problem_media_type(self) -> &'static str {
        match self {
            Self::Json => "application/problem+json",
            Self::Xml => "application/problem+xml",
            Self::Wwi => "application/vnd.wwi.account+xml",
        }
    }

    /// Builds the request that submits a deposit or a withdrawal. No header selects the format of the response.
    pub fn submission(
        self,
        client: &Client,
        account: AccountKey,
        id: MessageId,
        submission: &Submission,
    ) -> RequestBuilder {
        let path = format!("{}/{}s", path_of(account), submission.kind.code());
        let request = client.request(Method::POST, &path).header("Idempotency-Key", id.to_string());
        request.header("Content-Type", self.media_type()).body(self.body(submission))
    }

    /// Returns the body of a request.
    pub fn body(self, submission: &Submission) -> String {
        let text = |name: &str| submission.body.get(name).and_then(Value::as_str).map(escaped);
        let element = |local: &str, name: &str| {
            text(name).map(|text| format!("<{local}>{text}</{local}>")).unwrap_or_default()
        };
        let metadata = |all: &str, entry: &str, name: &str, value: &str| {
            let entries = submission.body.get("metadata").and_then(Value::as_object).into_iter().flatten();
            let entries: String = entries
                .map(|(key, text)| {
                    let (key, text) = (escaped(key), escaped(text.as_str().unwrap_or_default()));
                    format!("<{entry}><{name}>{key}</{name}><{value}>{text}</{value}></{entry}>")
                })
                .collect();
            if entries.is_empty() { entries } else { format!("<{all}>{entries}</{all}>") }
        };
        let unknown = submission.body.get("loyalty").map(|_| UNKNOWN_ELEMENT).unwrap_or_default();
        match self {
            Self::Json => submission.body.to_string(),
            Self::Xml => format!(
                "<TransactionRequest xmlns=\"urn:postonce:xml:1\">{}{}{}{}{unknown}</TransactionRequest>",
                element("Amount", "amount"),
                element("Currency", "currency"),
                element("Reference", "reference"),
                metadata("Metadata", "Entry", "Name", "Value"),
            ),
            Self::Wwi => {
                let amount = text("amount").unwrap_or_default();
                let (whole, decimals) = amount.split_once('.').unwrap_or((&amount, ""));
                let digits = format!("{whole}{decimals}");
                let sign = match submission.kind {
                    TransactionKind::Deposit => "+",
                    TransactionKind::Withdrawal => "-",
                };
                format!(
                    "<BookingOrder xmlns=\"urn:wideworldimporters:account:1\"><Value><Money><Sign>{sign}</Sign>\
                     <Digits>{}</Digits><Decimals>{}</Decimals></Money>{}</Value>{}{}{unknown}</BookingOrder>",
                    digits.trim_start_matches('0'),
                    decimals.len(),
                    element("CurrencyCode", "currency"),
                    element("Narrative", "reference"),
                    metadata("Tags", "Tag", "Key", "Content"),
                )
            }
        }
    }

    /// Adds unknown content to a submission.
    #[must_use]
    pub fn with_unknown_content(submission: Submission) -> Submission {
        submission.with("loyalty", json!({"card": "77", "rank": "gold"}))
    }

    /// Returns the unknown content of [`Self::with_unknown_content`] as this format returns it.
    pub fn unknown_content(self) -> String {
        match self {
            Self::Json => json!({"card": "77", "rank": "gold"}).to_string(),
            Self::Xml | Self::Wwi => UNKNOWN_ELEMENT.to_owned(),
        }
    }

    /// Parses a response about a transaction.
    ///
    /// # Panics
    /// When the response is in another format.
    pub fn transaction(self, answer: &Answer) -> ReportedTransaction {
        self.expect_type(answer, self.media_type());
        match self {
            Self::Json => json_transaction(answer),
            Self::Xml => xml_transaction(&root(answer, "Transaction")),
            Self::Wwi => wwi_transaction(&root(answer, "Booking")),
        }
    }

    /// Returns the code of a problem.
    ///
    /// # Panics
    /// When the response is in another format.
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

fn json_transaction(answer: &Answer) -> ReportedTransaction {
    let text = |name: &str| answer.text_at(&format!("/{name}")).to_owned();
    let metadata = answer.body.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let metadata = metadata.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
    ReportedTransaction {
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
        unknown_content: answer.body.get("loyalty").map(Value::to_string).unwrap_or_default(),
    }
}

fn xml_transaction(root: &Element) -> ReportedTransaction {
    let text = |path: &str| at(root, path);
    ReportedTransaction {
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
        unknown_content: unknown_content_in(root),
    }
}

fn wwi_transaction(root: &Element) -> ReportedTransaction {
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
        other => panic!("{other:?} is not a state"),
    };
    ReportedTransaction {
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
        unknown_content: unknown_content_in(root),
    }
}

/// Parses the root element of an XML response.
fn root(answer: &Answer, name: &str) -> Element {
    let root = xml::read(answer.text.as_bytes(), &XmlLimits::default());
    let root = root.unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    assert_eq!(root.name.local, name, "{answer:?}");
    root
}

/// Returns the text at a path of elements; empty if it is missing.
fn at(root: &Element, path: &str) -> String {
    let step = |element, name: &str| Element::elements(element).find(|inner| inner.name.local == name);
    let found = path.split('/').try_fold(root, step);
    found.and_then(Element::text).unwrap_or_default().to_owned()
}

fn pair(name: &str, value: &str) -> String {
    if name.is_empty() { String::new() } else { format!("{name}={value}") }
}

fn unknown_content_in(root: &Element) -> String {
    root.elements().filter(|inner| inner.name.namespace != root.name.namespace).map(xml::write).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
