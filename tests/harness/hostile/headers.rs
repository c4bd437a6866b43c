//! The headers that the API uses: idempotency key, wait, trace, API key, media type.

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use postonce_web::access::authentication::api_key;
use postonce_web::api::negotiate::body_format;
use postonce_web::headers::{
    IDEMPOTENCY_KEY, PREFER, TRACEPARENT, WAIT_S_MAX, Wait, message_id, traceparent,
};

use super::refusal;

/// Parses any bytes as the header lines of a request.
pub fn check(input: &[u8]) {
    let headers = parse(input);
    match message_id(&headers) {
        Ok(id) => {
            assert_eq!(headers.get_all(IDEMPOTENCY_KEY).count(), 1, "two ids must be refused");
            for text in [id.to_string(), format!("\"{id}\"")] {
                assert_eq!(message_id(&one(IDEMPOTENCY_KEY, &text)).ok(), Some(id), "{text}");
            }
        }
        Err(error) => drop(refusal::check(&error)),
    }
    if let Some(wait) = Wait::of(&headers) {
        let seconds = wait.duration().as_secs();
        assert!((1..=WAIT_S_MAX).contains(&seconds), "a wait of {seconds} s");
        assert_eq!(Wait::of(&one(PREFER, &wait.applied())), Some(wait));
    }
    if let Some(trace) = traceparent(&headers) {
        assert_eq!(trace.as_str().len(), 55, "{trace}");
        assert_eq!(traceparent(&one(TRACEPARENT, trace.as_str())), Some(trace));
    }
    match api_key(&headers) {
        Ok(key) => assert!(!key.is_empty() && key.trim() == key, "{key:?}"),
        Err(error) => drop(refusal::check(&error)),
    }
    if let Err(error) = body_format(&headers, None) {
        drop(refusal::check(&error));
    }
}

/// Parses lines of name, colon and value. Lines that are not valid in HTTP are skipped.
fn parse(input: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

fn one(name: &'static str, value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(value).expect("a parsed value is a valid header");
    drop(headers.insert(HeaderName::from_static(name), value));
    headers
}
