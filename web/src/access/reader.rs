//! Receivers of answers, for limits on answers that are not fully received yet.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::{HttpMessage as _, HttpRequest};
use postonce_shared::access::client_network::client_network;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::Partner;

use crate::access::client_address::client_address;
use crate::access::console_request::ToConsole;

/// Receiver of an answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reader {
    /// A client of this partner.
    Partner(PartnerId),
    /// A client without a key, by network address; `None` if the address is unknown.
    Address(Option<IpAddr>),
}

impl Reader {
    /// Returns the partner of the request's key or session, or else the network of its client.
    pub fn of(request: &HttpRequest) -> Self {
        if let Some(partner) = request.extensions().get::<Arc<Partner>>() {
            return Self::Partner(partner.id.clone());
        }
        let session = ToConsole::of(request).key.and_then(|key| PartnerId::parse(&key.partner).ok());
        session.map_or_else(|| Self::Address(client_address(request).map(client_network)), Self::Partner)
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn clients_without_a_key_are_told_apart_by_their_network() {
        let of = |address: &str| {
            Reader::of(&TestRequest::get().peer_addr(address.parse().unwrap()).to_http_request())
        };
        assert_ne!(of("192.0.2.1:1"), of("192.0.2.2:1"));
        assert_eq!(of("192.0.2.1:1"), of("192.0.2.1:2"));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::2]:1"));
    }
}
