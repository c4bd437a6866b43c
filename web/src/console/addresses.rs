//! Addresses of the console: its sections, the templates of its routes, and the addresses made from them.

use actix_web::HttpRequest;
use actix_web::http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::access::authentication::{CONSOLE, is_of_console};
use crate::access::scopes::Scope;

/// Path of the sign-in page.
pub const SIGN_IN: &str = "/console/sign-in";
/// Path to which the form for signing out is sent.
pub const SIGN_OUT: &str = "/console/sign-out";
/// Prefix of the paths of event streams.
pub const STREAMS: &str = "/console/live/";
/// Event stream of the overview.
pub const LIVE_OVERVIEW: &str = "/console/live/overview";
/// Event stream of the gate.
pub const LIVE_GATE: &str = "/console/live/gate";
/// Event stream of the queues.
pub const LIVE_QUEUES: &str = "/console/live/queues";

/// A batch of a partner.
pub const BATCH: Template<2> = Template("/console/batches/{partner_id}/{batch_id}");
/// Download of the results of a batch.
pub const BATCH_RESULTS: Template<2> = Template("/console/batches/{partner_id}/{batch_id}/results");
/// Cancellation of a batch.
pub const BATCH_CANCELLATION: Template<2> = Template("/console/batches/{partner_id}/{batch_id}/cancel");
/// A dead letter.
pub const DEAD_LETTER: Template<1> = Template("/console/dead-letters/{id}");
/// An account of a user.
pub const ACCOUNT: Template<2> = Template("/console/accounts/{user_id}/{account_id}");
/// The transactions of an account with one message id.
pub const TRANSACTION: Template<3> = Template("/console/accounts/{user_id}/{account_id}/{message_id}");
/// A partner.
pub const PARTNER: Template<1> = Template("/console/partners/{partner_id}");
/// API keys of a partner.
pub const PARTNER_KEYS: Template<1> = Template("/console/partners/{partner_id}/keys");
/// An API key of a partner.
pub const PARTNER_KEY: Template<2> = Template("/console/partners/{partner_id}/keys/{key_id}");
/// A static file.
pub const ASSET: Template<1> = Template("/console/assets/{name}");

/// Characters to percent-encode in paths and queries: all but the unreserved ones (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const NEXT_CHARS_MAX: usize = 300;

macro_rules! sections {
    ($($name:ident, $label:literal, $path:literal, $group:literal, [$($scope:ident),+];)+) => {
        /// Section of the console.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Section {
            $(#[doc = concat!("The section \"", $label, "\".")] $name,)+
        }

        impl Section {
            /// All sections, in navigation order.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Returns the visible name.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label),+ }
            }

            /// Returns the path of the section's first page.
            pub const fn path(self) -> &'static str {
                match self { $(Self::$name => $path),+ }
            }

            /// Returns the heading above the section in the navigation.
            pub const fn group(self) -> &'static str {
                match self { $(Self::$name => $group),+ }
            }

            /// Returns the scopes with which the section can be read. One of them suffices.
            pub const fn scopes(self) -> &'static [Scope] {
                match self { $(Self::$name => &[$(Scope::$scope),+]),+ }
            }
        }
    };
}

sections! {
    Overview, "Overview", "/console", "Operations", [Metrics];
    Gate, "Gate", "/console/gate", "Operations", [Metrics];
    Queues, "Queues", "/console/queues", "Operations", [Metrics];
    Batches, "Batches", "/console/batches", "Operations", [Batch, Operate];
    DeadLetters, "Dead letters", "/console/dead-letters", "Operations", [Operate];
    Accounts, "Accounts", "/console/accounts", "Customers", [Read];
    Partners, "Partners", "/console/partners", "Customers", [Partners];
    OrderNumbers, "Order numbers", "/console/order-numbers", "Oversight", [Admin];
    Scrubber, "Scrubber", "/console/scrubber", "Oversight", [Operate];
    Anchors, "Anchors", "/console/anchors", "Oversight", [Admin];
    AuditTrail, "Audit trail", "/console/audit", "Oversight", [Admin];
    Costs, "Costs", "/console/costs", "Oversight", [Operate];
}

