//! The request and the delivery of an instruction, for operators and their tools. No rule depends on them.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use super::time::Timestamp;

/// The id of an HTTP request: chosen by the client, or made by the bank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(Arc<str>);

/// Error: the text is not a valid request id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to {} letters, digits and -._~:/+=@", RequestId::CHARS_MAX)]
pub struct RequestIdError;

impl RequestId {
    /// Maximum length, in characters.
    pub const CHARS_MAX: usize = 64;

    /// Parses an id that log lines and headers can contain: up to 64 letters, digits and `-._~:/+=@`.
    ///
    /// # Errors
    /// [`RequestIdError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, RequestIdError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/+=@".contains(&byte);
        let is_valid = (1..=Self::CHARS_MAX).contains(&text.len()) && text.bytes().all(allowed);
        is_valid.then(|| Self(text.into())).ok_or(RequestIdError)
    }

    /// Returns the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An operation in a trace (W3C Trace Context, header `traceparent`), always in version 00, the only one that is defined.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceParent(Arc<str>);

/// The flag of a trace whose operations are recorded.
const SAMPLED: u8 = 1;
/// The flag of a trace whose id is random (W3C Trace Context Level 2).
const RANDOM: u8 = 2;

impl TraceParent {
    /// Parses `{version}-{trace id}-{span id}-{flags}` in lower-case hexadecimal digits, neither id zero. Version ff is
    /// invalid. A version above 00 may have more fields after another dash. As W3C Trace Context (section 3.2.2,
    /// versioning) demands, they are dropped, only the flag `sampled` is kept, and the trace continues in version 00.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.splitn(5, '-');
        let [version, trace, parent, flags] = [(); 4].map(|()| fields.next().unwrap_or_default());
        let has_more = fields.next().is_some();
        let hex = |part: &str, length: usize| {
            part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let zero = |part: &str| part.bytes().all(|byte| byte == b'0');
        let is_known = version == "00";
        let is_version = hex(version, 2) && version != "ff" && !(is_known && has_more);
        let is_place = hex(trace, 32) && hex(parent, 16) && hex(flags, 2) && !zero(trace) && !zero(parent);
        if !is_version || !is_place {
            return None;
        }
        if is_known {
            return Some(Self(text.into()));
        }
        let sampled = u8::from_str_radix(flags, 16).ok()? & SAMPLED;
        Some(Self(format!("00-{trace}-{parent}-{sampled:02x}").into()))
    }

    /// Begins a trace that is not sampled.
    pub fn begin(trace: Uuid, span: u64) -> Self {
        Self(format!("00-{}-{:016x}-00", trace.simple(), span.max(1)).into())
    }

    /// Returns the position of a child operation. Flags without a meaning are cleared, as the standard requires.
    #[must_use]
    pub fn child(&self, span: u64) -> Self {
        let flags = self.flags() & (SAMPLED | RANDOM);
        Self(format!("00-{}-{:016x}-{flags:02x}", self.trace_id(), span.max(1)).into())
    }

    /// Returns the same position with the flag `sampled` set or cleared.
    #[must_use]
    pub fn with_sampling(&self, is_sampled: bool) -> Self {
        let flags = self.flags() & RANDOM | if is_sampled { SAMPLED } else { 0 };
        Self(format!("00-{}-{}-{flags:02x}", self.trace_id(), self.span_id()).into())
    }

    /// Returns the value of the header.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id of the trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        self.part(1)
    }

    /// Returns the id of the operation: 16 hexadecimal digits.
    pub fn span_id(&self) -> &str {
        self.part(2)
    }

    /// Returns whether the operations of the trace are recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags() & SAMPLED != 0
    }

    fn flags(&self) -> u8 {
        u8::from_str_radix(self.part(3), 16).unwrap_or_default()
    }

    fn part(&self, index: usize) -> &str {
        self.0.split('-').nth(index).unwrap_or_default()
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Known facts about the request that contained an instruction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The id of the request, stored with the transaction; `None` for items of batches and direct producers.
    pub request_id: Option<RequestId>,
    /// The trace of the request, if it has one.
    pub traceparent: Option<TraceParent>,
}

