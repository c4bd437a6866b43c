//! Paths, and query parameters: their names, and how their values are read. Each operation accepts the names that the OpenAPI
//! document lists for it. A misspelled one would otherwise be ignored, and the answer would be another than the one that was asked
//! for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::LazyLock;

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::web::Query;
use percent_encoding::percent_decode_str;
use postonce_schemas::json::Violation;
use postonce_shared::text::misplaced_percent;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{ApiError, Code};

/// Names of query parameters, by path template and lower-case method.
type Names = BTreeMap<(String, String), BTreeSet<String>>;

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let document: Value = serde_json::from_str(postonce_schemas::OPENAPI_JSON)
        .expect("a test checks that the document is JSON");
    documented(&document)
});

fn documented(document: &Value) -> Names {
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    let operations = paths.flat_map(|(path, item)| {
        item.as_object().into_iter().flatten().map(move |(method, operation)| (path, method, operation))
    });
    let names = |operation: &Value| -> BTreeSet<String> {
        let parameters = operation.get("parameters").and_then(Value::as_array).into_iter().flatten();
        let of_query = parameters.filter(|it| it.get("in").and_then(Value::as_str) == Some("query"));
        of_query.filter_map(|it| it.get("name")?.as_str()).map(ToOwned::to_owned).collect()
    };
    operations.map(|(path, method, operation)| ((path.clone(), method.clone()), names(operation))).collect()
}

/// Returns the path of a request as the router compares it, without needless percent-encoding, so that the rules about a path are
/// those of its route. The parts of the path of a signature and of a log line are as they were sent.
pub fn path(request: &HttpRequest) -> &str {
    request.match_info().as_str()
}

/// Refuses query parameters that the operation does not have. Routes outside of the OpenAPI document accept all.
///
/// # Errors
/// [`ApiError`] with status 400 and each unknown or repeated name.
pub fn refuse_unknown(request: &HttpRequest) -> Result<(), ApiError> {
    if request.query_string().is_empty() {
        return Ok(());
    }
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let route = request.match_pattern().unwrap_or_default();
    let Some(known) = NAMES.get(&(route, method.as_str().to_ascii_lowercase())) else { return Ok(()) };
    let sent: Vec<(String, String)> = texts(request)?;
    let (mut once, mut unknown, mut repeated) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (name, _) in &sent {
        if !known.contains(name) {
            unknown.insert(name);
        } else if !once.insert(name) {
            repeated.insert(name);
        }
    }
    let allowed = if known.is_empty() {
        "this operation has no query parameters".to_owned()
    } else {
        format!("this operation has {}", known.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    };
    let mut violations = Violations::default();
    unknown.into_iter().for_each(|name| violations.refuse(name, format!("is unknown; {allowed}")));
    repeated.into_iter().for_each(|name| violations.refuse(name, "must not occur more than once"));
    violations.finish(())
}

/// Deserializes the query parameters as texts, for example into a struct with one field per parameter.
///
/// # Errors
/// [`ApiError`] with status 400 when the query is malformed, or a parameter occurs twice.
pub fn texts<T: DeserializeOwned>(request: &HttpRequest) -> Result<T, ApiError> {
    let unreadable = |reason: &dyn Display| {
        ApiError::new(Code::QueryInvalid, format!("The query cannot be read: {reason}."))
    };
    check_encoding(request.query_string()).map_err(|reason| unreadable(&reason))?;
    let texts = Query::<T>::from_query(request.query_string());
    texts.map(Query::into_inner).map_err(|error| unreadable(&error))
}

/// Checks the percent-encoding of a query (RFC 3986, section 2.1). The decoder accepts a percent sign without two digits
/// as a literal, and replaces bytes that are not UTF-8.
fn check_encoding(query: &str) -> Result<(), String> {
    if let Some(at) = misplaced_percent(query) {
        let column = at.saturating_add(1);
        return Err(format!("the % at character {column} must be followed by two hexadecimal digits"));
    }
    let decoded = percent_decode_str(query).decode_utf8();
    decoded.map(drop).map_err(|_| "its percent-encoded bytes must be UTF-8".to_owned())
}

/// Violations found in query parameters.
#[derive(Debug, Default)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// Adds a violation.
    pub fn refuse(&mut self, name: &str, rule: impl Into<String>) {
        self.0.push(Violation { field: name.to_owned(), message: rule.into() });
    }

    /// Parses an optional parameter. If the text breaks the rule, adds a violation and returns `None`.
    pub fn parse<T>(
        &mut self,
        name: &str,
        text: Option<String>,
        rule: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = text?;
        let value = parse(&text);
        if value.is_none() {
            self.refuse(name, rule);
        }
        value
    }

    /// Returns the value if no violation was added.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 and every violation.
    pub fn finish<T>(self, value: T) -> Result<T, ApiError> {
        if self.0.is_empty() { Ok(value) } else { Err(ApiError::violations(Code::QueryInvalid, self.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_that_of_its_route() {
        for (sent, expected) in [
            ("/v1/admin/gate", "/v1/admin/gate"),
            ("/v1/%61dmin/gate?a=%62", "/v1/admin/gate"),
            ("/soap/UserAccountServic%65", "/soap/UserAccountService"),
            ("/v1/admin%2Fgate", "/v1/admin%2Fgate"),
        ] {
            let request = actix_web::test::TestRequest::with_uri(sent).to_http_request();
            assert_eq!(path(&request), expected, "{sent}");
        }
    }

    #[test]
    fn percent_signs_are_followed_by_two_digits_and_the_text_is_utf_8() {
        for query in ["", "a=b", "reference=100%25", "reference=Gr%C3%BC%c3%9fe+%26&b=%2B", "a=%E2%82%ac"] {
            assert_eq!(check_encoding(query), Ok(()), "{query}");
        }
        let check = |query: &str, expected: &str| {
            let refused = check_encoding(query).expect_err(query);
            assert!(refused.contains(expected), "{query}: {refused}");
        };
        check("reference=100%", "the % at character 14");
        check("reference=100%&a=b", "the % at character 14");
        check("a=%2", "the % at character 3");
        check("a=%25&b=%zz", "the % at character 9");
        check("a=%+1", "the % at character 3");
        check("a=%ff", "must be UTF-8");
        check("a=%C3&b=%BC", "must be UTF-8");
    }
}
