//! The address of the client of a request. Behind a trusted proxy it is the one that the proxy names in the headers that it writes;
//! all other headers are ignored, also from a proxy, which passes them on, because a client can send any address.

use std::net::{IpAddr, SocketAddr};

use actix_web::HttpRequest;
use actix_web::http::header::{FORWARDED, HeaderName, X_FORWARDED_FOR, X_FORWARDED_PROTO};
use actix_web::web::Data;
use postonce_shared::config::{ProxyHeaders, TrustedProxies};

/// Returns the address of the client; `None` if the connection has none.
///
/// The addresses that proxies added are read from the last one on: the first one that is not itself a trusted proxy is the
/// client. If a trusted proxy names no readable address, the client is the proxy.
pub fn client_address(request: &HttpRequest) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip().to_canonical();
    let Some(proxies) = proxies_of(request) else { return Some(peer) };
    let mut client = peer;
    for named in named_addresses(request, proxies.headers()).into_iter().rev() {
        let Some(named) = named else { break };
        client = named;
        if !proxies.contain(named) {
            break;
        }
    }
    Some(client)
}

/// Returns whether the request comes from a trusted proxy.
pub fn is_of_trusted_proxy(request: &HttpRequest) -> bool {
    proxies_of(request).is_some()
}

/// Returns whether a trusted proxy says that its client uses TLS.
pub fn client_uses_tls(request: &HttpRequest) -> bool {
    let last = |name: &HeaderName| elements(request, name).pop();
    let scheme = proxies_of(request).and_then(|proxies| match proxies.headers() {
        ProxyHeaders::XForwarded => last(&X_FORWARDED_PROTO),
        ProxyHeaders::Forwarded => parameter(&last(&FORWARDED)?, "proto"),
    });
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
}

/// Returns the trusted proxies, if the peer of the connection is one of them.
fn proxies_of(request: &HttpRequest) -> Option<&TrustedProxies> {
    let peer = request.peer_addr()?.ip();
    let proxies = request.app_data::<Data<TrustedProxies>>()?;
    proxies.contain(peer).then_some(&***proxies)
}

/// Returns the addresses in the order of the proxies; `None` for one that is hidden or cannot be read.
fn named_addresses(request: &HttpRequest, headers: ProxyHeaders) -> Vec<Option<IpAddr>> {
    match headers {
        ProxyHeaders::XForwarded => {
            elements(request, &X_FORWARDED_FOR).iter().map(|element| address(element)).collect()
        }
        ProxyHeaders::Forwarded => {
            let forwarded = elements(request, &FORWARDED);
            forwarded.iter().map(|element| address(&parameter(element, "for")?)).collect()
        }
    }
}

/// Returns the elements of all headers with a name. Bytes of a client that are not text make only its own element unreadable, not the
/// elements that proxies added after it.
fn elements(request: &HttpRequest, name: &HeaderName) -> Vec<String> {
    let lines = request.headers().get_all(name).map(|line| String::from_utf8_lossy(line.as_bytes()));
    lines
        .flat_map(|line| line.split(',').map(|element| element.trim().to_owned()).collect::<Vec<_>>())
        .collect()
}

