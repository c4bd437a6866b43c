//! Certificate authorities for TLS connections to servers.

use reqwest::{Certificate, ClientBuilder};

/// Makes a client trust only these certificate authorities, and none of the built-in ones.
pub(super) fn trusting_only(builder: ClientBuilder, authorities: Vec<Certificate>) -> ClientBuilder {
    let builder = builder.tls_built_in_root_certs(false);
    authorities.into_iter().fold(builder, ClientBuilder::add_root_certificate)
}
