//! The headers of requests to a collector. They are secret, and can be replaced while the exporter runs.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use percent_encoding::percent_decode_str;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::text::misplaced_percent;

/// The headers in use. A clone is the same value. `Debug` does not show them.
#[derive(Clone)]
pub struct ExportHeaders(Arc<RwLock<HeaderMap>>);

impl ExportHeaders {
    /// Parses headers in the format of `OTEL_EXPORTER_OTLP_HEADERS`: `name=value`, separated by commas.
    ///
    /// # Errors
    /// Returns the violated rule, as the end of a sentence. It contains no part of the headers.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const ALLOWED: &str = "must be name=value, separated by commas, each name once, with percent-encoded values (; is \
                               %3B), such as authorization=Bearer%20KEY";
        let header = |pair: &str| {
            let (name, value) = pair.split_once('=')?;
            if value.contains(';') || misplaced_percent(pair).is_some() {
                return None;
            }
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            let mut value = HeaderValue::from_str(&value).ok().filter(|value| !value.is_empty())?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value))
        };
        let mut headers = HeaderMap::new();
        for pair in text.split(',') {
            let (name, value) = header(pair).ok_or(ALLOWED)?;
            if headers.insert(name, value).is_some() {
                return Err(ALLOWED);
            }
        }
        Ok(Self(Arc::new(RwLock::new(headers))))
    }

    /// Replaces the headers of all later requests.
    pub fn replace(&self, with: &Self) {
        let headers = with.0.read().clone();
        *self.0.write() = headers;
    }

    /// Adds the headers to a request, replacing headers with the same names.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        headers.extend(self.0.read().clone());
    }
}

impl fmt::Debug for ExportHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportHeaders").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(headers: &ExportHeaders) -> Vec<(String, String)> {
        let mut all = HeaderMap::new();
        all.insert("authorization", HeaderValue::from_static("before"));
        headers.add_to(&mut all);
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.to_string(), value.to_str().unwrap().to_owned())
        };
        all.iter().map(text).collect()
    }

    fn expected(headers: &[(&str, &str)]) -> Vec<(String, String)> {
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn headers_are_parsed_replaced_and_not_shown() {
        let headers = ExportHeaders::parse("Authorization=Bearer%20first, x-tenant=a=b").unwrap();
        assert_eq!(sent(&headers), expected(&[("authorization", "Bearer first"), ("x-tenant", "a=b")]));
        assert_eq!(format!("{headers:?}"), "ExportHeaders { .. }");
        headers.clone().replace(&ExportHeaders::parse("authorization=second").unwrap());
        assert_eq!(sent(&headers), expected(&[("authorization", "second")]));
        for wrong in [
            "",
            "name",
            "a=b,",
            "=value",
            "a b=c",
            "a=%0d",
            "a=",
            "a=%ff",
            "a=Bearer%2",
            "a=%zz",
            "a=%+1",
            "k%zz=1",
            "a=1,A=2",
            "a=Bearer%20K;x-tenant=7",
        ] {
            let rule = ExportHeaders::parse(wrong).unwrap_err();
            assert!(rule.starts_with("must be "), "{wrong:?}");
        }
    }
}
