//! What the classic contract has of its own: orders in the currency of the account, and results with one of three statuses.

use postonce_schemas::json::Violation;
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind};
use postonce_shared::domain::money::{Amount, Currency};
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::messaging::xml::Element;
use postonce_shared::protocol::accept::Accepted;

use super::operations::Operation;
use crate::error::{ApiError, Code};
use crate::formats::soap_names::COMPAT_NAMESPACE;

/// A deposit or a withdrawal in the currency of an account that was not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The direction of the money.
    pub kind: TransactionKind,
    /// The amount: a plain decimal number above zero.
    pub amount: String,
    /// The unknown elements.
    pub details: Details,
}

impl Order {
    /// Returns the instruction in the currency of the account.
    ///
    /// # Errors
    /// [`ApiError`] with status 422 when the number is not an amount in this currency.
    pub fn instruction(self, currency: Currency) -> Result<Instruction, ApiError> {
        let Self { kind, amount, details } = self;
        match Amount::parse(&amount, currency) {
            Ok(amount) => Ok(Instruction { kind, amount, details }),
            Err(error) => {
                let violation = Violation { field: "amount".to_owned(), message: error.to_string() };
                Err(ApiError::violations(Code::ValidationFailed, vec![violation]))
            }
        }
    }
}

/// Returns the result of a deposit or a withdrawal, a `TransactionResponse`. The spelling of the statuses is that of the
/// contract: `Succeded` if this request has posted the transaction, `Completed` if an earlier one had its id and it is
/// posted, and `Failed` if it is rejected, with the reason as the message.
///
/// # Errors
/// [`ApiError`] with status 503 while the transaction is not final: none of the statuses says that.
pub fn result(operation: Operation, accepted: Accepted) -> Result<Element, ApiError> {
    let Accepted { outcome, replayed, .. } = accepted;
    let (status, message) = match outcome {
        None => return Err(ApiError::outcome_pending()),
        Some(Outcome::Posted { order_number, .. }) => {
            let status = if replayed { "Completed" } else { "Succeded" };
            (status, format!("The order number is {order_number}."))
        }
        Some(Outcome::Rejected { reason, .. }) => ("Failed", reason.code().to_owned()),
    };
    // In alphabetical order, as the serializer of data contracts reads and writes members.
    let members = [("Message", message.as_str()), ("StatusForTransaction", status)];
    let result = element(&format!("{}Result", operation.name()));
    Ok(members.into_iter().fold(result, |result, (name, text)| result.with(element(name).with_text(text))))
}

/// Returns the result of the query for a balance.
pub fn balance(operation: Operation, balance: &str) -> Element {
    element(&format!("{}Result", operation.name())).with_text(balance)
}

fn element(local: &str) -> Element {
    Element::new(COMPAT_NAMESPACE, local)
}
