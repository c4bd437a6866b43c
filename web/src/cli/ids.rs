//! Parsers of ids in command arguments.

use postonce_shared::domain::ids::AccountKey;

/// Parses the id of a user and the id of an account, separated by a slash.
///
/// # Errors
/// A message with the required form.
pub fn parse_account(text: &str) -> Result<AccountKey, String> {
    let (user, account) = text
        .split_once('/')
        .ok_or("must be the id of the user, a slash, and the id of the account".to_owned())?;
    let user = user.parse().map_err(|invalid| format!("the id of the user {invalid}"))?;
    let account = account.parse().map_err(|invalid| format!("the id of the account {invalid}"))?;
    Ok(AccountKey { user, account })
}
