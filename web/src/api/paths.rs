//! The ids in a path, and the paths that name things.

use std::str::FromStr;

use actix_web::HttpRequest;
use postonce_schemas::json::Violation;
use postonce_shared::domain::ids::{
    AccountKey, InvalidId, MessageId, PartnerId, TransactionKey, UserId, parse_hyphenated,
};

use crate::error::{ApiError, Code};

/// The user in the path.
///
/// # Errors
/// [`ApiError`] of status 400 when it is not a UUID; so with all functions here.
pub fn user(request: &HttpRequest) -> Result<UserId, ApiError> {
    let mut violations = Vec::new();
    let user = id(request, "user_id", &mut violations);
    finish(user, violations)
}

/// The account in the path.
///
/// # Errors
/// [`ApiError`] of status 400, with every id that is not a UUID.
pub fn account(request: &HttpRequest) -> Result<AccountKey, ApiError> {
    let mut violations = Vec::new();
    let account = account_key(request, &mut violations);
    finish(account, violations)
}

/// The account and the message in the path.
///
/// # Errors
/// [`ApiError`] of status 400, with every id that is not a UUID.
pub fn message(request: &HttpRequest) -> Result<(AccountKey, MessageId), ApiError> {
    let mut violations = Vec::new();
    let account = account_key(request, &mut violations);
    let message = id(request, "message_id", &mut violations);
    finish(account.zip(message), violations)
}

/// The partner in the path.
///
/// # Errors
/// [`ApiError`] of status 400 when it is no name of one.
pub fn partner(request: &HttpRequest) -> Result<PartnerId, ApiError> {
    PartnerId::parse(request.match_info().query("partner_id")).map_err(|invalid| {
        let violation = Violation { field: "partner_id".to_owned(), message: invalid.to_string() };
        ApiError::violations(Code::PathInvalid, vec![violation])
    })
}

/// The path of an account.
pub fn of_account(key: AccountKey) -> String {
    format!("/v1/users/{}/accounts/{}", key.user, key.account)
}

/// The path of a transaction.
pub fn of_transaction(key: &TransactionKey) -> String {
    format!("{}/transactions/{}", of_account(key.account), key.message)
}

fn account_key(request: &HttpRequest, violations: &mut Vec<Violation>) -> Option<AccountKey> {
    let user = id(request, "user_id", violations);
    let account = id(request, "account_id", violations);
    user.zip(account).map(|(user, account)| AccountKey { user, account })
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
