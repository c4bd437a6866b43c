#![doc = include_str!("../README.md")]

pub mod json;

/// The OpenAPI document of the HTTP API. Generated from the code of `web`; a test there compares.
pub const OPENAPI_JSON: &str = include_str!("../openapi/postonce.json");

/// The XML form of what direct producers write to a queue.
pub const USER_ACCOUNT_TRANSACTION_XSD: &str = include_str!("../xsd/user-account-transaction.xsd");

/// The canonical XML.
pub const POSTONCE_XSD: &str = include_str!("../xsd/postonce.xsd");

/// Problems in XML, as RFC 9457 has them.
pub const PROBLEM_XSD: &str = include_str!("../xsd/problem.xsd");

/// The XML of World Wide Importers.
pub const WWI_ACCOUNT_XSD: &str = include_str!("../xsd/wwi-account.xsd");
