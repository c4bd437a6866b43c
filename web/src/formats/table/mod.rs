//! XML formats as tables. Each row maps a member to the path of an element and to the codec of its value. One parser and
//! one writer serve all tables, so every written document can be parsed again.
//!
//! Elements are written in the order of the rows, and accepted in any order. Each occurs at most once, except in lists, and
//! has no attributes. Texts are not trimmed. What becomes of unknown elements is a property of the table ([`Unknown`]); those that
//! are kept are not changed.

mod describe;
mod read;
mod write;

use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::messaging::xml::{self, Element, XmlLimits};
use serde_json::{Map, Value};

pub use self::read::{parse, read_root};
pub use self::write::members_of;
use super::members::Members;
use super::{Document, Format, Shape};
use crate::error::ApiError;

/// Name of the internal member that holds the unknown elements.
const ELEMENTS: &str = "";
/// Name of the element of an answer that holds the unknown elements of its own namespace, which could otherwise be confused
/// with elements that a later version adds.
const UNKNOWN_ELEMENTS: &str = "UnknownElements";

/// The mapping of one kind of document of a format.
#[derive(Debug)]
pub struct Table {
    /// The namespace of its elements.
    pub namespace: &'static str,
    /// The name of the root element.
    pub root: &'static str,
    /// Its rows, in the order of the elements in written documents.
    pub rows: &'static [Row],
    /// What becomes of elements that it does not know, directly below the root element.
    pub unknown: Unknown,
}

/// What becomes of the unknown elements of a document.
#[derive(Debug, Clone, Copy)]
pub enum Unknown {
    /// They are refused.
    Refused,
    /// Those of other namespaces are kept.
    OfOthers,
    /// Those of other namespaces and of its own are kept, except elements of these rows, which only answers have.
    Kept(&'static [Row]),
    /// An answer: those of other namespaces are its last elements, and those of its own are in an element of their own.
    Answered,
}

/// A member, with the path and the codec of its element.
pub struct Row {
    member: &'static str,
    path: &'static str,
    codec: FieldCodec,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.member, self.path)
    }
}

/// Creates a row. A dot in `member` separates an inner object from its member; slashes in `path` separate nested elements.
pub const fn row(member: &'static str, path: &'static str, codec: FieldCodec) -> Row {
    Row { member, path, codec }
}

/// The conversion between the value of a member and the content of an element.
pub enum FieldCodec {
    /// A text, written unchanged.
    Text,
    /// A whole number.
    Number,
    /// A code, as pairs of the JSON code and the code of the format.
    Code(&'static [(&'static str, &'static str)]),
    /// A map of texts. The fields are the element names of a pair, its key and its value.
    Pairs(&'static str, &'static str, &'static str),
    /// A list: the element is repeated for each item.
    List(&'static Table),
    /// A codec of a single format.
    Custom(&'static dyn CustomCodec),
}

/// A codec of a single format. It may parse several members from one element.
pub trait CustomCodec: Sync {
    /// Writes a member of `members` into the element.
    fn write(&self, element: Element, member: &str, members: &Map<String, Value>) -> Element;

    /// Parses the members from an element.
    ///
    /// # Errors
    /// The violated rule, as the end of a sentence.
    fn read(&self, element: &Element, member: &str) -> Result<Vec<(String, Value)>, String>;

    /// Returns the schema of the element for the OpenAPI document. `kind` is the transaction kind that the operation submits.
    fn schema(&self, kind: Option<TransactionKind>) -> Value;

    /// Returns the alternative schemas of amounts in currencies with `decimals` decimals. The list is empty if the codec is
    /// not for money.
    fn amount_schemas(&self, decimals: usize) -> Vec<Value>;
}

/// A format that is defined by tables.
#[derive(Debug)]
pub struct Tables {
    /// Its name in the profiles of partners.
    pub name: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// The media type of its problem documents.
    pub problem_media_type: &'static str,
    /// A request for a deposit or a withdrawal.
    pub submission: &'static Table,
    /// The terms of a new account.
    pub opening: &'static Table,
    /// New terms of an account.
    pub change: &'static Table,
    /// A transaction.
    pub transaction: &'static Table,
    /// A page of transactions.
    pub transaction_page: &'static Table,
    /// An account.
    pub account: &'static Table,
    /// A page of accounts.
    pub account_page: &'static Table,
    /// The reason why a request was refused.
    pub problem: &'static Table,
}

impl Tables {
    /// Returns the table of a kind of document.
    pub const fn of(&self, shape: Shape) -> &'static Table {
        match shape {
            Shape::Submission(_) => self.submission,
            Shape::Opening => self.opening,
            Shape::Change => self.change,
            Shape::Transaction => self.transaction,
            Shape::TransactionPage => self.transaction_page,
            Shape::Account => self.account,
            Shape::AccountPage => self.account_page,
            Shape::Problem => self.problem,
        }
    }
}

impl Format for Tables {
    fn name(&self) -> &'static str {
        self.name
    }

    fn media_type(&self) -> &'static str {
        self.media_type
    }

    fn problem_media_type(&self) -> &'static str {
        self.problem_media_type
    }

