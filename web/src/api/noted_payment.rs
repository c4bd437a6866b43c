//! What the log line of a request says about the payment in it: ids, which are no personal data.

use actix_web::{HttpMessage as _, HttpRequest};
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::domain::transaction::{Outcome, Transaction};
use postonce_shared::protocol::accept::{Acceptance, Accepted};

/// The payment of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedPayment {
    /// The id that the client chose.
    pub message_id: String,
    /// The account.
    pub account: String,
    /// The status in the answer; `None` if the payment was refused or not found.
    pub status: Option<&'static str>,
    /// The number of a posted one.
    pub order_number: Option<String>,
}

/// Notes the payment that a request submits.
pub fn submitted<E>(request: &HttpRequest, key: &TransactionKey, accepted: &Result<Acceptance, E>) {
    let transaction = match accepted {
        Ok(Acceptance::Accepted(Accepted { transaction, replayed: _ })) => Some(transaction),
        Ok(Acceptance::KeyReused | Acceptance::AccountUnknown | Acceptance::CurrencyMismatch { .. })
        | Err(_) => None,
    };
    note(request, key, transaction);
}

/// Notes the payment that a request is about, for its log line.
pub fn note(request: &HttpRequest, key: &TransactionKey, transaction: Option<&Transaction>) {
    let number = transaction.and_then(|it| it.outcome.as_ref()).and_then(Outcome::order_number);
    request.extensions_mut().insert(NotedPayment {
        message_id: key.message.to_string(),
        account: key.account.to_string(),
        status: transaction.map(|transaction| transaction.status().code()),
        order_number: number.map(|number| number.to_string()),
    });
}
