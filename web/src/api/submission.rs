//! The submission of a deposit or a withdrawal, over HTTP and over SOAP.

use std::time::Duration;

use actix_web::HttpRequest;
use postonce_shared::domain::ids::{AccountKey, MessageId, TransactionKey};
use postonce_shared::domain::instruction::Instruction;
use postonce_shared::protocol::accept::{AcceptFault, Acceptance, Accepted, Acceptor};

use crate::access::authentication::Caller;
use crate::api::noted_payment;
use crate::error::{ApiError, Code};
use crate::headers;
use crate::metrics::Metrics;

/// Attempts to store a submission while the rights of partners change again and again.
const ATTEMPTS_MAX: u32 = 3;

/// Submits an instruction on an account that is within the reach of the caller, and waits for its outcome for `wait` if it is
/// set. The rights of the caller are valid when it is stored. If they end during the wait, the transaction stays accepted, and
/// the answer is that of the time when it was: without its outcome.
///
/// # Errors
/// [`ApiError`]: nothing was stored if the rights have ended, or while the partner has a debt; the transaction may be stored if
/// the store was not available.
pub async fn submit<P>(
    caller: &mut Caller<P>,
    request: &HttpRequest,
    (acceptor, metrics): (&Acceptor, &Metrics),
    (account, message, instruction): (AccountKey, MessageId, Instruction),
    wait: Option<Duration>,
) -> Result<Acceptance, ApiError> {
    caller.refuse_in_debt(request)?;
    let key = TransactionKey { account, partner: caller.partner().clone(), message };
    let mut wait_of_attempt = wait;
    for _ in 0..ATTEMPTS_MAX {
        let (origin, wait) = (headers::origin(request), wait_of_attempt);
        let submitted =
            acceptor.submit_while(caller.standing(), key.clone(), instruction.clone(), origin, wait);
        let acceptance = submitted.await;
        if matches!(acceptance, Err(AcceptFault::RightsChanged)) {
            if caller.standing().is_late() {
                // The store is slow, so the attempt to post at once took too long: this one takes the queue.
                wait_of_attempt = None;
            }
            caller.confirm(request).await?;
            caller.within(account).map_err(|_| ApiError::account_to_open().beyond_reach())?;
            continue;
        }
        noted_payment::submitted(request, &key, &acceptance);
        metrics.submitted(&acceptance);
        let mut acceptance = acceptance?;
        if wait.is_some()
            && let Acceptance::Accepted(Accepted { outcome, .. }) = &mut acceptance
            && (caller.confirm(request).await.is_err() || caller.within(account).is_err())
        {
            *outcome = None;
        }
        return Ok(acceptance);
    }
    let detail = "The rights of partners are being changed. Try again: nothing was stored.";
    Err(ApiError::new(Code::RightsChanged, detail))
}
