//! The members of a document that is being read, in whatever format, and what is wrong with them so far.
//!
//! [`Members::read`] fills a struct of [`postonce_schemas::json`] by its `Deserialize`. Where other deserializers
//! stop at the first member that does not fit, this one records a violation, hands over a placeholder (an empty
//! text, zero, an empty list) and goes on, so that all violations are reported at once. Every placeholder comes
//! with a violation, and [`Members::finish`] refuses a document that has one, so no placeholder gets any further.

use std::cell::RefCell;
use std::collections::BTreeSet;

use postonce_schemas::json::Violation;
use postonce_shared::domain::instruction::UnknownMembers;
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Expected, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use super::{Format, Shape};
use crate::error::{ApiError, Code, VIOLATIONS_MAX};

/// Most objects and lists around a member of a document.
const OUTER_MEMBERS_MAX: usize = 4;

/// The members of a document that are not read yet, and the violations of the others.
#[derive(Debug, Default)]
pub struct Members {
    values: Map<String, Value>,
    /// Members with a number in them that cannot be kept exactly.
    inexact: BTreeSet<String>,
    /// Elements of other namespaces, where the document is XML.
    elements: Vec<String>,
    notes: Notes,
    /// The kind of document, where its names of members are not ours.
    document: Option<(&'static dyn Format, Shape)>,
}

/// What is wrong with a document.
#[derive(Debug, Default)]
struct Notes {
    violations: Vec<Violation>,
    /// Members that are there and cannot be read. Further violations of them are dropped.
    unreadable: BTreeSet<String>,
}

impl Notes {
    fn refuse(&mut self, field: &str, message: impl Into<String>) {
        // Only the last part of a name can be the client's own, and as long as the client likes.
        let ends = field.match_indices(['.', '[']).take(OUTER_MEMBERS_MAX).map(|(end, _)| end);
        let mut outer = ends.filter_map(|end| field.get(..end));
        if !self.unreadable.contains(field) && !outer.any(|outer| self.unreadable.contains(outer)) {
            // The others are only counted, and need no memory for texts.
            let is_shown = self.violations.len() < VIOLATIONS_MAX;
            let (field, message) =
                if is_shown { (field.to_owned(), message.into()) } else { Default::default() };
            self.violations.push(Violation { field, message });
        }
    }

    fn refuse_unreadable(&mut self, member: &str, field: &str, message: String) {
        self.refuse(field, message);
        if self.violations.len() <= VIOLATIONS_MAX {
            self.unreadable.insert(member.to_owned());
        }
    }
}

impl Members {
    /// The same members, refused under the names that they have in a document of a format.
    #[must_use]
    pub fn called_as_in(self, format: &'static dyn Format, shape: Shape) -> Self {
        Self { document: Some((format, shape)), ..self }
    }

    /// Adds a member.
    pub fn insert(&mut self, name: String, value: Value) {
        self.values.insert(name, value);
    }

    /// Adds a member; one of an inner object by a name with a dot.
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

    /// The inner object of that name, which is empty when there was none.
    pub fn object(&mut self, name: &str) -> &mut Value {
        self.values.entry(name.to_owned()).or_insert_with(|| Value::Object(Map::new()))
    }

    /// Adds an item to the list of that name.
    pub fn push(&mut self, name: &str, item: Value) {
        let list = self.values.entry(name.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(items) = list {
            items.push(item);
        }
    }

    /// Notes that a member has a number in it that cannot be kept exactly.
    pub fn mark_inexact(&mut self, name: &str) {
        self.inexact.insert(name.to_owned());
    }

    /// Elements of other namespaces, where the document is XML.
    pub const fn elements(&mut self) -> &mut Vec<String> {
        &mut self.elements
    }

    /// Notes that a member breaks a rule, unless it could not even be read.
    pub fn refuse(&mut self, field: &str, message: impl Into<String>) {
        self.notes.refuse(field, message);
    }

    /// Notes that a member is there and cannot be read; its document calls it by the name in `field`.
    pub fn refuse_unreadable(&mut self, member: &str, field: &str, message: String) {
        self.notes.refuse_unreadable(member, field, message);
    }

    /// Whether a member is there and could not be read.
    pub fn is_unreadable(&self, member: &str) -> bool {
        self.notes.unreadable.contains(member)
    }

    /// Takes a member out.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name)
    }

    /// Takes out the members that a struct has, with a violation for each that is missing or of another type. The
    /// other members stay.
    ///
    /// # Errors
    /// [`ApiError`] of status 500 when the struct has a member of a type that no document has.
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        let notes = RefCell::new(std::mem::take(&mut self.notes));
        let members = Source::Value(Value::Object(std::mem::take(&mut self.values)));
        let read =
            T::deserialize(Reader::new(members, String::new(), Place::Document(&mut self.values), &notes));
        self.notes = notes.into_inner();
        read.map_err(|error| ApiError::internal(error.to_string()))
    }

    /// Notes that every member that was not read is one too many.
    pub fn refuse_the_rest(&mut self) {
        for (name, _) in std::mem::take(&mut self.values) {
            self.refuse(&shown(&name), "is not known here");
        }
    }

