//! The XML form: one element with four children, each once and in any order, as
//! `schemas/xsd/user-account-transaction.xsd` says. It is hostile input, so little is let through: no
//! DTD, no entities but the five of XML, no other elements, no attributes but those that say nothing
//! about the content. The size is bounded by the queue, the depth by the form.

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesDecl, BytesRef, BytesStart, Event};

use super::{Fields, NAMES, Violation, of_body};

const ROOT: &str = "UserAccountTransaction";
/// Most attributes of the root; serializers declare two or three namespaces.
const ATTRIBUTES_MAX: usize = 8;
/// After so many violations the rest of a document is not read: nobody reads more than these.
const VIOLATIONS_MAX: usize = 16;
/// Most characters that the parser's own words take.
const WORDS_CHARS_MAX: usize = 200;
/// Most characters of a field that are read; the longest that is allowed is shorter.
const FIELD_CHARS_MAX: usize = 128;

/// Reads the texts of the fields. What is wrong with the document is told; `None` when that is so much
/// that nothing in it can be trusted.
pub(super) fn read(text: &str, violations: &mut Vec<Violation>) -> Option<Fields> {
    let mut document = Document { fields: Fields::default(), place: Place::Before };
    match document.read(text, violations) {
        Ok(()) => Some(document.fields),
        Err(rule) => {
            violations.push(of_body(rule));
            None
        }
    }
}

/// Where in the document the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    Root,
    Field(usize),
    /// In an element that must not be there, which was told.
    Surplus,
    After,
}

struct Document {
    fields: Fields,
    place: Place,
}

impl Document {
    /// Reads to the end, or to the first thing after which nothing can be trusted.
    fn read(&mut self, text: &str, violations: &mut Vec<Violation>) -> Result<(), String> {
        let mut reader = Reader::from_str(text);
        loop {
            let event = reader.read_event().map_err(|error| {
                format!("is not well-formed XML at byte {}: {}", reader.error_position(), words(&error))
            })?;
            match event {
                Event::Start(start) => self.open(&start, violations)?,
                Event::Empty(start) => {
                    self.open(&start, violations)?;
                    self.close();
                }
                Event::End(_) => self.close(),
                Event::Text(text) => self.text(&text.xml10_content())?,
                Event::CData(text) => self.text(&text.xml10_content())?,
                Event::GeneralRef(reference) => self.text(&resolve(&reference)?)?,
                Event::Comment(_) => {}
                Event::Decl(declaration) => check_declaration(&declaration)?,
                Event::PI(_) => return Err("must not have processing instructions".to_owned()),
                Event::DocType(_) => return Err("must not have a document type declaration".to_owned()),
                Event::Eof => break,
            }
            if violations.len() >= VIOLATIONS_MAX {
                return Err("was not read further".to_owned());
            }
        }
        match self.place {
            Place::After => Ok(()),
            Place::Before => Err(format!("must have one element {ROOT}")),
            Place::Root | Place::Field(_) | Place::Surplus => {
                Err("ends before its last element is closed".to_owned())
            }
        }
    }

    fn open(&mut self, start: &BytesStart<'_>, violations: &mut Vec<Violation>) -> Result<(), String> {
        let name = start.name();
        let name = name.as_ref();
        match self.place {
            Place::Before if name == ROOT => {
                check_attributes(start, violations)?;
                self.place = Place::Root;
            }
            Place::Before => return Err(format!("must be a {ROOT}, but is a {}", shown(name))),
            Place::After => return Err(format!("must end after one {ROOT}")),
            Place::Field(_) | Place::Surplus => {
                return Err(format!(
                    "must not have elements within elements of {ROOT}, such as {}",
                    shown(name)
                ));
            }
            Place::Root => self.open_field(start, violations),
        }
        Ok(())
    }

