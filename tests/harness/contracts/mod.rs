//! What the bank promises in `schemas/`, held against what it does.
//!
//! 1. Every answer that the [client](crate::client) gets is looked up in the OpenAPI document:
//!    operation, status, media type, headers, body ([`check`]). What is not documented breaks the
//!    contract, and with it the test that asked.
//! 2. JSON is checked against the schema in that document, XML against the schema in [`XML_SCHEMAS`].
//!
//! A new media type of XML is a row there. A row whose schema is missing fails loudly when it is used.

mod answer;
mod document;
mod xml;

pub use self::answer::{Given, check};
pub use self::document::OpenApi;
pub use self::xml::{XmlValidator, validate_xml};

/// The schema of every media type of XML, by its path within `schemas/`.
pub const XML_SCHEMAS: &[(&str, &str)] = &[
    ("application/vnd.postonce+xml", "xsd/postonce.xsd"),
    ("application/xml", "xsd/postonce.xsd"),
    ("application/problem+xml", "xsd/problem.xsd"),
    ("application/vnd.wwi.account+xml", "xsd/wwi-account.xsd"),
    ("application/soap+xml", "xsd/soap-1.2.xsd"),
    ("text/xml", "xsd/soap-1.1.xsd"),
];

/// What the body of a media type is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// The schema in the OpenAPI document.
    JsonSchema,
    /// This schema within `schemas/`.
    XmlSchema(&'static str),
    /// None but the media type: text for people, pages, metrics.
    None,
}

/// What the body of an answer with that `Content-Type` is held to.
pub fn contract_of(content_type: &str) -> Contract {
    let media_type = essence(content_type);
    let xml = XML_SCHEMAS.iter().find(|(known, _)| *known == media_type);
    match xml {
        Some((_, schema)) => Contract::XmlSchema(schema),
        None if media_type == "application/json" || media_type.ends_with("+json") => Contract::JsonSchema,
        None => Contract::None,
    }
}

/// A media type without its parameters, in lower case.
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
        assert_eq!(contract_of("application/xml;charset=utf-8"), Contract::XmlSchema("xsd/postonce.xsd"));
        assert_eq!(contract_of("text/plain"), Contract::None);
    }
}
