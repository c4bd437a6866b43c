//! The operations of the SOAP service, and the tables of their messages.

use postonce_shared::messaging::xml::{Element, shown};

use super::contract::Contract;
use crate::access::scopes::Scope;
use crate::error::{ApiError, Code};
use crate::formats::soap_names::{COMPAT_NAMESPACE, NAMESPACE};
use crate::formats::soap_submissions::{COMPAT_INSERT, COMPAT_WITHDRAW, INSERT, WITHDRAW};
use crate::formats::table::FieldCodec::Text;
use crate::formats::table::{Table, Unknown, row};

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
    /// Submits a deposit in the classic contract.
    CompatInsertMoney,
    /// Submits a withdrawal in the classic contract.
    CompatWithdrawMoney,
    /// Reads the balance of an account in the classic contract.
    GetUserAccountBalance,
}

impl Operation {
    /// Returns all operations of a contract.
    pub const fn all(contract: Contract) -> &'static [Self] {
        match contract {
            Contract::Current => &[
                Self::ReliableInsertMoney,
                Self::ReliableWithdrawMoney,
                Self::GetUserAccount,
                Self::GetTransaction,
            ],
            Contract::Compat => {
                &[Self::CompatInsertMoney, Self::CompatWithdrawMoney, Self::GetUserAccountBalance]
            }
        }
    }

    /// Returns the contract to which the operation belongs.
    pub const fn contract(self) -> Contract {
        match self {
            Self::ReliableInsertMoney
            | Self::ReliableWithdrawMoney
            | Self::GetUserAccount
            | Self::GetTransaction => Contract::Current,
            Self::CompatInsertMoney | Self::CompatWithdrawMoney | Self::GetUserAccountBalance => {
                Contract::Compat
            }
        }
    }

    /// Returns the name of the operation, which is also the name of its request element.
    pub const fn name(self) -> &'static str {
        self.table().root
    }

    /// Returns the name of the response element.
    pub fn response(self) -> String {
        format!("{}Response", self.name())
    }

    /// Checks that an action, from a header or from the envelope, belongs to this operation. An empty action is ignored.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 for another action, because a gateway may have authorized the request by it.
    pub fn check_action(self, action: &str) -> Result<(), ApiError> {
        let expected = self.contract().action(self.name());
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
            Self::ReliableInsertMoney | Self::CompatInsertMoney => Scope::Deposit,
            Self::ReliableWithdrawMoney | Self::CompatWithdrawMoney => Scope::Withdraw,
            Self::GetUserAccount | Self::GetTransaction | Self::GetUserAccountBalance => Scope::Read,
        }
    }

    /// Returns the table of the elements in its requests.
    pub const fn table(self) -> &'static Table {
        match self {
            Self::ReliableInsertMoney => &INSERT,
            Self::ReliableWithdrawMoney => &WITHDRAW,
            Self::GetUserAccount => &GET_ACCOUNT,
            Self::GetTransaction => &GET_TRANSACTION,
            Self::CompatInsertMoney => &COMPAT_INSERT,
            Self::CompatWithdrawMoney => &COMPAT_WITHDRAW,
            Self::GetUserAccountBalance => &GET_BALANCE,
        }
    }

    /// Returns the operation of a contract that the element of a message names.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 for an unknown element.
    pub fn of(contract: Contract, message: &Element) -> Result<Self, ApiError> {
        let namespace = contract.namespace();
        let all = Self::all(contract);
        let found = all.iter().copied().find(|operation| message.is(namespace, operation.name()));
        found.ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|operation| operation.name()).collect();
            let (local, other) = (shown(&message.name.local), shown(&message.name.namespace));
            let detail = format!(
                "The Body must contain one of {} of the namespace {namespace}, but contains {local} of {other:?}.",
                names.join(", ")
            );
            ApiError::new(Code::BodyInvalid, detail)
        })
    }
}

static GET_ACCOUNT: Table = Table {
    namespace: NAMESPACE,
    root: "GetUserAccount",
    rows: &[row("user_id", "UserId", Text), row("account_id", "AccountId", Text)],
    unknown: Unknown::Refused,
};

static GET_TRANSACTION: Table = Table {
    namespace: NAMESPACE,
    root: "GetTransaction",
    rows: &[
        row("user_id", "UserId", Text),
        row("account_id", "AccountId", Text),
        row("message_id", "MessageId", Text),
    ],
    unknown: Unknown::Refused,
};

static GET_BALANCE: Table = Table {
    namespace: COMPAT_NAMESPACE,
    root: "GetUserAccountBalance",
    rows: &[row("user_id", "userId", Text), row("account_id", "accountId", Text)],
    unknown: Unknown::Refused,
};
