//! Query parameters: their names, and how their values are read. Each operation accepts the names that the OpenAPI document
//! lists for it. A misspelled one would otherwise be ignored, and the answer would be another than the one that was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::web::Query;
use postonce_schemas::json::Violation;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{ApiError, Code};

/// The names by the template of the path and the method in lower case.
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

/// Refuses query parameters that the operation does not have. Routes outside of the OpenAPI document accept all.
///
/// # Errors
/// [`ApiError`] with status 400 and each unknown name.
pub fn refuse_unknown(request: &HttpRequest) -> Result<(), ApiError> {
    if request.query_string().is_empty() {
        return Ok(());
    }
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let route = request.match_pattern().unwrap_or_default();
    let Some(known) = NAMES.get(&(route, method.as_str().to_ascii_lowercase())) else { return Ok(()) };
    let sent: Vec<(String, String)> = texts(request)?;
    let unknown: BTreeSet<String> =
        sent.into_iter().map(|(name, _)| name).filter(|name| !known.contains(name)).collect();
    let allowed = if known.is_empty() {
        "this operation has no query parameters".to_owned()
    } else {
        format!("this operation has {}", known.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    };
    let mut violations = Violations::default();
    unknown.iter().for_each(|name| violations.refuse(name, format!("is unknown; {allowed}")));
    violations.finish(())
}

/// Reads the texts of the query parameters, for example into a struct with a member for each.
///
/// # Errors
/// [`ApiError`] with status 400 when the query is malformed, or a parameter occurs twice.
pub fn texts<T: DeserializeOwned>(request: &HttpRequest) -> Result<T, ApiError> {
    let texts = Query::<T>::from_query(request.query_string());
    texts
        .map(Query::into_inner)
        .map_err(|error| ApiError::new(Code::QueryInvalid, format!("The query cannot be read: {error}.")))
}

/// The violations that were found in query parameters.
#[derive(Debug, Default)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// Adds a violation.
    pub fn refuse(&mut self, name: &str, rule: impl Into<String>) {
        self.0.push(Violation { field: name.to_owned(), message: rule.into() });
    }

    /// Parses a parameter that may be absent. Adds a violation if it breaks the rule, and returns `None` then.
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

    /// Returns the value if there are no violations.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 and every violation.
    pub fn finish<T>(self, value: T) -> Result<T, ApiError> {
        if self.0.is_empty() { Ok(value) } else { Err(ApiError::violations(Code::QueryInvalid, self.0)) }
    }
}
