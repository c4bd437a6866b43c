//! The payment in the log line of a request. It contains ids only, which are no personal data.

use actix_web::{HttpMessage as _, HttpRequest};
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::domain::transaction::{Outcome, TransactionStatus};
use postonce_shared::ports::ledger::StoredTransaction;
use postonce_shared::protocol::accept::Acceptance;

/// The payment of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedPayment {
    /// The message id, which the client chose.
    pub message_id: String,
    /// The key of the account.
    pub account: String,
    /// The status in the response; `None` if the payment was refused or not found.
    pub status: Option<&'static str>,
    /// The order number, if the payment is posted.
    pub order_number: Option<String>,
}

/// Records the payment that a request submits.
pub fn submitted<E>(request: &HttpRequest, key: &TransactionKey, accepted: &Result<Acceptance, E>) {
    match accepted {
        Ok(Acceptance::Accepted(accepted)) => {
            note(request, key, Some(accepted.status()), accepted.outcome.as_ref());
        }
        Ok(Acceptance::KeyReused | Acceptance::AccountUnknown | Acceptance::CurrencyMismatch { .. })
        | Err(_) => note(request, key, None, None),
    }
}

/// Records the payment that a request reads.
pub fn found(request: &HttpRequest, key: &TransactionKey, stored: Option<&StoredTransaction>) {
    let outcome = stored.and_then(|stored| stored.outcome.as_ref());
    note(request, key, stored.map(StoredTransaction::status), outcome);
}

fn note(
    request: &HttpRequest,
    key: &TransactionKey,
    status: Option<TransactionStatus>,
    outcome: Option<&Outcome>,
) {
    let number = outcome.and_then(Outcome::order_number);
    request.extensions_mut().insert(NotedPayment {
        message_id: key.message.to_string(),
        account: key.account.to_string(),
        status: status.map(TransactionStatus::code),
        order_number: number.map(|number| number.to_string()),
    });
}
