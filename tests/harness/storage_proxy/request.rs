//! A whole request to the storage, and what it asks for.

use hyper::header::{HeaderMap, IF_MATCH};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, body::Bytes};

use super::storage_fault::RequestTraits;

/// A service of Azure Storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Rows.
    Table,
    /// Messages.
    Queue,
    /// Large bodies.
    Blob,
}

impl Service {
    /// A name for summaries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
            Self::Blob => "blob",
        }
    }
}

/// A whole request.
#[derive(Debug, Clone)]
pub(crate) struct ProxiedRequest {
    pub(crate) method: Method,
    pub(crate) target: PathAndQuery,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ProxiedRequest {
    /// Whether it is an entity group transaction.
    pub(crate) fn is_batch(&self) -> bool {
        self.target.path().ends_with("/$batch")
    }

    /// A header; `None` if it is absent or not text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// A parameter of the query, decoded.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        parameters(&self.target).find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// The properties that decide which faults apply.
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

/// The parameters of a query, decoded.
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
