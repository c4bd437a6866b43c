//! The part of an IP address that identifies a client.

use std::net::{IpAddr, Ipv6Addr};

/// Mask of the /64 network of an IPv6 address.
const NETWORK_V6: u128 = 0xffff_ffff_ffff_ffff_0000_0000_0000_0000;

/// Returns the address for IPv4, and the /64 network for IPv6, because a whole /64 usually belongs to one client.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & NETWORK_V6)),
    }
}
