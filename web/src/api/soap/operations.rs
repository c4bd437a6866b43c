//! The operations of the SOAP service, and the tables of their messages.

use postonce_shared::messaging::xml::{Element, shown};

use super::NAMESPACE;
use crate::access::scopes::Scope;
use crate::error::{ApiError, Code};
use crate::formats::table::FieldCodec::{Pairs, Text};
use crate::formats::table::{Row, Table, row};

/// An operation of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Submits a deposit.
    ReliableInsertMoney,
    /// Submits a withdrawal.
    ReliableWithdrawMoney,
    /// Reads an account.
    GetUserAccount,
    /// Reads a transaction.
    GetTransaction,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 4] =
        [Self::ReliableInsertMoney, Self::ReliableWithdrawMoney, Self::GetUserAccount, Self::GetTransaction];

    /// Returns the name of the operation, which is also the name of its request element.
    pub const fn name(self) -> &'static str {
        self.table().root
    }

    /// Returns the name of the response element.
    pub const fn response(self) -> &'static str {
        match self {
            Self::ReliableInsertMoney => "ReliableInsertMoneyResponse",
            Self::ReliableWithdrawMoney => "ReliableWithdrawMoneyResponse",
            Self::GetUserAccount => "GetUserAccountResponse",
            Self::GetTransaction => "GetTransactionResponse",
        }
    }

    /// Checks that an action, from a header or from the envelope, belongs to this operation. An empty action is ignored.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 for another action, because a gateway may have authorized the request by it.
    pub fn check_action(self, action: &str) -> Result<(), ApiError> {
        let expected = format!("{NAMESPACE}/{}", self.name());
        if action.is_empty() || action == expected {
            return Ok(());
        }
        let detail =
            format!("The action of this body is {expected}, but the request names {}.", shown(action));
        Err(ApiError::new(Code::ActionMismatch, detail))
    }

    /// Returns the scope that the operation needs.
    pub const fn scope(self) -> Scope {
        match self {
            Self::ReliableInsertMoney => Scope::Deposit,
            Self::ReliableWithdrawMoney => Scope::Withdraw,
            Self::GetUserAccount | Self::GetTransaction => Scope::Read,
        }
    }

    /// Returns the table of the elements in its requests.
    pub const fn table(self) -> &'static Table {
        match self {
            Self::ReliableInsertMoney => &INSERT,
            Self::ReliableWithdrawMoney => &WITHDRAW,
            Self::GetUserAccount => &GET_ACCOUNT,
            Self::GetTransaction => &GET_TRANSACTION,
        }
    }

    /// Returns the operation that the element of a message names.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 for an unknown element.
    pub fn of(message: &Element) -> Result<Self, ApiError> {
        let found = Self::ALL.into_iter().find(|operation| message.is(NAMESPACE, operation.name()));
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|operation| operation.name()).collect();
            let (local, namespace) = (shown(&message.name.local), shown(&message.name.namespace));
            let detail = format!(
                "The Body must contain one of {} of the namespace {NAMESPACE}, but contains {local} of {namespace:?}.",
                names.join(", ")
            );
            ApiError::new(Code::BodyInvalid, detail)
        })
    }
}

#[rustfmt::skip]
const SUBMISSION: &[Row] = &[
    row("user_id",      "UserId",      Text),
    row("account_id",   "AccountId",   Text),
    row("amount",       "Amount",      Text),
    row("currency",     "Currency",    Text),
    row("reference",    "Reference",   Text),
    row("metadata",     "Metadata",    Pairs("Entry", "Name", "Value")),
    row("wait_seconds", "WaitSeconds", Text),
];

static INSERT: Table =
    Table { namespace: NAMESPACE, root: "ReliableInsertMoney", rows: SUBMISSION, open: true };

static WITHDRAW: Table = Table { root: "ReliableWithdrawMoney", ..INSERT };

static GET_ACCOUNT: Table = Table {
    namespace: NAMESPACE,
    root: "GetUserAccount",
    rows: &[row("user_id", "UserId", Text), row("account_id", "AccountId", Text)],
    open: false,
};

static GET_TRANSACTION: Table = Table {
    namespace: NAMESPACE,
    root: "GetTransaction",
    rows: &[
        row("user_id", "UserId", Text),
        row("account_id", "AccountId", Text),
        row("message_id", "MessageId", Text),
    ],
    open: false,
};
