//! A complete request to the storage, and its properties.

use hyper::header::{HeaderMap, IF_MATCH};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, body::Bytes};

use super::storage_fault::RequestTraits;

/// A service of Azure Storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// The table service, for rows.
    Table,
    /// The queue service, for messages.
    Queue,
    /// The blob service, for large bodies.
    Blob,
}

impl Service {
    /// Returns the name for summaries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
            Self::Blob => "blob",
        }
    }
}

/// A complete request.
#[derive(Debug, Clone)]
pub(crate) struct ProxiedRequest {
    pub(crate) method: Method,
    pub(crate) target: PathAndQuery,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ProxiedRequest {
    /// Returns whether the request is an entity group transaction.
    pub(crate) fn is_batch(&self) -> bool {
        self.target.path().ends_with("/$batch")
    }

    /// Returns a header, or `None` if it is absent or not text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns a decoded parameter of the query.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        parameters(&self.target).find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// Returns the properties that determine which faults apply.
    pub(super) fn traits(&self) -> RequestTraits {
        let conditional = if self.is_batch() {
            let condition = b"If-Match:";
            self.body.windows(condition.len()).any(|bytes| bytes.eq_ignore_ascii_case(condition))
        } else {
            self.headers.get(IF_MATCH).is_some_and(|condition| condition != "*")
        };
        RequestTraits { writes: self.method != Method::GET, conditional }
    }
}

/// Returns the decoded parameters of a query.
pub(crate) fn parameters(target: &PathAndQuery) -> impl Iterator<Item = (String, String)> {
    let query = target.query().unwrap_or_default();
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decoded(&name.replace('+', " ")), decoded(&value.replace('+', " ")))
    })
}

/// Decodes percent-encoding.
pub(crate) fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let escaped = part.split_at_checked(2);
        match escaped.and_then(|(digits, rest)| Some((hex::decode(digits).ok()?, rest))) {
            Some((byte, rest)) => bytes.extend(byte.iter().chain(rest.as_bytes())),
            None => bytes.extend(b"%".iter().chain(part.as_bytes())),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
