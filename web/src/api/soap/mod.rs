//! SOAP 1.1 and 1.2 service for the same transactions. It has two [contracts](contract::Contract).
//!
//! The id of a request is its WS-Addressing `MessageID`, a `urn:uuid:…`, to which the response relates. An error is a fault
//! with a problem of RFC 9457 in its detail, so its code is the same as in the other formats.

pub mod compat;
pub mod contract;
pub mod double_text;
pub mod envelope;
pub mod fault;
pub mod headers;
pub mod message;
pub mod operations;
pub mod parts;
pub mod service;
