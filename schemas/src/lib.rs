#![doc = include_str!("../README.md")]

pub mod json;

/// The plain OpenAPI document of the HTTP API, for client generators, derived from the strict one. A test in `web` compares them.
pub const OPENAPI_JSON: &str = include_str!("../openapi/postonce.json");

/// The strict OpenAPI document of the HTTP API, for checks of requests and responses. It is generated from the code of `web`; a
/// test there compares them.
pub const OPENAPI_STRICT_JSON: &str = include_str!("../openapi/postonce-strict.json");

/// The XML Schema of the messages of direct producers.
pub const USER_ACCOUNT_TRANSACTION_XSD: &str = include_str!("../xsd/user-account-transaction.xsd");

/// The JSON Schema of the JSON bodies. It is generated like the OpenAPI document.
pub const JSON_SCHEMA: &str = include_str!("../json/postonce.schema.json");

/// The WSDL description of the SOAP service.
pub const USER_ACCOUNT_SERVICE_WSDL: &str = include_str!("../wsdl/user-account-service.wsdl");

/// The WSDL description of the SOAP service for classic clients.
pub const USER_ACCOUNT_SERVICE_COMPAT_WSDL: &str = include_str!("../wsdl/user-account-service-compat.wsdl");

/// The XML Schemas of the XML bodies of the HTTP API, by file name. The schemas refer to each other by these names.
pub const XSDS: &[(&str, &str)] = &[
    ("postonce.xsd", include_str!("../xsd/postonce.xsd")),
    ("problem.xsd", include_str!("../xsd/problem.xsd")),
    ("serialization.xsd", include_str!("../xsd/serialization.xsd")),
    ("user-account-service-compat.xsd", include_str!("../xsd/user-account-service-compat.xsd")),
    ("user-account-service.xsd", include_str!("../xsd/user-account-service.xsd")),
    ("wwi-account.xsd", include_str!("../xsd/wwi-account.xsd")),
];
