//! The names of query parameters: each operation accepts those that the OpenAPI document lists for it. A misspelled one
//! would otherwise be ignored, and the answer would be another than the one that was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::web::Query;
use postonce_schemas::json::Violation;
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
    let sent = Query::<Vec<(String, String)>>::from_query(request.query_string())
        .map_err(|error| ApiError::new(Code::QueryInvalid, format!("The query cannot be read: {error}.")))?;
    let unknown: BTreeSet<String> =
        sent.into_inner().into_iter().map(|(name, _)| name).filter(|name| !known.contains(name)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let allowed = if known.is_empty() {
        "this operation has no query parameters".to_owned()
    } else {
        format!("this operation has {}", known.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    };
    let message = format!("is unknown; {allowed}");
    let violations = unknown.into_iter().map(|field| Violation { field, message: message.clone() });
    Err(ApiError::violations(Code::QueryInvalid, violations.collect()))
}
