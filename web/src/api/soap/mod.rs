//! SOAP 1.1 and 1.2 service: the same transactions, in envelopes. Its contract is
//! `schemas/wsdl/user-account-service.wsdl`.
//!
//! The id of a request is its WS-Addressing `MessageID`, a `urn:uuid:…`; the response relates to it. An error is a
//! fault with the problem of RFC 9457 in its detail, so that its code is the same as in the other formats.

pub mod envelope;
pub mod fault;
pub mod message;
pub mod operations;
pub mod service;

/// Path of the service.
pub const PATH: &str = "/soap/UserAccountService";
/// Namespace of its messages.
pub const NAMESPACE: &str = "urn:postonce:soap:1";

/// Namespaces with a meaning in its envelopes.
pub const NAMESPACES: [&str; 3] =
    [NAMESPACE, envelope::Version::V11.namespace(), envelope::Version::V12.namespace()];

/// Returns whether a path is the path of the service.
pub fn is_at(path: &str) -> bool {
    path == PATH
}
