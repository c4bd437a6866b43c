//! The service for clients that speak SOAP, 1.1 or 1.2: the same transactions, in envelopes. What it
//! promises stands in `schemas/wsdl/user-account-service.wsdl`.
//!
//! The id of a request is its WS-Addressing `MessageID`, a `urn:uuid:…`; the answer relates to it. A
//! refusal is a fault with the problem of RFC 9457 in its detail, so that its code is the one of the
//! other formats.

pub mod envelope;
pub mod fault;
pub mod message;
pub mod operations;
pub mod service;

pub use crate::formats::soap_names::{NAMESPACE, PATH};

/// Whether a path is that of the service.
pub fn is_at(path: &str) -> bool {
    path == PATH
}
