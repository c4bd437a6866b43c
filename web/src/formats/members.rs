//! The members of a request document of any format, and the violations found so far.
//!
//! [`Members::read`] deserializes a struct of [`postonce_schemas::json`]. Other deserializers stop at the first
//! invalid member. This one adds a violation, returns a placeholder (an empty text, zero, an empty list) and
//! continues, so that all violations are reported at once. Every placeholder comes with a violation, and
//! [`Members::finish`] refuses a document with a violation, so no placeholder leaves this module.
//!
//! [`Members::read`] also checks the `validator` rules of the struct. [`Members::report`] places their violations among those
//! that the domain finds; unreported ones come last. A member that could not be parsed has no other violations.

use std::cell::RefCell;
use std::collections::BTreeSet;

use postonce_schemas::json::Violation;
use postonce_shared::domain::instruction::UnknownMembers;
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Expected, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};
use validator::Validate;

use super::violations::Violations;
use super::{Format, Shape};
use crate::error::{ApiError, Code};

/// The rule that a number breaks which would lose digits.
const INEXACT: &str = "contains a number that cannot be stored exactly: it has more than 18 digits before the decimal \
                       point, or more digits than a double can represent";

/// The members of a document that were not read yet, and the violations found so far.
#[derive(Debug, Default)]
pub struct Members {
    values: Map<String, Value>,
    /// Names of members that contain a number which cannot be stored exactly.
    inexact: BTreeSet<String>,
    /// Elements of other namespaces, if the document is XML.
    elements: Vec<String>,
    found: Violations,
    /// Format and kind of the document, if its field names differ from the member names.
    document: Option<(&'static dyn Format, Shape)>,
}

impl Members {
    /// Sets the format and the kind of the document. Violations then use the field names of the format.
    #[must_use]
    pub fn with_field_names_of(self, format: &'static dyn Format, shape: Shape) -> Self {
        Self { document: Some((format, shape)), ..self }
    }

    /// Creates members from the values of a document.
    pub fn of(values: Map<String, Value>) -> Self {
        Self { values, ..Self::default() }
    }

    /// Adds or replaces a member.
    pub fn insert(&mut self, name: String, value: Value) {
        self.values.insert(name, value);
    }

    /// Adds a member. A name with a dot refers to a member of an inner object.
    pub fn put(&mut self, name: &str, value: Value) {
        match name.split_once('.') {
            None => self.insert(name.to_owned(), value),
            Some((object, inner)) => {
                if let Value::Object(members) = self.object(object) {
                    members.insert(inner.to_owned(), value);
                }
            }
        }
    }

    /// Returns the inner object with this name. Inserts an empty one if it does not exist.
    pub fn object(&mut self, name: &str) -> &mut Value {
        self.values.entry(name.to_owned()).or_insert_with(|| Value::Object(Map::new()))
    }

    /// Appends an item to the list with this name.
    pub fn push(&mut self, name: &str, item: Value) {
        let list = self.values.entry(name.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(items) = list {
            items.push(item);
        }
    }

    /// Records that a member contains a number that cannot be stored exactly.
    pub fn mark_inexact(&mut self, name: &str) {
        self.inexact.insert(name.to_owned());
    }

    /// Returns the serialized elements of other namespaces, if the document is XML.
    pub const fn elements(&mut self) -> &mut Vec<String> {
        &mut self.elements
    }

    /// Adds a violation of a member, unless the member could not be parsed.
    pub fn refuse(&mut self, field: &str, message: impl Into<String>) {
        self.found.refuse(field, message);
    }

    /// Adds a violation of a member that is present but cannot be parsed. `field` is its name in violations.
    pub fn refuse_unreadable(&mut self, member: &str, field: &str, message: String) {
        self.found.refuse_unreadable(member, field, message);
    }

    /// Returns whether a member is present but could not be parsed.
    pub fn is_unreadable(&self, member: &str) -> bool {
        self.found.is_unreadable(member)
    }

    /// Returns what was sent, in one form.
    pub fn sent(&self) -> Vec<u8> {
        serde_json::to_vec(&(&self.values, &self.elements)).expect("values and texts can be written as JSON")
    }

    /// Returns whether there is a member with this name.
    pub fn contains(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns the value of a member if it is a string.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.as_str()
    }

    /// Removes a member and returns its value.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name)
    }

