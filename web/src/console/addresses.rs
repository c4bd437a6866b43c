//! Addresses of console pages.

use actix_web::HttpRequest;
use actix_web::http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::access::authentication::{CONSOLE, is_of_console};

/// Path of the sign-in page.
pub const SIGN_IN: &str = "/console/sign-in";
/// Prefix of the paths of event streams.
pub const STREAMS: &str = "/console/live/";
/// Characters to percent-encode in paths and queries: all but the unreserved ones (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const NEXT_CHARS_MAX: usize = 300;

/// Returns the address of the sign-in page, from which the operator returns to the requested page. `has_ended` tells that
/// there was a session, so that the page can say so.
pub fn sign_in_instead_of(request: &HttpRequest, has_ended: bool) -> String {
    let is_page = *request.method() == Method::GET && !is_of_stream(request);
    let next = request.uri().path_and_query().map_or(CONSOLE, |it| it.as_str());
    let next = if is_page && is_page_of_console(next) { next } else { CONSOLE };
    let query = [("expired", has_ended.then_some("1")), ("next", (next != CONSOLE).then_some(next))];
    let query = query.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)));
    let query = query.fold(String::new(), |query, (name, value)| {
        let separator = if query.is_empty() { '?' } else { '&' };
        format!("{query}{separator}{name}={}", encoded(value))
    });
    format!("{SIGN_IN}{query}")
}

/// Returns whether a request is for an event stream.
pub fn is_of_stream(request: &HttpRequest) -> bool {
    request.match_pattern().is_some_and(|route| route.starts_with(STREAMS))
}

/// Encodes a text as one segment of a path or one value of a query.
pub fn encoded(value: &str) -> String {
    utf8_percent_encode(value, RESERVED).to_string()
}

/// Returns the query parameter that continues a listing, to follow other parameters; empty for the first page.
pub fn cursor_parameter(cursor: Option<&str>) -> String {
    cursor.map_or_else(String::new, |cursor| format!("&cursor={}", encoded(cursor)))
}

/// Returns whether an address leads to a page of the console and no other site. Browsers read a backslash as `/`.
pub fn is_page_of_console(next: &str) -> bool {
    let path = next.split_once('?').map_or(next, |(path, _)| path);
    next.len() <= NEXT_CHARS_MAX
        && is_of_console(path)
        && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_console_are_returned_to() {
        for page in ["/console", "/console/gate", "/console?x=1", "/console/batches?cursor=a%20b"] {
            assert!(is_page_of_console(page), "{page}");
        }
        for other in [
            "",
            "/",
            "//evil.example",
            "/consoles",
            "/console\\@evil.example",
            "https://evil.example/console",
        ] {
            assert!(!is_page_of_console(other), "{other}");
        }
        assert_eq!(encoded("a/b c?d=\u{e9}&~"), "a%2Fb%20c%3Fd%3D%C3%A9%26~");
    }
}
