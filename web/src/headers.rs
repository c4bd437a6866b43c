//! The headers that mean something to a transaction: its id, how long the client waits, its trace.

use std::time::Duration;

use actix_web::http::header::HeaderMap;
use postonce_shared::domain::ids::{MessageId, parse_hyphenated};

use crate::error::{ApiError, Code};

/// The header with the partner's id of a request.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header that says that the answer is of an earlier request.
pub const IDEMPOTENT_REPLAYED: &str = "idempotent-replayed";
/// The header with the client's wishes (RFC 7240).
pub const PREFER: &str = "prefer";
/// The header that says which wish was granted.
pub const PREFERENCE_APPLIED: &str = "preference-applied";
/// W3C Trace Context.
pub const TRACEPARENT: &str = "traceparent";
/// Longest wait that is granted.
pub const WAIT_S_MAX: u64 = 30;

/// The id in `Idempotency-Key`: a UUID, bare or as a string of RFC 8941.
///
/// # Errors
/// [`ApiError`] of status 400 when it is missing, stands twice or is not a UUID.
pub fn message_id(headers: &HeaderMap) -> Result<MessageId, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY);
    let Some(value) = values.next() else {
        let detail =
            "Send an id of your own, a UUID, in the header Idempotency-Key; repeat it when you retry.";
        return Err(ApiError::new(Code::IdempotencyKeyMissing, detail));
    };
    let invalid = |detail: &str| ApiError::new(Code::IdempotencyKeyInvalid, detail);
    if values.next().is_some() {
        return Err(invalid("The header Idempotency-Key stands more than once."));
    }
    let text = value.to_str().unwrap_or_default().trim();
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    parse_hyphenated(bare).map_err(|_| {
        invalid("The Idempotency-Key must be a UUID, such as \"4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10\".")
    })
}

/// A wait that the client prefers to coming back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    seconds: u64,
}

impl Wait {
    /// The wait in `Prefer: wait=N`; `None` when there is none, it is zero, or it makes no sense: a
    /// preference that cannot be understood is ignored (RFC 7240). Longer ones are shortened.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let lines = headers.get_all(PREFER).filter_map(|value| value.to_str().ok());
        // Of several, the first counts.
        let wait = lines.flat_map(preferences).find(|(name, _)| name.eq_ignore_ascii_case("wait"));
        let digits = wait.map(|(_, value)| value).filter(|value| !value.is_empty())?;
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)?;
        // Only too many digits are left as a reason to fail.
        let seconds = number.parse().unwrap_or(WAIT_S_MAX).min(WAIT_S_MAX);
        (seconds > 0).then_some(Self { seconds })
    }

    /// The wait of so many seconds in a document: a decimal number up to [`WAIT_S_MAX`]. `None` for anything
    /// else, and no wait for zero.
    pub fn parse(text: &str) -> Option<Option<Self>> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit()).then_some(text)?;
        let seconds = digits.parse().ok().filter(|seconds| *seconds <= WAIT_S_MAX)?;
        Some((seconds > 0).then_some(Self { seconds }))
    }

    /// How long.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// The value of `Preference-Applied`.
    pub fn applied(self) -> String {
        format!("wait={}", self.seconds)
    }
}

/// The preferences of one header line: name and value, parameters left out.
fn preferences(line: &str) -> impl Iterator<Item = (&str, &str)> {
    split_unquoted(line, ',').map(|preference| {
        let first = split_unquoted(preference, ';').next().unwrap_or_default();
        let (name, value) = first.split_once('=').unwrap_or((first, ""));
        (name.trim(), value.trim().trim_matches('"'))
    })
}

/// Splits at a separator that does not stand in a quoted string.
fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
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

/// The trace of the request, if its header is sound (W3C Trace Context, version 00).
pub fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(TRACEPARENT)?.to_str().ok()?;
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, parent, flags] = parts.as_slice() else { return None };
    let hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    let sound = *version == "00" && hex(trace, 32) && hex(parent, 16) && hex(flags, 2);
    (sound && !zero(trace) && !zero(parent)).then(|| text.to_owned())
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
    fn the_first_wait_counts_and_nonsense_is_ignored() {
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
        for nonsense in ["wait", "wait=", "wait=-1", "wait=1.5", "wait=soon", "wait=0", "waiting=5"] {
            check(&[nonsense], None);
        }
    }

    #[test]
    fn only_sound_traces_are_passed_on() {
        let sound = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let check = |value: &str, expected: bool| {
            assert_eq!(traceparent(&headers(TRACEPARENT, &[value])).is_some(), expected, "{value}");
        };
        check(sound, true);
        check(&sound.to_uppercase(), false);
        check(&sound.replace("00-4b", "ff-4b"), false);
        check("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false);
        check("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false);
        check("", false);
        check(&format!("{sound}-more"), false);
    }
}
