//! Client connections: TLS, limits, request log and request metrics.

pub mod keyless;
pub mod large_answers;
pub mod limits;
pub mod observe;
pub mod repeated_headers;
pub mod request_ids;
pub mod span;
pub mod tls;
