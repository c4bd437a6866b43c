//! The tables of deposits and withdrawals over SOAP. They are apart from the other operations because `api::translate` compares
//! unknown names with theirs.

use super::soap_names::{COMPAT_NAMESPACE, NAMESPACE};
use super::table::FieldCodec::{Pairs, Text};
use super::table::{Row, Table, Unknown, row};
use super::xml::TRANSACTION_ROWS;

/// A deposit.
#[rustfmt::skip]
pub static INSERT: Table = Table {
    namespace: NAMESPACE,
    root: "ReliableInsertMoney",
    rows: &[
        row("user_id",      "UserId",      Text),
        row("account_id",   "AccountId",   Text),
        row("amount",       "Amount",      Text),
        row("currency",     "Currency",    Text),
        row("reference",    "Reference",   Text),
        row("metadata",     "Metadata",    Pairs("Entry", "Name", "Value")),
        row("wait_seconds", "WaitSeconds", Text),
    ],
    unknown: Unknown::Kept(TRANSACTION_ROWS),
};

/// A withdrawal.
pub static WITHDRAW: Table = Table { root: "ReliableWithdrawMoney", ..INSERT };

/// A deposit in the classic contract.
pub static COMPAT_INSERT: Table = Table {
    namespace: COMPAT_NAMESPACE,
    root: "ReliableInsertMoney",
    rows: &[
        row("user_id", "userId", Text),
        row("account_id", "accountId", Text),
        row("amount", "amount", Text),
    ],
    unknown: Unknown::Kept(COMPAT_ANSWER_ROWS),
};

/// What only the answers of the classic contract have.
static COMPAT_ANSWER_ROWS: &[Row] =
    &[row("message", "Message", Text), row("status", "StatusForTransaction", Text)];

/// A withdrawal in the classic contract.
pub static COMPAT_WITHDRAW: Table = Table { root: "ReliableWithDrawMoney", ..COMPAT_INSERT };
