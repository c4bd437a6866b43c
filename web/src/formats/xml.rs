//! The canonical XML format: the JSON members under names in the usual style of XML. `schemas/xsd/postonce.xsd` is its
//! XSD. Problem documents follow RFC 9457, appendix B.

use super::table::FieldCodec::{List, Number, Pairs, Text};
use super::table::{Row, Table, Tables, Unknown, row};

/// The namespace of the canonical XML.
pub const NAMESPACE: &str = "urn:postonce:xml:1";
/// The namespace of problem documents (RFC 9457, appendix B).
pub const PROBLEM_NAMESPACE: &str = "urn:ietf:rfc:7807";

/// The format with the media type `application/vnd.postonce+xml`.
pub static CANONICAL: Tables = Tables {
    name: "xml",
    media_type: "application/vnd.postonce+xml",
    problem_media_type: "application/problem+xml",
    submission: &SUBMISSION,
    opening: &OPENING,
    change: &CHANGE,
    transaction: &TRANSACTION,
    transaction_page: &TRANSACTION_PAGE,
    account: &ACCOUNT,
    account_page: &ACCOUNT_PAGE,
    problem: &PROBLEM,
};

const fn closed(root: &'static str, rows: &'static [Row]) -> Table {
    Table { namespace: NAMESPACE, root, rows, unknown: Unknown::Refused }
}

/// A request of which the answer is a transaction.
const fn submission(rows: &'static [Row]) -> Table {
    let unknown = Unknown::Kept(TRANSACTION_ROWS);
    Table { namespace: NAMESPACE, root: "TransactionRequest", rows, unknown }
}

#[rustfmt::skip]
static SUBMISSION: Table = submission(&[
    row("amount", "Amount", Text),
    row("currency", "Currency", Text),
    row("reference", "Reference", Text),
    row("metadata", "Metadata", Pairs("Entry", "Name", "Value")),
]);

/// A batch of transactions, whose elements are read one by one.
#[rustfmt::skip]
pub static BATCH: Table = closed("BatchRequest", &[
    row("control.count", "Control/Count", Number),
    row("control.sums", "Control/Sums", Pairs("Sum", "Currency", "Amount")),
    row("items", "TransactionRequest", List(&BATCH_ITEM)),
]);

/// Name of the element of a batch with its control totals.
pub const BATCH_CONTROL: &str = "Control";

/// An item of a batch: its ids and type, and the elements of a single request.
#[rustfmt::skip]
pub static BATCH_ITEM: Table = submission(&[
    row("user_id", "UserId", Text),
    row("account_id", "AccountId", Text),
    row("message_id", "MessageId", Text),
    row("type", "Type", Text),
    row("amount", "Amount", Text),
    row("currency", "Currency", Text),
    row("reference", "Reference", Text),
    row("metadata", "Metadata", Pairs("Entry", "Name", "Value")),
]);

#[rustfmt::skip]
static OPENING: Table = closed("OpenAccountRequest", &[
    row("currency", "Currency", Text),
    row("overdraft_limit", "OverdraftLimit", Text),
    row("holder.given_name", "Holder/GivenName", Text),
    row("holder.family_name", "Holder/FamilyName", Text),
]);

#[rustfmt::skip]
static CHANGE: Table = closed("ChangeAccountRequest", &[
    row("overdraft_limit", "OverdraftLimit", Text),
    row("status", "Status", Text),
    row("holder.given_name", "Holder/GivenName", Text),
    row("holder.family_name", "Holder/FamilyName", Text),
]);

/// A transaction, also used in SOAP messages.
pub static TRANSACTION: Table =
    Table { namespace: NAMESPACE, root: "Transaction", rows: TRANSACTION_ROWS, unknown: Unknown::Answered };

/// The rows of a transaction.
#[rustfmt::skip]
pub const TRANSACTION_ROWS: &[Row] = &[
    row("message_id", "MessageId", Text),
    row("user_id", "UserId", Text),
    row("account_id", "AccountId", Text),
    row("type", "Type", Text),
    row("amount", "Amount", Text),
    row("currency", "Currency", Text),
    row("status", "Status", Text),
    row("reference", "Reference", Text),
    row("metadata", "Metadata", Pairs("Entry", "Name", "Value")),
    row("accepted_at", "AcceptedAt", Text),
    row("order_number", "OrderNumber", Text),
    row("sequence", "Sequence", Number),
    row("balance_after", "BalanceAfter", Text),
    row("posted_at", "PostedAt", Text),
    row("reason", "Reason", Text),
    row("rejected_at", "RejectedAt", Text),
    row("partner_id", "PartnerId", Text),
];

#[rustfmt::skip]
static TRANSACTION_PAGE: Table = closed("TransactionPage", &[
    row("transactions", "Transaction", List(&TRANSACTION)),
    row("next_cursor", "NextCursor", Text),
]);

/// An account, also used in SOAP messages.
#[rustfmt::skip]
pub static ACCOUNT: Table = closed("Account", &[
    row("user_id", "UserId", Text),
    row("account_id", "AccountId", Text),
    row("currency", "Currency", Text),
    row("status", "Status", Text),
    row("balance", "Balance", Text),
    row("available", "Available", Text),
    row("overdraft_limit", "OverdraftLimit", Text),
    row("version", "Version", Number),
    row("opened_at", "OpenedAt", Text),
    row("holder.given_name", "Holder/GivenName", Text),
    row("holder.family_name", "Holder/FamilyName", Text),
]);

#[rustfmt::skip]
static ACCOUNT_PAGE: Table = closed("AccountPage", &[
    row("accounts", "Account", List(&ACCOUNT)),
    row("next_cursor", "NextCursor", Text),
]);

/// A problem, also used in SOAP faults.
#[rustfmt::skip]
pub static PROBLEM: Table = Table {
    namespace: PROBLEM_NAMESPACE,
    root: "problem",
    rows: &[
        row("type", "type", Text),
        row("title", "title", Text),
        row("status", "status", Number),
        row("detail", "detail", Text),
        row("code", "code", Text),
        row("reason", "reason", Text),
        row("violations", "violations/i", List(&VIOLATION)),
    ],
    unknown: Unknown::Refused,
};

#[rustfmt::skip]
static VIOLATION: Table = Table {
    namespace: PROBLEM_NAMESPACE,
    root: "i",
    rows: &[row("field", "field", Text), row("message", "message", Text)],
    unknown: Unknown::Refused,
};