    /// Removes the members of a struct and deserializes them. Adds a violation for each that is missing or has another
    /// type, and [checks](Self::check) the rules of the others; and for each with a number that would lose digits. Other members
    /// stay.
    ///
    /// # Errors
    /// [`ApiError`] with status 500 when the struct has a member of an unsupported type.
    pub fn read<T: DeserializeOwned + Validate>(&mut self) -> Result<T, ApiError> {
        let found = RefCell::new(std::mem::take(&mut self.found));
        let members = Source::Value(Value::Object(std::mem::take(&mut self.values)));
        let read =
            T::deserialize(Reader::new(members, String::new(), Level::Document(&mut self.values), &found));
        self.found = found.into_inner();
        let read = read.map_err(|error| ApiError::internal(error.to_string()))?;
        self.check(&read);
        let inexact = std::mem::take(&mut self.inexact).into_iter();
        let (unread, read_here): (BTreeSet<_>, BTreeSet<_>) =
            inexact.partition(|name| self.values.contains_key(name));
        self.inexact = unread;
        read_here.iter().for_each(|name| self.refuse_unreadable(name, name, INEXACT.to_owned()));
        Ok(read)
    }

    /// Checks the rules of a struct. Their violations are added by [`Self::report`], or last in the order of the members.
    pub fn check(&mut self, read: &impl Validate) {
        if let Err(errors) = read.validate() {
            self.found.hold(errors);
        }
    }

    /// Adds the rule violations of a member now, before violations that are found later.
    pub fn report(&mut self, member: &str) {
        self.found.report(member);
    }

    /// Adds a violation for each member that was not read.
    pub fn refuse_unknown(&mut self) {
        for (name, _) in std::mem::take(&mut self.values) {
            self.refuse(&shown(&name), "is not a known field");
        }
    }

    /// Removes the members with these names, and adds a violation for each.
    pub fn refuse_members<'a>(&mut self, names: impl IntoIterator<Item = &'a String>, message: &str) {
        for name in names {
            if self.values.remove(name).is_some() {
                self.refuse(name, message);
            }
        }
    }

    /// Removes and returns all unread members. Adds a violation for each that contains a number which would lose digits,
    /// because two different contents must not become equal.
    pub fn take_unknown(&mut self) -> UnknownMembers {
        let rest = std::mem::take(&mut self.values);
        for name in std::mem::take(&mut self.inexact).iter().filter(|name| rest.contains_key(*name)) {
            self.refuse(&shown(name), format!("{INEXACT}; send it as a string"));
        }
        match std::mem::take(&mut self.elements) {
            none if none.is_empty() => UnknownMembers::Members(rest.into_iter().collect()),
            elements => UnknownMembers::Elements(elements),
        }
    }

    /// Returns all members and the violations. The elements of other namespaces become a list named `elements`.
    pub fn into_object(self, elements: &str) -> (Map<String, Value>, Vec<Violation>) {
        let Self { mut values, elements: written, found, .. } = self;
        values.insert(elements.to_owned(), written.into());
        (values, found.into_list())
    }

    /// Returns the value if there are no violations.
    ///
    /// # Errors
    /// [`ApiError`] with status 422 and every violation.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, ApiError> {
        let found = self.found.into_list();
        match value {
            Some(value) if found.is_empty() => Ok(value),
            Some(_) | None => {
                let refusal = ApiError::violations(Code::ValidationFailed, found);
                Err(match self.document {
                    Some((format, shape)) => refusal.with_fields(|member| format.field(shape, member)),
                    None => refusal,
                })
            }
        }
    }
}

/// Returns a member name of the client for a message: escaped to one line, and visible even if it is empty.
fn shown(name: &str) -> String {
    if name.is_empty() { "\"\"".to_owned() } else { name.escape_default().to_string() }
}

/// Parses a whole number that is not negative. A trailing `.0` is allowed, because `50.0` is the same number in JSON.
/// A number too large for the type becomes its maximum, which is above every limit.
fn whole_number(value: &Value) -> Option<u32> {
    let text = value.as_number()?.to_string();
    let number: u64 = text.strip_suffix(".0").unwrap_or(&text).parse().ok()?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The input for a value.
enum Source {
    /// The value in the document.
    Value(Value),
    /// The document does not contain the value.
    Absent,
    /// The enclosing object could not be parsed. The value becomes a placeholder without a violation of its own.
    Unreadable,
}

/// Level of a value in the document. It determines what happens to unread members.
enum Level<'a> {
    /// The value is the document: unread members are returned.
    Document(&'a mut Map<String, Value>),
    /// The value is a member: each unread member is a violation.
    Member,
    /// The value is an item of a list: all violations in it are reported as one violation of the item.
    Item,
}

/// Deserializer for one value.
struct Reader<'a> {
    source: Source,
    /// Name of the value in violations; empty for the document.
    field: String,
    /// Description of the expected value, from its type.
    wanted: Option<String>,
    level: Level<'a>,
    found: &'a RefCell<Violations>,
}

