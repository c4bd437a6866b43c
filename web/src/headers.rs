//! Headers of requests: message id, preferred wait time, trace context and request id.

use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName};
use actix_web::{HttpMessage as _, HttpRequest};
use postonce_shared::domain::ids::{MessageId, parse_hyphenated};
use postonce_shared::domain::origin::{Origin, TraceParent};

use crate::error::{ApiError, Code};

/// Header with the id that the partner chose for the request.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Response header that marks the stored result of a repeated request.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Header with the preferences of the client (RFC 7240).
pub const PREFER: &str = "prefer";
/// Response header that names the applied preferences.
pub const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// Header of W3C Trace Context with the trace and the parent span.
pub const TRACEPARENT: &str = "traceparent";
/// Response header with the trace and the span of the request (draft of W3C Trace Context, level 2).
pub const TRACERESPONSE: HeaderName = HeaderName::from_static("traceresponse");
/// Request id. Clients and proxies may send one; the response has the id in use.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum wait time that a client can request, in seconds.
pub const WAIT_S_MAX: u64 = 30;

/// Parses `Idempotency-Key`: a UUID, bare or as a string of RFC 8941.
///
/// # Errors
/// [`ApiError`] with status 400 when the header is missing, occurs twice or is not a UUID.
pub fn message_id(headers: &HeaderMap) -> Result<MessageId, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY);
    let Some(value) = values.next() else {
        let detail = "Send a UUID in the header Idempotency-Key: a new one for each payment to the account, and the same one \
                      for each retry of it.";
        return Err(ApiError::new(Code::IdempotencyKeyMissing, detail));
    };
    let invalid = |detail: &str| ApiError::new(Code::IdempotencyKeyInvalid, detail);
    if values.next().is_some() {
        return Err(invalid("The header Idempotency-Key occurs more than once."));
    }
    let text = value.to_str().unwrap_or_default().trim();
    parse_hyphenated(unquoted(text)).map_err(|_| {
        invalid("The Idempotency-Key must be a UUID, such as \"4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10\".")
    })
}

/// Time that the client is willing to wait for the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    seconds: u64,
}

impl Wait {
    /// The wait time of classic SOAP clients without a preference: less than the time after which their toolkits give up.
    pub const OF_COMPAT: Self = Self { seconds: 10 };

    /// Parses `Prefer: wait=N`. Returns `None` when the preference is missing, zero or malformed: a server ignores
    /// preferences that it does not understand (RFC 7240). Values above [`WAIT_S_MAX`] are reduced to it.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let digits = preference(headers, "wait").filter(|value| !value.is_empty())?;
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)?;
        // The text has digits only, so parsing fails only on overflow.
        let seconds = number.parse().unwrap_or(WAIT_S_MAX).min(WAIT_S_MAX);
        (seconds > 0).then_some(Self { seconds })
    }

    /// Parses a wait time in a document: a decimal number up to [`WAIT_S_MAX`]. Returns `Some(None)` for zero, and `None` for
    /// any other text.
    pub fn parse(text: &str) -> Option<Option<Self>> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit()).then_some(text)?;
        let seconds = digits.parse().ok().filter(|seconds| *seconds <= WAIT_S_MAX)?;
        Some((seconds > 0).then_some(Self { seconds }))
    }

    /// Returns the wait time as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// Returns the value of `Preference-Applied`.
    pub fn applied(self) -> String {
        format!("wait={}", self.seconds)
    }
}

/// How a rejected transaction is reported (`handling`, RFC 7240, section 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handling {
    /// As the result of a successful request.
    Lenient,
    /// As an error.
    Strict,
}

impl Handling {
    /// Parses `Prefer: handling=strict`. Everything else is [`Handling::Lenient`].
    pub fn of(headers: &HeaderMap) -> Self {
        match preference(headers, "handling") {
            Some(value) if value.eq_ignore_ascii_case("strict") => Self::Strict,
            Some(_) | None => Self::Lenient,
        }
    }

    /// Returns the value for `Preference-Applied`, or `None` for the default.
    pub fn applied(self) -> Option<String> {
        (self == Self::Strict).then(|| "handling=strict".to_owned())
    }
}