impl Origin {
    /// Returns the id of the request.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_ref().map(RequestId::as_str)
    }

    /// Returns the id of the trace. Without a `traceparent`, a request id made by the bank is also the id of the trace.
    pub fn trace_id(&self) -> Option<&str> {
        let is_trace =
            |id: &&str| id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let of_request = || self.request_id().filter(is_trace);
        self.traceparent.as_ref().map(TraceParent::trace_id).or_else(of_request)
    }
}

/// The times at which the queue delivered accepted work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// The time when the message was put on the queue, by the clock of the queue.
    pub sent_at: Timestamp,
    /// The time when the worker that decided the work received the message.
    pub received_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_requests_are_short_and_printable() {
        for valid in
            ["1", "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10", "Root=1-67891233:abc/+@~._", &"x".repeat(64)]
        {
            assert_eq!(RequestId::parse(valid).unwrap().as_str(), valid);
        }
        for wrong in ["", "a b", "a\"b", "a{b}", "\u{fc}", &"x".repeat(65)] {
            assert_eq!(RequestId::parse(wrong), Err(RequestIdError), "{wrong}");
        }
    }

    #[test]
    fn sampling_changes_one_flag() {
        let sampled = TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03").unwrap();
        assert!(sampled.is_sampled() && sampled.child(7).is_sampled());
        let not = sampled.with_sampling(false);
        assert_eq!(not.as_str(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02");
        assert!(!not.is_sampled());
        assert_eq!(not.with_sampling(true), sampled);
        let unknown = TraceParent::parse(&sampled.as_str().replace("-03", "-ff")).unwrap();
        assert!(unknown.child(7).as_str().ends_with("-03"), "flags without a meaning are cleared");
        assert_eq!((sampled.span_id(), sampled.child(7).span_id()), ("00f067aa0ba902b7", "0000000000000007"));
    }

    #[test]
    fn only_valid_traces_are_taken() {
        let sound = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceParent::parse(sound).unwrap().trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let of_version = |version: &str| sound.replacen("00", version, 1);
        let trace_of = |digits: &str| sound.replace("4bf92f3577b34da6a3ce929d0e0e4736", digits);
        let span_of = |digits: &str| sound.replace("00f067aa0ba902b7", digits);
        let wrong = [
            String::new(),
            "00".into(),
            sound.to_uppercase(),
            of_version("ff"),
            of_version("0"),
            of_version("000"),
            of_version("0g"),
            of_version("0A"),
            of_version("FF"),
            trace_of(&"0".repeat(32)),
            trace_of(&"4".repeat(31)),
            trace_of("4BF92F3577B34DA6A3CE929D0E0E4736"),
            trace_of("4bf92f3577b34da6a3ce929d0e0e473\u{e4}"),
            span_of(&"0".repeat(16)),
            span_of("00f067aa0ba902b"),
            span_of("00F067AA0BA902B7"),
            sound.replace("-01", ""),
            sound.replace("-01", "-1"),
            sound.replace("-01", "-0x"),
            format!("{sound}-more"),
            format!("{sound}-"),
            format!("{sound},{sound}"),
            format!(" {sound}"),
        ];
        for wrong in wrong {
            assert_eq!(TraceParent::parse(&wrong), None, "{wrong}");
        }
    }

    /// The rules for versions that are not known (W3C Trace Context, section 3.2.2).
    #[test]
    fn a_trace_of_a_later_version_is_continued_in_this_one() {
        let sound = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        let later = |version: &str, rest: &str| sound.replacen("00", version, 1) + rest;
        for (version, rest, flags) in [
            ("01", "-01", "-01"),
            ("01", "-00", "-00"),
            ("0a", "-ff", "-01"),
            ("cc", "-fe-", "-00"),
            ("fe", "-01-what-the-future-will-be-like", "-01"),
            ("01", "-01-\u{fc}", "-01"),
        ] {
            let sent = later(version, rest);
            let taken = TraceParent::parse(&sent).unwrap_or_else(|| panic!("{sent} is continued"));
            assert_eq!(taken.as_str(), format!("{sound}{flags}"), "{sent}");
            assert_eq!(TraceParent::parse(taken.as_str()), Some(taken));
        }
        for (version, rest) in [
            ("ff", "-01"),
            ("01", ""),
            ("01", "-"),
            ("01", "-1"),
            ("01", "-0101"),
            ("01", "-01."),
            ("01", "-01,"),
        ] {
            let sent = later(version, rest);
            assert_eq!(TraceParent::parse(&sent), None, "{sent}");
        }
    }
}