impl<'a> Reader<'a> {
    const fn new(source: Source, field: String, level: Level<'a>, found: &'a RefCell<Violations>) -> Self {
        Self { source, field, wanted: None, level, found }
    }

    /// Returns the name of an inner member in violations.
    fn field_of(&self, member: &str) -> String {
        if self.field.is_empty() { member.to_owned() } else { format!("{}.{member}", self.field) }
    }

    /// Adds a violation; the caller continues with a placeholder.
    fn refuse(&self, wanted: &str, hint: &str) {
        let wanted = self.wanted.as_deref().unwrap_or(wanted);
        let message = match self.source {
            Source::Unreadable => return,
            Source::Absent => format!("is missing; it must be {wanted}"),
            Source::Value(_) => format!("must be {wanted}{hint}"),
        };
        self.found.borrow_mut().refuse_unreadable(&self.field, &self.field, message);
    }

    /// Returns the members of an object. Adds a violation if the value is not an object.
    fn object(&mut self) -> Option<Map<String, Value>> {
        if let Source::Value(Value::Object(members)) = &mut self.source {
            return Some(std::mem::take(members));
        }
        self.refuse("an object", "");
        None
    }
}

impl<'de> IntoDeserializer<'de, Error> for Reader<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Error;

    /// Called for a member that may be absent but not null.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.source {
            Source::Absent | Source::Unreadable => visitor.visit_none(),
            Source::Value(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.source {
            Source::Absent | Source::Unreadable | Source::Value(Value::Null) => visitor.visit_none(),
            Source::Value(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if !matches!(self.source, Source::Value(Value::String(_))) {
            let expected: &dyn Expected = &visitor;
            self.wanted = Some(expected.to_string());
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.source {
            Source::Value(Value::String(text)) => return visitor.visit_string(text),
            Source::Value(Value::Number(_)) => self.refuse("a string", "; a JSON number can lose digits"),
            Source::Value(_) | Source::Absent | Source::Unreadable => self.refuse("a string", ""),
        }
        visitor.visit_string(String::new())
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let Source::Value(Value::Bool(value)) = self.source {
            return visitor.visit_bool(value);
        }
        self.refuse("true or false", "");
        visitor.visit_bool(false)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = if let Source::Value(value) = &self.source { whole_number(value) } else { None };
        if number.is_none() {
            self.refuse("a whole number that is not negative", "");
        }
        visitor.visit_u32(number.unwrap_or_default())
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        let items = if let Source::Value(Value::Array(items)) = &mut self.source {
            std::mem::take(items)
        } else {
            self.refuse("a list", "");
            Vec::new()
        };
        let items = items.into_iter().enumerate().map(|(index, item)| {
            Reader::new(Source::Value(item), format!("{}[{index}]", self.field), Level::Item, self.found)
        });
        visitor.visit_seq(SeqDeserializer::new(items))
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        let members = self.object().unwrap_or_default().into_iter().map(|(name, value)| {
            let field = self.field_of(&shown(&name));
            (name, Reader::new(Source::Value(value), field, Level::Member, self.found))
        });
        visitor.visit_map(MapDeserializer::new(members))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut values = self.object();
        let of_item = RefCell::new(Violations::default());
        let found = if matches!(self.level, Level::Item) { &of_item } else { self.found };
        found.borrow_mut().order(&self.field, fields);
        let members = fields.iter().map(|name| {
            let source = match &mut values {
                None => Source::Unreadable,
                Some(values) => values.remove(*name).map_or(Source::Absent, Source::Value),
            };
            (*name, Reader::new(source, self.field_of(name), Level::Member, found))
        });
        let read = visitor.visit_map(MapDeserializer::new(members))?;
        let rest = values.unwrap_or_default();
        match &mut self.level {
            Level::Document(unread) => **unread = rest,
            Level::Member => {
                for name in rest.keys() {
                    found.borrow_mut().refuse(&self.field_of(&shown(name)), "is not a known field");
                }
            }
            Level::Item if rest.is_empty() && of_item.borrow().is_empty() => {}
            Level::Item => self.refuse(&format!("an object with {}", fields.join(" and ")), ""),
        }
        Ok(read)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 u64 f32 f64 char str bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier ignored_any
    }
}
