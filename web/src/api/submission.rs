//! Submission of deposits and withdrawals, for HTTP and SOAP.

use std::time::Duration;

use actix_web::HttpRequest;
use postonce_shared::access::partner_cache::{Rights, Standing};
use postonce_shared::domain::ids::{AccountKey, MessageId, TransactionKey};
use postonce_shared::domain::instruction::Instruction;
use postonce_shared::protocol::accept::{AcceptFault, Acceptance, Accepted, Acceptor};

use crate::access::authentication::Caller;
use crate::api::account_service::AccountService;
use crate::api::payment_log;
use crate::api::translate::look_alikes;
use crate::error::ApiError;
use crate::headers;
use crate::metrics::Metrics;

/// The rights of a caller to an account.
struct OnAccount<'a, P> {
    caller: &'a mut Caller<P>,
    request: &'a HttpRequest,
    account: AccountKey,
    /// Reason why the rights could not be confirmed.
    refusal: Option<ApiError>,
}

impl<P> Rights for OnAccount<'_, P> {
    fn standing(&self) -> &Standing {
        self.caller.standing()
    }

    async fn confirm(&mut self) -> bool {
        let confirmed = self.caller.confirm(self.request).await;
        let within =
            || self.caller.within(self.account).map_err(|_| ApiError::account_to_open().beyond_reach());
        self.refusal = confirmed.and_then(|()| within().map(drop)).err();
        self.refusal.is_none()
    }
}

/// Submits an instruction for an account within the reach of the caller, and waits up to `wait` for its outcome. A new one must
/// have no [look-alikes](look_alikes) of known names. The rights
/// of the caller are valid when the transaction is stored. If they end during the wait, the transaction stays accepted, and
/// the result omits the outcome.
///
/// # Errors
/// [`ApiError`]: nothing was stored if the partner has a debt, or if the rights ended before the attempt to post. The
/// transaction may be stored if they ended during the attempt, or if the store was unavailable.
pub async fn submit<P>(
    caller: &mut Caller<P>,
    request: &HttpRequest,
    (acceptor, accounts_service, metrics): (&Acceptor, &AccountService, &Metrics),
    (account, message, instruction): (AccountKey, MessageId, Instruction),
    wait: Option<Duration>,
) -> Result<Acceptance, ApiError> {
    let key = TransactionKey { account, partner: caller.partner().clone(), message };
    if let Some(refusal) = look_alikes::refusal(&instruction)
        && accounts_service.transaction(&key).await?.is_none()
    {
        return Err(refusal);
    }
    caller.refuse_in_debt(request)?;
    let mut rights = OnAccount { caller, request, account, refusal: None };
    let origin = headers::origin(request);
    let submitted = acceptor.submit_while(&mut rights, key.clone(), instruction, origin, wait).await;
    if let (Err(AcceptFault::RightsChanged { is_in_doubt: false }), Some(refusal)) =
        (&submitted, rights.refusal.take())
    {
        return Err(refusal);
    }
    payment_log::submitted(request, &key, &submitted);
    metrics.submitted(&submitted);
    let mut acceptance = submitted?;
    if wait.is_some()
        && let Acceptance::Accepted(Accepted { outcome, .. }) = &mut acceptance
        && !rights.standing().is_unchanged()
        && !rights.confirm().await
    {
        *outcome = None;
    }
    Ok(acceptance)
}