/// Returns a parameter of an element of `Forwarded`.
fn parameter(element: &str, name: &str) -> Option<String> {
    let mut parameters = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = parameters.find(|(of, _)| of.trim().eq_ignore_ascii_case(name))?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// Parses an address, with or without a port; one of IPv6 may stand in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = || text.trim_start_matches('[').trim_end_matches(']').parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    bare().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;
    use actix_web::test::TestRequest;

    use super::*;

    const PROXY: &str = "192.0.2.1:4711";

    fn client(peer: &str, kind: ProxyHeaders, headers: &[(HeaderName, &[u8])]) -> String {
        let proxies = TrustedProxies::parse("192.0.2.0/28, 2001:db8::/64").unwrap().with_headers(kind);
        let request = TestRequest::get().app_data(Data::new(proxies)).peer_addr(peer.parse().unwrap());
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.append_header((name.clone(), HeaderValue::from_bytes(value).unwrap()))
        });
        client_address(&request.to_http_request()).unwrap().to_string()
    }

    #[test]
    fn only_a_trusted_proxy_names_the_client() {
        let check = |peer, (kind, name, value): (ProxyHeaders, HeaderName, &str), expected| {
            let named = client(peer, kind, &[(name.clone(), value.as_bytes())]);
            assert_eq!(named, expected, "{peer} {name} {value}");
        };
        let forwarded = |value| (ProxyHeaders::Forwarded, FORWARDED, value);
        let x_forwarded = |value| (ProxyHeaders::XForwarded, X_FORWARDED_FOR, value);
        check("198.51.100.9:1", forwarded("for=203.0.113.7"), "198.51.100.9");
        check("198.51.100.9:1", x_forwarded("203.0.113.7"), "198.51.100.9");
        check(PROXY, x_forwarded(""), "192.0.2.1");
        check(PROXY, forwarded("for=203.0.113.7"), "203.0.113.7");
        check(PROXY, forwarded("proto=https; For=\"203.0.113.7:8080\";by=x"), "203.0.113.7");
        check(PROXY, forwarded("for=\"[2001:db8:1::7]:8080\""), "2001:db8:1::7");
        check(PROXY, forwarded("for=\"[2001:db8:1::7]\""), "2001:db8:1::7");
        check("[2001:db8::5]:1", x_forwarded("203.0.113.7"), "203.0.113.7");
        check("[::ffff:192.0.2.1]:1", x_forwarded("203.0.113.7:99"), "203.0.113.7");
        check(PROXY, x_forwarded("2001:db8:1::7"), "2001:db8:1::7");
    }

    #[test]
    fn an_address_that_the_client_made_up_is_not_used() {
        let check = |kind, headers: &[(HeaderName, &[u8])], expected| {
            assert_eq!(client(PROXY, kind, headers), expected, "{headers:?}");
        };
        let x_forwarded = |headers: &[&[u8]], expected| {
            let headers: Vec<_> = headers.iter().map(|value| (X_FORWARDED_FOR, *value)).collect();
            check(ProxyHeaders::XForwarded, &headers, expected);
        };
        let forwarded = |value: &[u8], expected| {
            check(ProxyHeaders::Forwarded, &[(FORWARDED, value)], expected);
        };
        // The proxy appends what it sees; what stands before it is from the client.
        x_forwarded(&[b"10.0.0.1, 203.0.113.7"], "203.0.113.7");
        x_forwarded(&[b"10.0.0.1", b"203.0.113.7"], "203.0.113.7");
        x_forwarded(&[b"10.0.0.1, 203.0.113.7, 192.0.2.2"], "203.0.113.7");
        x_forwarded(&[b"\xFF, 203.0.113.7"], "203.0.113.7");
        forwarded(b"for=10.0.0.1, for=203.0.113.7, for=192.0.2.2", "203.0.113.7");
        // The proxy passes on the header that it does not write.
        let both: [(HeaderName, &[u8]); 2] =
            [(X_FORWARDED_FOR, b"203.0.113.7"), (FORWARDED, b"for=203.0.113.8")];
        check(ProxyHeaders::XForwarded, &both, "203.0.113.7");
        check(ProxyHeaders::Forwarded, &both, "203.0.113.8");
        check(ProxyHeaders::XForwarded, &both[1..], "192.0.2.1");
        // Hidden or unreadable: the last address that is known.
        forwarded(b"for=10.0.0.1, for=unknown", "192.0.2.1");
        forwarded(b"for=10.0.0.1, for=_hidden, for=192.0.2.2", "192.0.2.2");
        x_forwarded(&[b"garbage"], "192.0.2.1");
        forwarded(b"by=10.0.0.1", "192.0.2.1");
    }
}
