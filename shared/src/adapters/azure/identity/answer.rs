//! Parses the responses of token endpoints (RFC 6749, sections 5.1 and 5.2).

use std::time::Duration;

use reqwest::RequestBuilder;
use secrecy::SecretString;
use serde::Deserialize;

use super::{Token, TokenFault};
use crate::adapters::bounded_body::bounded_body;
use crate::domain::time::Timestamp;
use crate::ports::fault::chain;

/// Maximum size of a response, in bytes. A token has a few kilobytes.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Maximum time for which a token is used. Tokens of managed identities are valid for a day.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Maximum length of an error description, in characters.
const REASON_CHARS_MAX: usize = 300;

/// A number, which some endpoints encode as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(i64),
    Text(String),
}

impl Number {
    fn value(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

#[derive(Deserialize)]
struct Issued {
    access_token: String,
    /// Seconds until the token expires.
    expires_in: Option<Number>,
    /// Expiry in seconds since 1970. App Service and Container Apps return only this value.
    expires_on: Option<Number>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Refusal {
    error: String,
    error_description: String,
    /// The error description of App Service.
    message: String,
}

/// Requests a token and parses the response. `endpoint` names the endpoint in errors.
pub(super) async fn exchange(
    request: RequestBuilder,
    endpoint: &str,
    now: Timestamp,
) -> Result<Token, TokenFault> {
    let unreachable = |error: reqwest::Error| TokenFault::Unreachable {
        endpoint: endpoint.to_owned(),
        // The URL is omitted, because `endpoint` already names it.
        reason: chain(&error.without_url()),
    };
    let unusable = |reason| TokenFault::Unusable { endpoint: endpoint.to_owned(), reason };
    let mut response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let body = bounded_body(&mut response, ANSWER_BYTES_MAX).await.map_err(unreachable)?;
    let body = body.ok_or_else(|| unusable("it is too long"))?;
    if !status.is_success() {
        let reason = reason(&body);
        return Err(TokenFault::Refused { endpoint: endpoint.to_owned(), status: status.as_u16(), reason });
    }
    let issued: Issued =
        serde_json::from_slice(&body).map_err(|_| unusable("it is not JSON with an access_token"))?;
    let Issued { access_token, expires_in, expires_on } = issued;
    let expires_in = expires_in.as_ref().and_then(Number::value);
    let expires_on = expires_on.as_ref().and_then(Number::value);
    token(access_token, expires_in, expires_on, now).map_err(unusable)
}

/// Returns a token with its remaining lifetime, or the reason why it cannot be used.
pub(super) fn token(
    text: String,
    expires_in: Option<i64>,
    expires_on: Option<i64>,
    now: Timestamp,
) -> Result<Token, &'static str> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("its access token is not visible ASCII");
    }
    let lifetime = lifetime(expires_in, expires_on, now)?;
    Ok(Token { text: SecretString::from(text), lifetime })
}

/// Returns the remaining lifetime: the smaller of `expires_in`, which may be counted from the issuance of an earlier token,
/// and the time until `expires_on`. If both are given, an `expires_on` in the past shows a wrong clock and is ignored.
fn lifetime(
    expires_in: Option<i64>,
    expires_on: Option<i64>,
    now: Timestamp,
) -> Result<Duration, &'static str> {
    let until = expires_on.map(|at| at.saturating_sub(now.unix_ms().div_euclid(1000)));
    let remaining = match (expires_in, until) {
        (Some(expires_in), Some(until)) if until > 0 => Some(expires_in.min(until)),
        (expires_in, until) => expires_in.or(until),
    };
    let remaining = remaining.ok_or("it does not tell when the token expires")?;
    let seconds = u64::try_from(remaining).ok().filter(|seconds| *seconds > 0);
    Ok(Duration::from_secs(seconds.ok_or("its token has expired")?).min(LIFETIME_MAX))
}

/// Returns the error description of an endpoint as one line.
fn reason(body: &[u8]) -> String {
    let Refusal { error, error_description, message } = serde_json::from_slice(body).unwrap_or_default();
    let description = if error_description.is_empty() { message } else { error_description };
    let described = [error.as_str(), description.lines().next().unwrap_or_default()];
    let described: Vec<&str> = described.into_iter().filter(|text| !text.is_empty()).collect();
    one_line(&described.join(": "))
}

/// Returns the first line of a text of another program, without control characters and limited to a reasonable length for logs.
pub(super) fn one_line(text: &str) -> String {
    match text.trim().lines().next() {
        None => "without a description".to_owned(),
        Some(line) => line.chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lifetime_is_the_less_of_seconds_and_expiry() {
        let now = Timestamp::from_unix_ms(1_800_000_000_999);
        let after = |seconds: i64| Some(1_800_000_000 + seconds);
        let check = |expires_in, expires_on, expected: Result<u64, &str>| {
            let found = lifetime(expires_in, expires_on, now).map(|lifetime| lifetime.as_secs());
            assert_eq!(found, expected, "{expires_in:?} {expires_on:?}");
        };
        check(Some(3600), None, Ok(3600));
        check(None, after(600), Ok(600));
        check(Some(3600), after(600), Ok(600));
        check(Some(600), after(3600), Ok(600));
        check(Some(600), after(-50), Ok(600));
        check(None, after(-50), Err("its token has expired"));
        check(Some(0), None, Err("its token has expired"));
        check(None, None, Err("it does not tell when the token expires"));
        // The value is in milliseconds instead of seconds.
        check(None, Some(1_800_000_600_000), Ok(24 * 3600));
    }
}