    fn open_field(&mut self, start: &BytesStart<'_>, violations: &mut Vec<Violation>) {
        let name = start.name();
        let name = name.as_ref();
        let known = NAMES.iter().position(|known| *known == name);
        let Some((field, text)) = known.and_then(|field| Some((field, self.fields.0.get_mut(field)?))) else {
            let rule = format!("must not have the element {}; allowed are {}", shown(name), NAMES.join(", "));
            violations.push(of_body(rule));
            self.place = Place::Surplus;
            return;
        };
        let mut refuse = |rule: &str| {
            violations.push(Violation { field: name.to_owned(), rule: rule.to_owned() });
        };
        if !start.attributes_raw().trim().is_empty() {
            refuse("must not have attributes");
        }
        if text.is_some() {
            refuse("must not stand more than once");
            self.place = Place::Surplus;
            return;
        }
        *text = Some(String::new());
        self.place = Place::Field(field);
    }

    fn close(&mut self) {
        self.place = match self.place {
            Place::Field(field) => {
                // White space around a value says nothing, as in the schema.
                if let Some(Some(text)) = self.fields.0.get_mut(field) {
                    *text = text.trim_ascii().to_owned();
                }
                Place::Root
            }
            Place::Surplus => Place::Root,
            Place::Root | Place::Before | Place::After => Place::After,
        };
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        if let Place::Field(field) = self.place {
            if let Some(Some(so_far)) = self.fields.0.get_mut(field) {
                so_far.push_str(text);
                if so_far.chars().count() > FIELD_CHARS_MAX {
                    let name = NAMES.get(field).copied().unwrap_or_default();
                    return Err(format!("has a {name} of more than {FIELD_CHARS_MAX} characters"));
                }
            }
            return Ok(());
        }
        if self.place == Place::Surplus || text.trim_ascii().is_empty() {
            return Ok(());
        }
        Err("must not have text outside of its four elements".to_owned())
    }
}

/// Lets through what serializers and validators add without changing the meaning: declarations of
/// prefixes, and where the schema is. Another default namespace would make it another element.
fn check_attributes(root: &BytesStart<'_>, violations: &mut Vec<Violation>) -> Result<(), String> {
    for (place, attribute) in root.attributes().enumerate() {
        let attribute = attribute.map_err(|error| format!("is not well-formed XML: {}", words(&error)))?;
        if place >= ATTRIBUTES_MAX {
            return Err(format!("must have at most {ATTRIBUTES_MAX} attributes"));
        }
        let name = attribute.key.as_ref();
        if !name.starts_with("xmlns:") && name != "xsi:noNamespaceSchemaLocation" {
            let rule = format!("must not have the attribute {}", shown(name));
            violations.push(Violation { field: ROOT.to_owned(), rule });
        }
    }
    Ok(())
}

fn check_declaration(declaration: &BytesDecl<'_>) -> Result<(), String> {
    let malformed =
        |error: &dyn std::fmt::Display| format!("has a malformed XML declaration: {}", words(error));
    let version = declaration.version().map_err(|error| malformed(&error))?;
    if version != "1.0" {
        return Err(format!("must be XML 1.0, but is {}", shown(&version)));
    }
    match declaration.encoding() {
        None => Ok(()),
        Some(Ok(encoding)) if encoding.eq_ignore_ascii_case("utf-8") => Ok(()),
        Some(Ok(encoding)) => Err(format!("must be in UTF-8, but says that it is in {}", shown(&encoding))),
        Some(Err(error)) => Err(malformed(&error)),
    }
}

fn resolve(reference: &BytesRef<'_>) -> Result<String, String> {
    let name = reference.xml10_content();
    match reference.resolve_char_ref() {
        Ok(Some(character)) => Ok(character.to_string()),
        Ok(None) => match resolve_xml_entity(&name) {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("has the entity &{};, which XML does not know", shown(&name))),
        },
        Err(error) => Err(format!("has a reference to no character: {}", words(&error))),
    }
}

/// What the parser says, which may quote the document at any length, control characters included.
fn words(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS_CHARS_MAX).collect()
}

/// A name that somebody else chose, short and harmless enough for a log.
fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(40).flat_map(char::escape_default).collect();
    if name.chars().count() > 40 {
        shown.push('…');
    }
    shown
}
