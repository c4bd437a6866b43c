#![doc = include_str!("../README.md")]

pub mod json;

/// The OpenAPI document of the HTTP API. Generated from the code of `web`; a test there compares.
pub const OPENAPI_JSON: &str = include_str!("../openapi/postonce.json");

/// The XML form of what direct producers write to a queue.
pub const USER_ACCOUNT_TRANSACTION_XSD: &str = include_str!("../xsd/user-account-transaction.xsd");

/// The JSON Schema of the JSON bodies. Generated like the OpenAPI document.
pub const JSON_SCHEMA: &str = include_str!("../json/postonce.schema.json");

/// The description of the SOAP service.
pub const USER_ACCOUNT_SERVICE_WSDL: &str = include_str!("../wsdl/user-account-service.wsdl");

/// The schemas of what partners exchange over HTTP in XML, by the names that documents call them by.
pub const XSDS: &[(&str, &str)] = &[
    ("postonce.xsd", include_str!("../xsd/postonce.xsd")),
    ("problem.xsd", include_str!("../xsd/problem.xsd")),
    ("user-account-service.xsd", include_str!("../xsd/user-account-service.xsd")),
    ("wwi-account.xsd", include_str!("../xsd/wwi-account.xsd")),
];
