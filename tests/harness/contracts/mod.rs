//! Checks the behaviour of the bank against the contracts in `schemas/`.
//!
//! 1. Every response that the [client](crate::client) receives is checked against the OpenAPI document: operation, status,
//!    media type, headers, body ([`check`]). An undocumented response violates the contract and fails the test.
//! 2. JSON is validated by the schema in that document, and XML by the schema of its namespace in [`XML_SCHEMAS`].
//!
//! A new XML namespace needs a row there. A row without a schema fails when it is used.

mod answer;
mod document;
mod validator;

use postonce_shared::messaging::xml::{self, XmlLimits};

pub use self::answer::{ReceivedAnswer, check};
pub use self::document::OpenApi;
pub use self::validator::{XmlValidator, validate_xml};

/// The schema of each XML namespace, by its path within `schemas/`.
pub const XML_SCHEMAS: &[(&str, &str)] = &[
    ("urn:postonce:xml:1", "xsd/postonce.xsd"),
    ("urn:ietf:rfc:7807", "xsd/problem.xsd"),
    ("urn:wideworldimporters:account:1", "xsd/wwi-account.xsd"),
    ("urn:postonce:soap:1", "xsd/user-account-service.xsd"),
    ("urn:postonce:soap:compat:1", "xsd/user-account-service-compat.xsd"),
    ("http://schemas.xmlsoap.org/soap/envelope/", "xsd/soap-1.1.xsd"),
    ("http://www.w3.org/2003/05/soap-envelope", "xsd/soap-1.2.xsd"),
];

/// Returns the schema of a namespace, if it has one.
pub fn schema_of(namespace: &str) -> Option<&'static str> {
    XML_SCHEMAS.iter().find(|(known, _)| *known == namespace).map(|(_, schema)| *schema)
}

/// How a body is validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// By the schema in the OpenAPI document.
    JsonSchema,
    /// By the schemas of its namespaces.
    XmlSchemas,
    /// By the media type only: plain text, pages, metrics.
    None,
}

/// Returns how the body of a response with this `Content-Type` is validated.
pub fn contract_of(content_type: &str) -> Contract {
    let media_type = essence(content_type);
    if media_type == "application/json" || media_type.ends_with("+json") {
        Contract::JsonSchema
    } else if ["application/xml", "text/xml"].contains(&media_type.as_str()) || media_type.ends_with("+xml") {
        Contract::XmlSchemas
    } else {
        Contract::None
    }
}

/// Validates a document by the schema of its namespace.
///
/// # Errors
/// The validation errors.
pub fn check_xml(document: &[u8]) -> Result<(), Vec<String>> {
    let limits = XmlLimits { depth_max: 64, attributes_max: 256 };
    let root = xml::read(document, &limits).map_err(|unreadable| vec![format!("the body {unreadable}")])?;
    let namespace = &root.name.namespace;
    let schema = schema_of(namespace).ok_or_else(|| vec![format!("{namespace:?} has no schema")])?;
    validate_xml(schema, document)
}

/// Returns a media type without its parameters, in lower case.
pub(crate) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::{Contract, contract_of};

    #[test]
    fn parameters_and_case_do_not_matter_to_a_media_type() {
        assert_eq!(contract_of("application/json"), Contract::JsonSchema);
        assert_eq!(contract_of("Application/Problem+JSON; charset=utf-8"), Contract::JsonSchema);
        assert_eq!(contract_of("application/xml;charset=utf-8"), Contract::XmlSchemas);
        assert_eq!(contract_of("application/problem+xml"), Contract::XmlSchemas);
        assert_eq!(contract_of("text/plain"), Contract::None);
    }
}
