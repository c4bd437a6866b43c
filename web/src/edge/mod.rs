//! The connection to clients: listening addresses, TLS, limits, and the log and metrics of requests.

pub mod http_servers;
pub mod limits;
pub mod observe;
pub mod tls;
