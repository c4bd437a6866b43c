//! Parses ids in paths, and builds paths.

use std::str::FromStr;

use actix_web::HttpRequest;
use postonce_schemas::json::Violation;
use postonce_shared::domain::batch::BatchKey;
use postonce_shared::domain::ids::{
    AccountKey, BatchId, InvalidId, InvalidPartner, MessageId, PartnerId, TransactionKey, UserId,
    parse_hyphenated,
};

use crate::error::{ApiError, Code};

/// Parses the user id in the path.
///
/// # Errors
/// [`ApiError`] with status 400 when it is not a UUID.
pub fn user(request: &HttpRequest) -> Result<UserId, ApiError> {
    let mut violations = Vec::new();
    let user = id(request, "user_id", &mut violations);
    finish(user, violations)
}

/// Parses the user id and the account id in the path.
///
/// # Errors
/// [`ApiError`] with status 400 that lists every id that is not a UUID.
pub fn account(request: &HttpRequest) -> Result<AccountKey, ApiError> {
    let mut violations = Vec::new();
    let account = account_key(request, &mut violations);
    finish(account, violations)
}

/// Parses the user id, the account id and the message id in the path.
///
/// # Errors
/// [`ApiError`] with status 400 that lists every id that is not a UUID.
pub fn message(request: &HttpRequest) -> Result<(AccountKey, MessageId), ApiError> {
    let mut violations = Vec::new();
    let account = account_key(request, &mut violations);
    let message = id(request, "message_id", &mut violations);
    finish(account.zip(message), violations)
}

/// Parses the partner id in the path.
///
/// # Errors
/// [`ApiError`] with status 400 when it is not a valid partner id.
pub fn partner(request: &HttpRequest) -> Result<PartnerId, ApiError> {
    let mut violations = Vec::new();
    let partner = partner_id(request, &mut violations);
    finish(partner, violations)
}

/// Parses the batch id in the path.
///
/// # Errors
/// [`ApiError`] with status 400 when it is not a UUID.
pub fn batch(request: &HttpRequest) -> Result<BatchId, ApiError> {
    let mut violations = Vec::new();
    let batch = id(request, "batch_id", &mut violations);
    finish(batch, violations)
}

/// Parses the partner id and the batch id in the path.
///
/// # Errors
/// [`ApiError`] with status 400 that lists every id that is not valid.
pub fn batch_of_partner(request: &HttpRequest) -> Result<BatchKey, ApiError> {
    let mut violations = Vec::new();
    let partner = partner_id(request, &mut violations);
    let batch = id(request, "batch_id", &mut violations);
    finish(partner.zip(batch).map(|(partner, batch)| BatchKey { partner, batch }), violations)
}

/// Returns the path of a batch.
pub fn of_batch(batch: BatchId) -> String {
    format!("/v1/batches/{batch}")
}

/// Returns the path of an account.
pub fn of_account(key: AccountKey) -> String {
    format!("/v1/users/{}/accounts/{}", key.user, key.account)
}

/// Returns the path of a transaction.
pub fn of_transaction(key: &TransactionKey) -> String {
    format!("{}/transactions/{}", of_account(key.account), key.message)
}

fn account_key(request: &HttpRequest, violations: &mut Vec<Violation>) -> Option<AccountKey> {
    let user = id(request, "user_id", violations);
    let account = id(request, "account_id", violations);
    user.zip(account).map(|(user, account)| AccountKey { user, account })
}

fn partner_id(request: &HttpRequest, violations: &mut Vec<Violation>) -> Option<PartnerId> {
    let refuse = |invalid: InvalidPartner| {
        violations.push(Violation { field: "partner_id".to_owned(), message: invalid.to_string() });
    };
    PartnerId::parse(request.match_info().query("partner_id")).map_err(refuse).ok()
}

fn id<T: FromStr<Err = InvalidId>>(
    request: &HttpRequest,
    name: &str,
    violations: &mut Vec<Violation>,
) -> Option<T> {
    let refuse =
        |error: InvalidId| violations.push(Violation { field: name.to_owned(), message: error.to_string() });
    parse_hyphenated(request.match_info().query(name)).map_err(refuse).ok()
}

fn finish<T>(value: Option<T>, violations: Vec<Violation>) -> Result<T, ApiError> {
    value.ok_or_else(|| ApiError::violations(Code::PathInvalid, violations))
}
