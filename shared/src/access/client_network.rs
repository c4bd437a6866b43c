//! The part of an address that identifies a client.

use std::net::{IpAddr, Ipv6Addr};

/// Network part of an IPv6 address that identifies one customer of a network.
const NETWORK_V6: u128 = 0xffff_ffff_ffff_ffff_0000_0000_0000_0000;

/// Returns the part of an address that identifies a client. An IPv6 client usually has a whole /64 network.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & NETWORK_V6)),
    }
}
