//! The connection to clients: TLS, limits, and the log and metrics of requests.

pub mod limits;
pub mod observe;
pub mod tls;