impl Section {
    /// Returns the section to which a path belongs, such as the template of a route.
    pub fn of_path(path: &str) -> Self {
        let path = path.replacen(STREAMS, "/console/", 1);
        let found = Self::ALL.iter().rev().find(|section| path.starts_with(section.path()));
        found.copied().unwrap_or(Self::Overview)
    }
}

/// Template of a path in which `N` segments are names in braces.
#[derive(Debug, Clone, Copy)]
pub struct Template<const N: usize>(&'static str);

impl<const N: usize> Template<N> {
    /// Returns the template as the route has it.
    pub const fn route(self) -> &'static str {
        self.0
    }

    /// Returns the address with these values of the names, which are encoded.
    pub fn of(self, values: [&str; N]) -> String {
        let mut values = values.into_iter();
        let segments = self.0.split('/').map(|segment| {
            let value = segment.starts_with('{').then(|| values.next()).flatten();
            value.map_or_else(|| segment.to_owned(), encoded)
        });
        segments.collect::<Vec<_>>().join("/")
    }
}

/// Returns the address of the list of all accounts of a user.
pub fn accounts_of(user_id: &str) -> String {
    format!("{}?user_id={}", Section::Accounts.path(), encoded(user_id))
}

/// Returns the address of the sign-in page, from which the operator returns to the requested page. `has_ended` tells that
/// there was a session, so that the page can say so.
pub fn sign_in_instead_of(request: &HttpRequest, has_ended: bool) -> String {
    let is_page = *request.method() == Method::GET && !is_of_stream(request);
    let next = request.uri().path_and_query().map_or(CONSOLE, |it| it.as_str());
    let next = if is_page && is_page_of_console(next) { next } else { CONSOLE };
    let expired = has_ended.then_some("1");
    with_query(SIGN_IN, &[("expired", expired), ("next", (next != CONSOLE).then_some(next))])
}

/// Returns whether a request is for an event stream.
pub fn is_of_stream(request: &HttpRequest) -> bool {
    request.match_pattern().is_some_and(|route| route.starts_with(STREAMS))
}

/// Encodes a text as one segment of a path or one value of a query.
pub fn encoded(value: &str) -> String {
    utf8_percent_encode(value, RESERVED).to_string()
}

/// Adds parameters to an address, which may have some. Those without a value are left out.
pub fn with_query(address: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, encoded((*value)?))));
    given.fold(address.to_owned(), |address, (name, value)| {
        let separator = if address.contains('?') { '&' } else { '?' };
        format!("{address}{separator}{name}={value}")
    })
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
    }

    #[test]
    fn values_in_addresses_are_encoded() {
        assert_eq!(encoded("a/b c?d=\u{e9}&~"), "a%2Fb%20c%3Fd%3D%C3%A9%26~");
        assert_eq!(BATCH_RESULTS.of(["a/b", "c?d"]), "/console/batches/a%2Fb/c%3Fd/results");
        assert_eq!(TRANSACTION.of(["u", "a", "m&n"]), "/console/accounts/u/a/m%26n");
        assert_eq!(DEAD_LETTER.of(["{id}"]), "/console/dead-letters/%7Bid%7D");
        let parameters = [("a", Some("1 2")), ("b", None), ("c", Some("&"))];
        assert_eq!(with_query("/x", &parameters), "/x?a=1%202&c=%26");
        assert_eq!(with_query("/x?y=z", &parameters), "/x?y=z&a=1%202&c=%26");
    }

    #[test]
    fn paths_differ_and_groups_are_together() {
        let paths: std::collections::BTreeSet<_> = Section::ALL.iter().map(|it| it.path()).collect();
        assert_eq!(paths.len(), Section::ALL.len());
        let groups = Section::ALL.chunk_by(|one, next| one.group() == next.group());
        assert_eq!(groups.count(), 3);
    }
}
