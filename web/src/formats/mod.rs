//! The document formats of partners. Every format is converted to the same members with the same names, and the code after
//! that step does not depend on the format.
//!
//! **To add an XML format**, write its tables in a file beside [`wwi`], declare the module here and add a line to
//! [`FORMATS`]. Parsing and writing, content negotiation, the field names in errors, the profiles of partners and the
//! OpenAPI document are derived from these tables. A test names the command that generates the document again. Then
//! add:
//!
//! 1. its XSD in `schemas/xsd`, with a line in `postonce_schemas::XSDS` (checked in `formats/tests.rs`);
//! 2. a line in `TABLES` of `formats/tests.rs`, for the property tests (compared with [`FORMATS`]);
//! 3. in `tests/harness`, its namespace in `XML_SCHEMAS` of `contracts`, its line in `FORMATS` of `samples` with
//!    samples in `schemas/samples/<name>`, and a variant of `Dialect`, whose match arms the compiler requires
//!    (`xml_samples` compares all three with [`FORMATS`]);
//! 4. documentation: the table in `schemas/README.md` and the help of `partners change --format`.

pub mod items;
pub mod json;
pub mod members;
pub mod soap_names;
pub mod soap_submissions;
pub mod spreadsheet;
pub mod table;
pub mod violations;
pub mod wwi;
pub mod xml;

use std::fmt;

use postonce_schemas::json as wire;
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::messaging::xml::XmlLimits;
use serde::Serialize;
use serde_json::{Map, Value};

use self::members::Members;
use crate::error::ApiError;

/// All formats. The first one is the default.
pub const FORMATS: &[&dyn Format] = &[&json::Json, &xml::CANONICAL, &wwi::WWI];

/// Generic media types of XML. They mean the format in the partner's profile if that is XML, and otherwise the canonical
/// XML.
pub const GENERIC_XML: &[&str] = &["application/xml", "text/xml"];

/// The kind of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A request for a deposit or a withdrawal.
    Submission(TransactionKind),
    /// The terms of a new account.
    Opening,
    /// New terms of an account.
    Change,
    /// A transaction.
    Transaction,
    /// A page of transactions.
    TransactionPage,
    /// An account.
    Account,
    /// A page of accounts.
    AccountPage,
    /// The reason why a request was refused.
    Problem,
}

/// A document format.
pub trait Format: Sync {
    /// Returns the name of the format in the profiles of partners.
    fn name(&self) -> &'static str;

    /// Returns the media type of its documents.
    fn media_type(&self) -> &'static str;

    /// Returns the media type of its problem documents.
    fn problem_media_type(&self) -> &'static str;

    /// Returns whether the format is XML, which the generic media types can mean.
    fn is_xml(&self) -> bool;

    /// Returns whether the format uses the namespace for its own elements.
    fn has_namespace(&self, namespace: &str) -> bool;

    /// Parses a document into members with the names of [`postonce_schemas::json`]. Violations of single fields are part of
    /// the members.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 when the document as a whole cannot be parsed.
    fn read(&self, shape: Shape, body: &[u8], limits: &XmlLimits) -> Result<Members, ApiError>;

    /// Returns the field name of a member in this format, for violations.
    fn field(&self, shape: Shape, member: &str) -> String;

    /// Writes a response document.
    fn write(&self, document: &Document) -> Vec<u8>;

    /// Returns the name and the schema of its documents for the OpenAPI document. The schema is derived from the JSON schema
    /// named `json` in `schemas`. Returns `None` if the format uses that schema itself.
    fn schema(&self, shape: Shape, json: &str, schemas: &Map<String, Value>) -> Option<(String, Value)>;
}

impl fmt::Debug for dyn Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Finds a format by its name.
pub fn named(name: &str) -> Option<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.name() == name)
}

/// Returns whether the service gives the namespace a meaning in responses. Clients must not add elements in it.
pub fn is_reserved_namespace(namespace: &str) -> bool {
    soap_names::NAMESPACES.contains(&namespace)
        || FORMATS.iter().any(|format| format.has_namespace(namespace))
}

/// Returns the names of all formats.
pub fn names() -> Vec<&'static str> {
    FORMATS.iter().map(|format| format.name()).collect()
}

/// A response document.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Document {
    /// A transaction.
    Transaction(Box<wire::Transaction>),
    /// A page of transactions.
    TransactionPage(wire::TransactionPage),
    /// An account.
    Account(Box<wire::Account>),
    /// A page of accounts.
    AccountPage(wire::AccountPage),
    /// The reason why a request was refused.
    Problem(wire::Problem),
}

impl Document {
    /// Returns the kind of the document.
    pub const fn shape(&self) -> Shape {
        match self {
            Self::Transaction(_) => Shape::Transaction,
            Self::TransactionPage(_) => Shape::TransactionPage,
            Self::Account(_) => Shape::Account,
            Self::AccountPage(_) => Shape::AccountPage,
            Self::Problem(_) => Shape::Problem,
        }
    }
}

macro_rules! documents {
    ($($wire:ident => $make:expr;)*) => {$(
        impl From<wire::$wire> for Document {
            fn from(value: wire::$wire) -> Self {
                $make(value)
            }
        }
    )*};
}

documents! {
    Transaction => |it| Self::Transaction(Box::new(it));
    TransactionPage => Self::TransactionPage;
    Account => |it| Self::Account(Box::new(it));
    AccountPage => Self::AccountPage;
    Problem => Self::Problem;
}

#[cfg(test)]
mod tests;
