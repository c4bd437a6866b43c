//! Properties of every refusal of the API: a client error with a short, printable problem document of RFC 9457 that names
//! the error.

use actix_web::ResponseError as _;
use actix_web::body::MessageBody as _;
use postonce_web::error::ApiError;
use serde_json::Value;

/// Maximum size of a problem document, for any request.
pub const PROBLEM_BYTES_MAX: usize = 128 * 1024;

/// Checks a refusal, and returns the names of its violated fields.
pub fn check(error: &ApiError) -> Vec<String> {
    let response = error.error_response();
    let status = response.status();
    assert!(status.is_client_error(), "{status} for what a client sent: {error}");
    let body = response.into_body().try_into_bytes().expect("a problem is in memory");
    assert!(body.len() <= PROBLEM_BYTES_MAX, "a refusal of {} bytes", body.len());
    let problem: Value = serde_json::from_slice(&body).expect("a problem is JSON");
    let text = |value: &Value, name: &str| {
        let text = value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        assert!(!text.is_empty(), "no {name} in {problem}");
        assert!(!text.contains(char::is_control), "{name} has control characters in {problem}");
        text
    };
    for name in ["type", "title", "detail", "code"] {
        let _present = text(&problem, name);
    }
    let violations = problem.get("violations").and_then(Value::as_array).cloned().unwrap_or_default();
    violations
        .iter()
        .map(|violation| {
            let _present = text(violation, "message");
            text(violation, "field")
        })
        .collect()
}
