//! Determines the address that a process advertises to the other processes if none is configured.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::ports::process_registry::Address;

/// Addresses reserved for documentation (RFC 5737 and RFC 3849). Connecting a UDP socket to one of them selects the
/// local address of the route to the network; no packet is sent.
const ELSEWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// Returns the address that a process serving `/internal` on `bound` advertises: the configured address, or else
/// `bound`. If `bound` is the unspecified address, the result is the loopback address when all processes of the bank
/// are on one machine, and otherwise the local address of the route to the network.
pub fn advertised(configured: Option<&Address>, bound: SocketAddr, is_one_machine: bool) -> Address {
    if let Some(address) = configured {
        return address.clone();
    }
    let ip = match (is_one_machine, bound.ip().is_unspecified()) {
        (_, false) => bound.ip(),
        (true, true) => loopback(bound),
        (false, true) => facing_the_network(bound).unwrap_or_else(|| {
            tracing::warn!(
                "This machine has no address on a network: processes elsewhere cannot reach this one. \
                 Set advertise if they should."
            );
            loopback(bound)
        }),
    };
    let address = Address::parse(&SocketAddr::new(ip, bound.port()).to_string());
    address.expect("a bound address has a port, and its host is an IP address")
}

const fn loopback(bound: SocketAddr) -> IpAddr {
    if bound.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) }
}

fn facing_the_network(bound: SocketAddr) -> Option<IpAddr> {
    // A socket bound to the unspecified IPv6 address also accepts IPv4 connections.
    let families = ELSEWHERE.into_iter().filter(|elsewhere| bound.is_ipv6() || elsewhere.is_ipv4());
    let mut addresses = families.filter_map(|elsewhere| {
        let any = SocketAddr::new(
            if elsewhere.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() },
            0,
        );
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect((elsewhere, 9)).ok()?;
        let ip = socket.local_addr().ok()?.ip();
        (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
    });
    addresses.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_advertises_an_address_that_can_be_called() {
        let check = |is_one_machine: bool, configured: Option<&str>, bound: &str, expected: &str| {
            let configured = configured.map(|address| Address::parse(address).unwrap());
            let address = advertised(configured.as_ref(), bound.parse().unwrap(), is_one_machine);
            assert_eq!(address.as_str(), expected);
        };
        check(true, None, "127.0.0.1:40123", "http://127.0.0.1:40123");
        check(true, None, "[::1]:40123", "http://[::1]:40123");
        check(true, None, "0.0.0.0:40123", "http://127.0.0.1:40123");
        check(true, None, "[::]:40123", "http://[::1]:40123");
        check(true, Some("bank-1:80"), "0.0.0.0:40123", "http://bank-1:80");
        check(false, None, "10.1.2.3:40123", "http://10.1.2.3:40123");
        let anywhere = advertised(None, "0.0.0.0:40123".parse().unwrap(), false);
        assert!(!anywhere.as_str().contains("0.0.0.0"), "{anywhere}");
    }
}
