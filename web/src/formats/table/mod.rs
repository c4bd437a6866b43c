//! Formats of XML as tables: each row says which member stands where, and in which words. One reader
//! and one writer serve all tables, so what is written can be read back.
//!
//! We write the elements in the order of the rows and read them in any. Each stands at most once and has
//! no attributes; texts are taken as they are, blanks included. Elements of other namespaces may stand
//! in an open table only, and are kept as they are.

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

/// The member under which the elements of other namespaces travel within this module.
const ELEMENTS: &str = "";

/// One kind of document of a format.
#[derive(Debug)]
pub struct Table {
    /// The namespace of all its elements.
    pub namespace: &'static str,
    /// Its outermost element.
    pub root: &'static str,
    /// Its rows, in the order in which its elements are written.
    pub rows: &'static [Row],
    /// Whether elements of other namespaces may stand in it.
    pub open: bool,
}

/// A member, and where and how it stands in the document.
pub struct Row {
    member: &'static str,
    path: &'static str,
    words: Words,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.member, self.path)
    }
}

/// A row: the member by its name (of an inner object with a dot), the elements that lead to it with
/// slashes, and how its value is written.
pub const fn row(member: &'static str, path: &'static str, words: Words) -> Row {
    Row { member, path, words }
}

/// How a value is written.
pub enum Words {
    /// As it is.
    Text,
    /// A whole number.
    Number,
    /// A code, each in words of their own: ours first.
    Code(&'static [(&'static str, &'static str)]),
    /// Names with texts: the element of one, of its name and of its text.
    Pairs(&'static str, &'static str, &'static str),
    /// A list: the element stands once for each.
    Each(&'static Table),
    /// Something of the format's own.
    Own(&'static dyn Wording),
}

/// A way to write values that only one format has. It may read several members from one element.
pub trait Wording: Sync {
    /// Fills the element with what a member of `members` says.
    fn write(&self, element: Element, member: &str, members: &Map<String, Value>) -> Element;

    /// The members that an element tells.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    fn read(&self, element: &Element, member: &str) -> Result<Vec<(String, Value)>, String>;

    /// The schema of such an element in an OpenAPI document; of a deposit or a withdrawal, as it is there.
    fn schema(&self, kind: Option<TransactionKind>) -> Value;

    /// What the schema adds for sums of currencies with that many decimals; one of these holds. Nothing
    /// where the words are not about money.
    fn sums(&self, decimals: usize) -> Vec<Value>;
}

/// A format that consists of tables.
#[derive(Debug)]
pub struct Tables {
    /// Its name in partners' profiles.
    pub name: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// The media type of its problems.
    pub problem_media_type: &'static str,
    /// What a deposit or a withdrawal asks for.
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
    /// Why a request was refused.
    pub problem: &'static Table,
}

impl Tables {
    /// The table of a kind of document.
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
            && let Some(told) = members.take("type")
            && told != kind.code()
        {
            let message =
                format!("is of a {}, but this is a {}", told.as_str().unwrap_or_default(), kind.code());
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
        let (which, kind) = match shape {
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
        Some((format!("{which}{}", table.root), table.schema(json, schemas, kind)))
    }
}

impl Table {
    /// Where a member stands; the name itself where the table does not know it.
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
