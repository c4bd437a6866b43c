//! Parses the messages of the operations, and collects all violations.

use std::str::FromStr;

use postonce_shared::domain::ids::{AccountId, AccountKey, IdError, MessageId, UserId, parse_hyphenated};
use postonce_shared::domain::instruction::{Instruction, TransactionKind};
use postonce_shared::messaging::xml::Element;

use super::compat::Order;
use super::contract::Contract;
use super::double_text;
use super::headers::Addressing;
use super::operations::Operation;
use crate::api::translate;
use crate::error::{ApiError, Code};
use crate::formats::members::Members;
use crate::formats::table::Table;
use crate::headers::{self, Wait};

/// Operation with its parsed parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Submits a deposit or a withdrawal, with the wait time that the client prefers.
    Submit(AccountKey, Instruction, Option<Wait>),
    /// Submits a deposit or a withdrawal in the currency of the account.
    SubmitOrder(AccountKey, Order),
    /// Reads an account.
    Account(AccountKey),
    /// Reads a transaction.
    Transaction(AccountKey, MessageId),
}

/// Parses the message of an operation.
///
/// # Errors
/// [`ApiError`] with status 422 and every violation, by element name.
pub fn read(operation: Operation, message: &Element) -> Result<Command, ApiError> {
    let table = operation.table();
    let mut message = Message { table, members: table.read(message) };
    let account = message.account();
    match operation {
        Operation::ReliableInsertMoney => message.submission(TransactionKind::Deposit, account),
        Operation::ReliableWithdrawMoney => message.submission(TransactionKind::Withdrawal, account),
        Operation::CompatInsertMoney => message.order(TransactionKind::Deposit, account),
        Operation::CompatWithdrawMoney => message.order(TransactionKind::Withdrawal, account),
        Operation::GetUserAccount | Operation::GetUserAccountBalance => {
            message.finish(account).map(Command::Account)
        }
        Operation::GetTransaction => {
            let id = message.id::<MessageId>("message_id");
            let (account, id) = message.finish(account.zip(id))?;
            Ok(Command::Transaction(account, id))
        }
    }
}

/// Parses the request id from the `MessageID` header of the envelope, as the contract writes it.
///
/// # Errors
/// [`ApiError`] with status 400 when it is missing or not a UUID.
pub fn message_id(contract: Contract, addressing: Option<&Addressing>) -> Result<MessageId, ApiError> {
    let Some(Addressing { message_id, .. }) = addressing else {
        let detail = "Send an id of your choice, urn:uuid: and a UUID, in the WS-Addressing header MessageID, and \
                      repeat it when you retry.";
        return Err(ApiError::new(Code::IdempotencyKeyMissing, detail));
    };
    let after = |prefix: &str| {
        let (start, uuid) = message_id.split_at_checked(prefix.len())?;
        start.eq_ignore_ascii_case(prefix).then_some(uuid)
    };
    let uuid = contract.id_prefixes().iter().find_map(|prefix| after(prefix));
    uuid.and_then(|uuid| parse_hyphenated(uuid).ok()).ok_or_else(|| {
        let detail = format!(
            "The MessageID must be {} and a UUID, such as \"urn:uuid:4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10\".",
            contract.id_prefixes().join(" or ")
        );
        ApiError::new(Code::IdempotencyKeyInvalid, detail)
    })
}

/// Unread members of a message, and its violations.
struct Message {
    table: &'static Table,
    members: Members,
}

impl Message {
    fn submission(mut self, kind: TransactionKind, account: Option<AccountKey>) -> Result<Command, ApiError> {
        let wait = self.wait();
        let table = self.table;
        let instruction = translate::instruction_of(kind, self.members)
            .map_err(|error| error.with_fields(|member| table.field(member)))?;
        // The violation of a missing account was reported above.
        let account =
            account.ok_or_else(|| ApiError::internal("a missing account was not reported as a violation"))?;
        Ok(Command::Submit(account, instruction, wait))
    }

    fn order(mut self, kind: TransactionKind, account: Option<AccountKey>) -> Result<Command, ApiError> {
        let amount = match self.text("amount").as_deref().map(double_text::decimal) {
            Some(Ok(amount)) => Some(amount),
            Some(Err(error)) => {
                self.refuse("amount", error.to_string());
                None
            }
            None => {
                self.refuse("amount", "is missing; it must be a decimal number such as 12.50".to_owned());
                None
            }
        };
        let details = translate::unknown_details(&mut self.members);
        let order = account.zip(amount);
        let (account, amount) = self.finish(order)?;
        Ok(Command::SubmitOrder(account, Order { kind, amount, details }))
    }

    fn account(&mut self) -> Option<AccountKey> {
        let user = self.id::<UserId>("user_id");
        let account = self.id::<AccountId>("account_id");
        user.zip(account).map(|(user, account)| AccountKey { user, account })
    }

    /// Removes and parses a member that must be a UUID.
    fn id<T: FromStr<Err = IdError>>(&mut self, member: &str) -> Option<T> {
        let text = self.text(member);
        let id = text.as_deref().and_then(|text| parse_hyphenated(text).ok());
        if id.is_none() {
            let missing = if text.is_none() { "is missing; it " } else { "" };
            self.refuse(member, format!("{missing}must be a UUID"));
        }
        id
    }

    /// Removes and parses the wait time in seconds.
    fn wait(&mut self) -> Option<Wait> {
        let text = self.text("wait_seconds")?;
        let wait = Wait::parse(&text);
        if wait.is_none() {
            self.refuse("wait_seconds", format!("must be a whole number from 0 to {}", headers::WAIT_S_MAX));
        }
        wait.flatten()
    }

    fn text(&mut self, member: &str) -> Option<String> {
        self.members.take(member)?.as_str().map(str::to_owned)
    }

    fn refuse(&mut self, member: &str, message: String) {
        if !self.members.is_unreadable(member) {
            self.members.refuse(&self.table.field(member), message);
        }
    }

    fn finish<T>(self, value: Option<T>) -> Result<T, ApiError> {
        self.members.finish(value)
    }
}