/// Returns the value of a preference. The first one counts if there are several (RFC 7240, section 2).
fn preference<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let lines = headers.get_all(PREFER).filter_map(|value| value.to_str().ok());
    let mut found = lines.flat_map(preferences).filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
    found.next().map(|(_, value)| value)
}

/// Splits a header line into preferences: name and value, without parameters.
fn preferences(line: &str) -> impl Iterator<Item = (&str, &str)> {
    split_unquoted(line, ',').map(|preference| {
        let first = split_unquoted(preference, ';').next().unwrap_or_default();
        let (name, value) = first.split_once('=').unwrap_or((first, ""));
        (name.trim(), unquoted(value.trim()))
    })
}

/// Removes the quotes of a string (RFC 9110, section 5.6.4), if it has both. No value that has a meaning here needs an escape
/// sequence.
pub fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// Splits at each separator outside quoted strings.
pub fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c| {
        let escapes = quoted && !escaped && c == '\\';
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = escapes;
        !quoted && c == separator
    })
}

/// Returns the `traceparent` header if it is valid (W3C Trace Context). A repeated header is ignored, because it is unknown
/// which value continues the trace. `tracestate` is ignored: the service makes no outgoing calls within the trace.
pub fn traceparent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACEPARENT);
    let (value, None) = (values.next()?, values.next()) else { return None };
    TraceParent::parse(value.to_str().ok()?)
}

/// Returns the origin of a request, which the middleware stored in its extensions.
pub fn origin(request: &HttpRequest) -> Origin {
    request.extensions().get::<Origin>().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn message_ids_are_quoted_or_bare_uuids() {
        let id = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";
        let check = |values: &[&str], expected: Result<&str, Code>| {
            let read = message_id(&headers(IDEMPOTENCY_KEY, values));
            let read = read.map(|id| id.to_string()).map_err(|error| error.code());
            assert_eq!(read, expected.map(str::to_owned), "{values:?}");
        };
        check(&[id], Ok(id));
        check(&[&format!("\"{id}\"")], Ok(id));
        check(&[&format!(" {} ", id.to_uppercase())], Ok(id));
        check(&[], Err(Code::IdempotencyKeyMissing));
        let forms = [id.replace('-', ""), format!("{{{id}}}"), format!("urn:uuid:{id}")];
        for wrong in forms {
            check(&[&wrong], Err(Code::IdempotencyKeyInvalid));
        }
        for wrong in ["", "\"\"", "17", "\"4f9d0c9e", "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f1z"] {
            check(&[wrong], Err(Code::IdempotencyKeyInvalid));
        }
        check(&[&format!("\"{id}")], Err(Code::IdempotencyKeyInvalid));
        check(&[id, id], Err(Code::IdempotencyKeyInvalid));
    }

    #[test]
    fn the_first_wait_counts_and_invalid_ones_are_ignored() {
        let check = |values: &[&str], expected: Option<u64>| {
            let wait = Wait::of(&headers(PREFER, values));
            assert_eq!(wait.map(|wait| wait.seconds), expected, "{values:?}");
        };
        check(&[], None);
        check(&["wait=5"], Some(5));
        check(&["WAIT = 5"], Some(5));
        check(&["wait=\"5\""], Some(5));
        check(&["respond-async, wait=10; x=y, wait=20"], Some(10));
        check(&["foo=\"a, wait=3\"", "wait=7"], Some(7));
        check(&["foo=\"a\\\", wait=3\", wait=8"], Some(8));
        check(&["wait=31"], Some(30));
        check(&["wait=99999999999999999999999"], Some(30));
        for invalid in ["wait", "wait=", "wait=-1", "wait=1.5", "wait=soon", "wait=0", "waiting=5"] {
            check(&[invalid], None);
        }
    }

    #[test]
    fn only_strict_handling_is_strict() {
        let check = |values: &[&str], expected: Handling| {
            assert_eq!(Handling::of(&headers(PREFER, values)), expected, "{values:?}");
        };
        check(&["handling=strict"], Handling::Strict);
        check(&["wait=5, Handling=\"Strict\""], Handling::Strict);
        check(&["wait=5", "handling=strict"], Handling::Strict);
        for lenient in ["", "handling=lenient", "handling", "handling=lenient, handling=strict", "strict"] {
            check(&[lenient], Handling::Lenient);
        }
    }
}
