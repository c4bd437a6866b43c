//! Responses to submissions and to requests for accounts.

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, HttpResponseBuilder};
use postonce_shared::domain::account::Account;
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::protocol::accept::{Acceptance, Accepted};

use crate::api::account_service::OpenOutcome;
use crate::api::conditions::tag_of_version;
use crate::api::negotiate::Reply;
use crate::api::{paths, views};
use crate::error::{ApiError, Code};
use crate::headers::{Handling, IDEMPOTENT_REPLAYED, PREFERENCE_APPLIED, Wait};

/// Returns the accepted transaction of a deposit or a withdrawal.
///
/// # Errors
/// [`ApiError`] for a refused request. A rejected transaction is not an error.
pub fn accepted_or_refused(acceptance: Acceptance) -> Result<Accepted, ApiError> {
    let refused = |code, detail: String| Err(ApiError::new(code, detail));
    match acceptance {
        Acceptance::Accepted(accepted) => Ok(accepted),
        Acceptance::KeyReused => {
            let detail = "You used this id on this account with different content. To retry, send the content of the first \
                          attempt, unchanged. A new id is a new payment.";
            refused(Code::IdempotencyKeyReused, detail.to_owned())
        }
        Acceptance::AccountUnknown => Err(ApiError::account_to_open()),
        Acceptance::CurrencyMismatch { account } => {
            let detail = format!("The account is in {account}. The id can be used again.");
            refused(Code::CurrencyMismatch, detail)
        }
    }
}

/// Builds the response to a deposit or a withdrawal. With [`Handling::Strict`], a rejected transaction is an error.
///
/// # Errors
/// See [`accepted_or_refused`].
pub fn acceptance(
    acceptance: Acceptance,
    (wait, handling): (Option<Wait>, Handling),
    reply: Reply,
) -> Result<HttpResponse, ApiError> {
    let Accepted { submission, outcome, replayed } = accepted_or_refused(acceptance)?;
    let is_final = outcome.is_some();
    let location = paths::of_transaction(&submission.key);
    let applied = [wait.filter(|_| is_final).map(Wait::applied), handling.applied()];
    let applied: Vec<String> = applied.into_iter().flatten().collect();
    let mut response = match &outcome {
        Some(Outcome::Rejected { reason, .. }) if handling == Handling::Strict => {
            HttpResponse::from_error(ApiError::rejected(*reason))
        }
        Some(Outcome::Posted { .. } | Outcome::Rejected { .. }) | None => {
            let status = if is_final { StatusCode::OK } else { StatusCode::ACCEPTED };
            reply.with(HttpResponse::build(status), views::transaction(submission, outcome))
        }
    };
    let headers = [
        (header::LOCATION, Some(location)),
        (IDEMPOTENT_REPLAYED, replayed.then(|| "true".to_owned())),
        (PREFERENCE_APPLIED, Some(applied.join(", ")).filter(|applied| !applied.is_empty())),
    ];
    for (name, value) in headers.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let value = value.parse().expect("paths and preferences are visible ASCII");
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Builds the response to the opening of an account.
///
/// # Errors
/// [`ApiError`] when the account exists with different terms, or the key may not grant the overdraft limit.
pub fn opening(opening: OpenOutcome, reply: Reply) -> Result<HttpResponse, ApiError> {
    match opening {
        OpenOutcome::Created(account) => {
            let location = (header::LOCATION, paths::of_account(account.key));
            let mut created = HttpResponse::Created();
            created.insert_header(location);
            Ok(tagged_account(created, account, reply))
        }
        OpenOutcome::Same(account) => Ok(tagged_account(HttpResponse::Ok(), account, reply)),
        OpenOutcome::CreditRefused(refusal) => Err(refusal.into()),
        OpenOutcome::Different(account) => {
            let detail = format!(
                "The account is in {}, with an overdraft limit of {}. Change it with PATCH; its currency \
                 stays.",
                account.currency, account.overdraft_limit
            );
            Err(ApiError::new(Code::AccountExists, detail))
        }
    }
}

/// Builds a response with an account and its `ETag`.
pub fn tagged_account(mut response: HttpResponseBuilder, account: Account, reply: Reply) -> HttpResponse {
    response.insert_header((header::ETAG, account_tag(&account, reply)));
    reply.with(response, views::account(account))
}

/// Returns the `ETag` of an account in the format of the reply.
pub fn account_tag(account: &Account, reply: Reply) -> String {
    tag_of_version(account.version, reply.format_name())
}