    fn is_xml(&self) -> bool {
        true
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        namespace == self.transaction.namespace || namespace == self.problem.namespace
    }

    fn read(&self, shape: Shape, body: &[u8], limits: &XmlLimits) -> Result<Members, ApiError> {
        let root = parse(body, limits)?;
        let table = self.of(shape);
        let mut members = read_root(table, &root)?;
        if let Shape::Submission(kind) = shape
            && let Some(sent) = members.take("type")
            && sent != kind.code()
        {
            let message =
                format!("describes a {}, but this is a {}", sent.as_str().unwrap_or_default(), kind.code());
            members.refuse(&self.field(shape, "amount"), message);
        }
        Ok(members)
    }

    fn field(&self, shape: Shape, member: &str) -> String {
        self.of(shape).field(member)
    }

    fn write(&self, document: &Document) -> Vec<u8> {
        let element = self.of(document.shape()).write(&members_of(document));
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", xml::write(&element)).into_bytes()
    }

    fn schema(&self, shape: Shape, json: &str, schemas: &Map<String, Value>) -> Option<(String, Value)> {
        let table = self.of(shape);
        let (prefix, kind) = match shape {
            Shape::Submission(kind @ TransactionKind::Deposit) => ("Deposit", Some(kind)),
            Shape::Submission(kind @ TransactionKind::Withdrawal) => ("Withdrawal", Some(kind)),
            Shape::Opening
            | Shape::Change
            | Shape::Transaction
            | Shape::TransactionPage
            | Shape::Account
            | Shape::AccountPage
            | Shape::Problem => ("", None),
        };
        Some((format!("{prefix}{}", table.root), table.schema(json, schemas, kind)))
    }
}

impl Table {
    /// Returns the member that the element at this path contains.
    pub fn member(&self, path: &str) -> Option<&'static str> {
        self.rows.iter().find(|row| row.path == path).map(|row| row.member)
    }

    /// Returns the names of its elements directly below the root element.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.rows.iter().map(|row| row.path.split_once('/').map_or(row.path, |(name, _)| name))
    }

    /// Returns the path of a member, or its name if it is unknown.
    pub fn field(&self, member: &str) -> String {
        let of_row = |row: &Row| {
            let rest = member.strip_prefix(row.member)?;
            let is_whole = rest.is_empty() || rest.starts_with('.');
            is_whole.then(|| format!("{}{rest}", row.path))
        };
        let outer = || {
            let inner = self.rows.iter().find(|row| row.member.starts_with(&format!("{member}.")))?;
            inner.path.rsplit_once('/').map(|(path, _)| path.to_owned())
        };
        self.rows.iter().find_map(of_row).or_else(outer).unwrap_or_else(|| member.to_owned())
    }
}
