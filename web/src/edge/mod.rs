//! Client connections: TLS, limits, request log and request metrics.

pub mod limits;
pub mod observe;
pub mod tls;
