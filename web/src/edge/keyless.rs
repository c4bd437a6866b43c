//! Connections of clients without a key: each request gets its answer, and the connection is closed.

use std::sync::Arc;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::ConnectionType;
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpMessage as _, HttpRequest};
use postonce_shared::config::TrustedProxies;
use postonce_shared::domain::partner::Partner;

/// Beginning of the paths of the other processes of the bank, which sign their requests instead.
const INTERNAL_PATHS: &str = "/internal/";

/// Middleware that keeps no connection open after a request without a valid key, except those of trusted proxies, which serve
/// many clients.
///
/// # Errors
/// Those of the inner service.
pub async fn close_keyless<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let mut response = next.call(request).await?;
    if !may_stay(response.request()) {
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    Ok(response)
}

fn may_stay(request: &HttpRequest) -> bool {
    let proxies = request.app_data::<Data<TrustedProxies>>();
    let peer = request.peer_addr().map(|peer| peer.ip());
    request.extensions().contains::<Arc<Partner>>()
        || request.path().starts_with(INTERNAL_PATHS)
        || proxies.zip(peer).is_some_and(|(proxies, peer)| proxies.contain(peer))
}