    /// Notes that members with these names must not be there, and forgets them.
    pub fn refuse_members<'a>(&mut self, names: impl IntoIterator<Item = &'a String>, message: &str) {
        for name in names {
            if self.values.remove(name).is_some() {
                self.refuse(name, message);
            }
        }
    }

    /// Everything that was not read, to keep it. A member with a number that would lose digits is
    /// refused: two contents must not become one.
    pub fn take_the_rest(&mut self) -> UnknownMembers {
        let rest = std::mem::take(&mut self.values);
        for name in std::mem::take(&mut self.inexact).iter().filter(|name| rest.contains_key(*name)) {
            self.refuse(
                &shown(name),
                "has a number that cannot be kept as it is written: it has more than 18 digits before the point, or \
                 more digits than a double has; write it as a string",
            );
        }
        match std::mem::take(&mut self.elements) {
            none if none.is_empty() => UnknownMembers::Members(rest.into_iter().collect()),
            elements => UnknownMembers::Elements(elements),
        }
    }

    /// All members as they are, and the violations. Elements of other namespaces are a list under `elements`.
    pub fn into_object(self, elements: &str) -> (Map<String, Value>, Vec<Violation>) {
        let Self { mut values, elements: written, notes, .. } = self;
        values.insert(elements.to_owned(), written.into());
        (values, notes.violations)
    }

    /// The value, if nothing was wrong.
    ///
    /// # Errors
    /// [`ApiError`] of status 422 with every violation.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, ApiError> {
        match value {
            Some(value) if self.notes.violations.is_empty() => Ok(value),
            Some(_) | None => {
                let refusal = ApiError::violations(Code::ValidationFailed, self.notes.violations);
                Err(match self.document {
                    Some((format, shape)) => refusal.with_fields(|member| format.field(shape, member)),
                    None => refusal,
                })
            }
        }
    }
}

/// The name of a member that is the client's own invention: on one line, and visible even when empty.
fn shown(name: &str) -> String {
    if name.is_empty() { "\"\"".to_owned() } else { name.escape_default().to_string() }
}

/// A whole number that is not negative, also when it is written with a point, such as `50.0`: to JSON that is the
/// same. What is too large for the type is larger than any limit, too.
fn whole_number(value: &Value) -> Option<u32> {
    let text = value.as_number()?.to_string();
    let number: u64 = text.strip_suffix(".0").unwrap_or(&text).parse().ok()?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Where a value comes from.
enum Source {
    /// From the document.
    Value(Value),
    /// The document does not have it.
    Absent,
    /// It would be part of an object that could not be read: a placeholder without a violation of its own.
    Unreadable,
}

/// Where a value stands, which decides what happens with members of it that nothing reads.
enum Place<'a> {
    /// It is the document: they are given back.
    Document(&'a mut Map<String, Value>),
    /// It is a member: they are refused.
    Member,
    /// It is an item of a list: all violations in an item are reported as one, of the item.
    Item,
}

/// A value on its way into a struct or a member of it.
struct Reader<'a> {
    source: Source,
    /// Its name in violations; empty for the document.
    field: String,
    /// What it must be, in the words of its type.
    wanted: Option<String>,
    place: Place<'a>,
    notes: &'a RefCell<Notes>,
}

impl<'a> Reader<'a> {
    const fn new(source: Source, field: String, place: Place<'a>, notes: &'a RefCell<Notes>) -> Self {
        Self { source, field, wanted: None, place, notes }
    }

    /// The name of an inner member in violations.
    fn field_of(&self, member: &str) -> String {
        if self.field.is_empty() { member.to_owned() } else { format!("{}.{member}", self.field) }
    }

    /// Notes what is wrong; the caller goes on with a placeholder.
    fn refuse(&self, wanted: &str, hint: &str) {
        let wanted = self.wanted.as_deref().unwrap_or(wanted);
        let message = match self.source {
            Source::Unreadable => return,
            Source::Absent => format!("is missing; it must be {wanted}"),
            Source::Value(_) => format!("must be {wanted}{hint}"),
        };
        self.notes.borrow_mut().refuse_unreadable(&self.field, &self.field, message);
    }

    /// The members of an object.
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

    /// A member that may be left out but must not be null asks for any value.
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
            Reader::new(Source::Value(item), format!("{}[{index}]", self.field), Place::Item, self.notes)
        });
        visitor.visit_seq(SeqDeserializer::new(items))
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        let members = self.object().unwrap_or_default().into_iter().map(|(name, value)| {
            let field = self.field_of(&shown(&name));
            (name, Reader::new(Source::Value(value), field, Place::Member, self.notes))
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
        let of_item = RefCell::new(Notes::default());
        let notes = if matches!(self.place, Place::Item) { &of_item } else { self.notes };
        let members = fields.iter().map(|name| {
            let source = match &mut values {
                None => Source::Unreadable,
                Some(values) => values.remove(*name).map_or(Source::Absent, Source::Value),
            };
            (*name, Reader::new(source, self.field_of(name), Place::Member, notes))
        });
        let read = visitor.visit_map(MapDeserializer::new(members))?;
        let rest = values.unwrap_or_default();
        match &mut self.place {
            Place::Document(given_back) => **given_back = rest,
            Place::Member => {
                for name in rest.keys() {
                    notes.borrow_mut().refuse(&self.field_of(&shown(name)), "is not known here");
                }
            }
            Place::Item if rest.is_empty() && of_item.borrow().violations.is_empty() => {}
            Place::Item => self.refuse(&format!("an object with {}", fields.join(" and ")), ""),
        }
        Ok(read)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 u64 f32 f64 char str bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier ignored_any
    }
}
