//! Connections of clients without a valid key: they are closed after each response.

use std::sync::Arc;

use actix_web::dev::ServiceResponse;
use actix_web::http::ConnectionType;
use actix_web::{HttpMessage as _, HttpRequest};
use postonce_shared::domain::partner::Partner;

use crate::access::client_address::is_of_trusted_proxy;
use crate::access::console_request::ToConsole;
use crate::query;

/// Prefix of the paths for the other processes of the bank, which sign their requests instead of sending a key.
pub const INTERNAL_PATHS: &str = "/internal/";

/// Closes the connection after a request without a valid key, except that of a trusted proxy, which serves many clients.
pub fn close_keyless<B>(response: &mut ServiceResponse<B>) {
    if !may_stay(response.request()) {
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
}

fn may_stay(request: &HttpRequest) -> bool {
    request.extensions().contains::<Arc<Partner>>()
        || ToConsole::of(request).has_session
        || query::path(request).starts_with(INTERNAL_PATHS)
        || is_of_trusted_proxy(request)
}
