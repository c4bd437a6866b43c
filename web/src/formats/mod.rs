//! The formats of documents that partners send and read. All of them tell the same: a document of any
//! format becomes the same members with the same names, and from there on nobody knows which it was.
//!
//! **To add a format** of XML, write its tables in a file beside [`wwi`], declare the file here and add its line to
//! [`FORMATS`]. Reading and writing, negotiation, the names of fields in refusals, the profiles of partners and the
//! OpenAPI document go by these tables; a test names the command that writes the document again. Then:
//!
//! 1. its XSD in `schemas/xsd`, with a line in `postonce_schemas::XSDS` (`formats/tests.rs` compares);
//! 2. a line in `TABLES` of `formats/tests.rs`, for the property tests (compares with [`FORMATS`]);
//! 3. in `tests/harness`, its namespace in `XML_SCHEMAS` of `contracts`, its line in `FORMATS` of `samples` with
//!    samples in `schemas/samples/<name>`, and a variant of `Dialect`, whose match arms the compiler asks for
//!    (`xml_samples` compares all three with [`FORMATS`]);
//! 4. for people, the table in `schemas/README.md` and the help of `partners change --format`.

pub mod json;
pub mod members;
pub mod soap_names;
pub mod table;
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

/// Every format. The first one is spoken where nobody says otherwise.
pub const FORMATS: &[&dyn Format] = &[&json::Json, &xml::CANONICAL, &wwi::WWI];

/// Media types that say XML and not which: they mean the partner's own format where that is XML, and
/// the canonical one otherwise.
pub const GENERIC_XML: &[&str] = &["application/xml", "text/xml"];

/// What a document is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// What a deposit or a withdrawal asks for.
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
    /// Why a request was refused.
    Problem,
}

/// A format of documents.
pub trait Format: Sync {
    /// Its name in partners' profiles.
    fn name(&self) -> &'static str;

    /// Its own media type.
    fn media_type(&self) -> &'static str;

    /// The media type of its problems.
    fn problem_media_type(&self) -> &'static str;

    /// Whether it is XML, so that a partner may call it so.
    fn is_xml(&self) -> bool;

    /// Whether elements of a namespace are its own.
    fn has_namespace(&self, namespace: &str) -> bool;

    /// The members of a document, by the names of [`postonce_schemas::json`].
    ///
    /// # Errors
    /// [`ApiError`] of status 400 when nothing in it can be trusted; what can be told field by field is
    /// told with the members.
    fn read(&self, shape: Shape, body: &[u8], limits: &XmlLimits) -> Result<Members, ApiError>;

    /// Where a member stands in a document of this format: what a person who wrote it would look for.
    fn field(&self, shape: Shape, member: &str) -> String;

    /// Writes an answer.
    fn write(&self, document: &Document) -> Vec<u8>;

    /// The schema of its documents in the OpenAPI document, with a name, by the schemas of JSON, of which
    /// `json` is the one of that shape; `None` where that is its own.
    fn schema(&self, shape: Shape, json: &str, schemas: &Map<String, Value>) -> Option<(String, Value)>;
}

impl fmt::Debug for dyn Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The format of that name.
pub fn named(name: &str) -> Option<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.name() == name)
}

/// Whether elements of a namespace may mean something to whoever reads our answers. Nobody else's elements
/// may stand there under such a name.
pub fn is_ours(namespace: &str) -> bool {
    soap_names::NAMESPACES.contains(&namespace)
        || FORMATS.iter().any(|format| format.has_namespace(namespace))
}

/// The names of all formats.
pub fn names() -> Vec<&'static str> {
    FORMATS.iter().map(|format| format.name()).collect()
}

/// What is answered.
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
    /// Why a request was refused.
    Problem(wire::Problem),
}

impl Document {
    /// What it is about.
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
