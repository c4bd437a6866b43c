//! The signature base: the bytes that are signed (RFC 9421, section 2.5).

use actix_web::HttpRequest;
use actix_web::http::header::HeaderMap;
use postonce_shared::config::PublicAddress;

use super::{Verifier, invalid};
use crate::error::ApiError;

/// A request as the signer sees it.
pub(super) struct Message<'a> {
    pub(super) method: &'a str,
    pub(super) scheme: String,
    /// Host in lower case, and the port unless it is the default.
    pub(super) authority: String,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    pub(super) headers: &'a HeaderMap,
}

impl<'a> Message<'a> {
    /// Takes the parts of a received request, with the public address of the service.
    pub(super) fn of(request: &'a HttpRequest, verifier: &Verifier) -> Self {
        let uri = request.uri();
        let PublicAddress { scheme, authority } = verifier.address(request);
        let path = if uri.path().is_empty() { "/" } else { uri.path() };
        let (method, query, headers) = (request.method().as_str(), uri.query(), request.headers());
        Self { method, scheme, authority, path, query, headers }
    }

    /// Returns the value of a component. Names that start with `@` are derived components (section 2.2).
    fn value(&self, name: &str) -> Result<String, ApiError> {
        let Self { method, scheme, authority, path, query, headers } = self;
        let target = || query.map_or_else(|| (*path).to_owned(), |query| format!("{path}?{query}"));
        if name.starts_with('@') {
            return Ok(match name {
                "@method" => (*method).to_owned(),
                "@scheme" => scheme.clone(),
                "@authority" => authority.clone(),
                "@path" => (*path).to_owned(),
                "@query" => format!("?{}", query.unwrap_or_default()),
                "@request-target" => target(),
                "@target-uri" => format!("{scheme}://{authority}{}", target()),
                _ => return Err(invalid("A covered component that starts with @ is not supported.")),
            });
        }
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(invalid("The names of covered headers must be in lower case."));
        }
        field_value(headers, name)
            .ok_or_else(|| invalid("A covered header is missing from the request, or is not ASCII."))
    }
}

/// Builds the signature base. `params` is the value of its last line.
pub(super) fn signature_base(
    components: &[String],
    params: &str,
    message: &Message<'_>,
) -> Result<String, ApiError> {
    let mut base = String::new();
    for name in components {
        let value = message.value(name)?;
        base.push_str(&format!("\"{name}\": {value}\n"));
    }
    base.push_str(&format!("\"@signature-params\": {params}"));
    Ok(base)
}

/// Joins all lines of a header into one value (section 2.1). Returns `None` when the header is missing or not ASCII.
pub(super) fn field_value(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines: Option<Vec<&str>> =
        headers.get_all(name).map(|line| line.to_str().ok().map(str::trim)).collect();
    lines.filter(|lines| !lines.is_empty()).map(|lines| lines.join(", "))
}
