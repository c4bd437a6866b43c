//! Addresses of pages.

use actix_web::HttpRequest;
use actix_web::http::Method;

use crate::access::authentication::CONSOLE;

/// The page for signing in.
pub const SIGN_IN: &str = "/console/sign-in";
/// Longest address to return to.
const NEXT_CHARS_MAX: usize = 300;

/// Returns the address of the page for signing in, from which the operator returns to the requested page. `has_ended` tells that
/// there was a session.
pub fn sign_in_instead_of(request: &HttpRequest, has_ended: bool) -> String {
    let is_page = *request.method() == Method::GET && !request.path().starts_with("/console/live/");
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

/// Returns a text as part of a path or a query.
pub fn encoded(value: &str) -> String {
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    value.bytes().fold(String::new(), |text, byte| {
        if keeps(byte) { format!("{text}{}", char::from(byte)) } else { format!("{text}%{byte:02X}") }
    })
}

/// Returns whether an address is a page of the console, and no other site: browsers read `\` as `/`.
pub fn is_page_of_console(next: &str) -> bool {
    let rest = next.strip_prefix(CONSOLE);
    next.len() <= NEXT_CHARS_MAX
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
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
        assert_eq!(encoded("/console/gate?a=b&c"), "/console/gate%3Fa%3Db%26c");
    }
}
