//! The authorities that the certificates of servers are checked against.

use reqwest::{Certificate, ClientBuilder};

/// Makes a client trust these authorities instead of the public ones.
pub(super) fn trusting_only(builder: ClientBuilder, authorities: Vec<Certificate>) -> ClientBuilder {
    let builder = builder.tls_built_in_root_certs(false);
    authorities.into_iter().fold(builder, ClientBuilder::add_root_certificate)
}
