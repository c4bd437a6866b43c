//! Parses bytes into a tree, within limits.

use quick_xml::NsReader;
use quick_xml::XmlVersion;
use quick_xml::errors::Error;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::{NamespaceError, PrefixDeclaration, QName};

use super::declaration::declared_charset;
use super::{Attribute, Element, Name, Node, is_white_space, shown};
use crate::text::Charset;

/// Maximum number of elements. It limits memory, because a tree needs more than its text.
const ELEMENTS_MAX: usize = 10_000;
/// Maximum length of a namespace name in bytes. It limits memory, because every element of the namespace contains a copy.
const NAMESPACE_BYTES_MAX: usize = 256;
/// The namespace of namespace declarations, which must not be declared.
const XMLNS_NAMESPACE: &str = "http://www.w3.org/2000/xmlns/";
/// The namespace that the prefix `xml` has without a declaration.
pub(super) const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";
/// Maximum length of a quoted parser message, in characters.
const MESSAGE_CHARS_MAX: usize = 200;

const COMMENT_IN_TEXT: &str = "must not have a comment before, in or after the text of an element";

/// Limits on the structure of a document. The receiver of the bytes limits their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XmlLimits {
    /// Maximum nesting depth, including the outermost element.
    pub depth_max: usize,
    /// Maximum number of attributes of one element, including namespace declarations.
    pub attributes_max: usize,
}

impl Default for XmlLimits {
    fn default() -> Self {
        Self { depth_max: 32, attributes_max: 32 }
    }
}

/// The reason why bytes are not an acceptable document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}")]
pub struct Unreadable {
    /// The end of a sentence about the document, such as "must be in UTF-8".
    pub rule: String,
}

pub(super) fn refuse<T>(rule: impl Into<String>) -> Result<T, Unreadable> {
    Err(Unreadable { rule: rule.into() })
}

/// Parses a document: text in UTF-8 without a byte order mark, which [`crate::text`] removes.
///
/// # Errors
/// [`Unreadable`] at the first error, after which the document cannot be trusted.
pub fn read(bytes: &[u8], limits: &XmlLimits) -> Result<Element, Unreadable> {
    tree_of(decode_text(bytes)?, Tree::new(*limits))
}

/// Parses a document like [`read`], from a text whose encoding its transport determined. Its XML declaration can also name
/// UTF-16.
///
/// # Errors
/// As for [`read`].
pub fn read_decoded(text: &str, limits: &XmlLimits) -> Result<Element, Unreadable> {
    check_characters(text)?;
    tree_of(text, Tree { is_decoded: true, ..Tree::new(*limits) })
}

fn tree_of(text: &str, mut tree: Tree) -> Result<Element, Unreadable> {
    let mut reader = NsReader::from_str(text);
    reader.config_mut().check_comments = true;
    loop {
        let event = reader.read_event();
        let event = event.map_err(|error| {
            if let Error::Namespace(NamespaceError::TooManyBindings(most)) = error {
                return Unreadable { rule: format!("declares more than {most} namespaces in one element") };
            }
            malformed(reader.error_position(), &error)
        })?;
        if !tree.add(reader.buffer_position(), event)? {
            return tree.finish();
        }
    }
}

/// Checks that the document is UTF-8 text with only characters that XML allows.
fn decode_text(bytes: &[u8]) -> Result<&str, Unreadable> {
    let Ok(text) = std::str::from_utf8(bytes) else { return refuse("must be in UTF-8, but is not") };
    check_characters(text).map(|()| text)
}

/// Checks that a text has only characters that XML allows.
fn check_characters(text: &str) -> Result<(), Unreadable> {
    match text.char_indices().find(|(_, character)| !is_char(*character)) {
        None => Ok(()),
        Some((at, character)) => refuse(format!(
            "has the character U+{:04X} at byte {at}, which XML does not allow",
            u32::from(character)
        )),
    }
}

/// Returns whether XML allows the character (XML 1.0, production 2).
pub(super) const fn is_char(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

/// Returns whether a name can start with the character (XML 1.0, production 4, without the colon).
const fn starts_name(character: char) -> bool {
    matches!(character,
        'A'..='Z' | '_' | 'a'..='z' | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}'
        | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}' | '\u{2070}'..='\u{218F}'
        | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}'
        | '\u{10000}'..='\u{EFFFF}')
}

/// Returns whether a name can continue with the character (XML 1.0, production 4a).
const fn continues_name(character: char) -> bool {
    starts_name(character)
        || matches!(character, '-' | '.' | '0'..='9' | '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}')
}

fn check_name(name: QName<'_>) -> Result<(), Unreadable> {
    let is_part = |part: &str| part.starts_with(starts_name) && part.chars().all(continues_name);
    let mut parts = name.as_ref().splitn(2, ':');
    if parts.all(is_part) { Ok(()) } else { refuse(format!("has the invalid name {}", shown(name.as_ref()))) }
}

/// Returns whether white space follows each value in a list of attributes. The parser does not check this.
fn are_separated(attributes: &str) -> bool {
    let (mut quote, mut follows_value) = (None, false);
    attributes.chars().all(|character| {
        let is_separated = !follows_value || character.is_ascii_whitespace();
        follows_value = false;
        match quote {
            Some(open) if open == character => (quote, follows_value) = (None, true),
            None if matches!(character, '"' | '\'') => quote = Some(character),
            Some(_) | None => {}
        }
        is_separated
    })
}

/// The open elements, and the root once it is closed.
pub(super) struct Tree {
    limits: XmlLimits,
    /// Whether the transport of the document has determined its encoding.
    is_decoded: bool,
    is_start: bool,
    /// The encoding that the XML declaration names.
    charset: Charset,
    pub(super) open: Vec<Element>,
    /// Whether a comment is the last child of the innermost open element, apart from white space.
    follows_comment: bool,
    pub(super) root: Option<Element>,
    /// Number of elements so far.
    pub(super) elements: usize,
}

impl Tree {
    pub(super) const fn new(limits: XmlLimits) -> Self {
        Self {
            limits,
            is_decoded: false,
            is_start: true,
            charset: Charset::Utf8,
            open: Vec::new(),
            follows_comment: false,
            root: None,
            elements: 0,
        }
    }

    /// Adds an event of the parser; `at` is the position after it. Returns false at the end of the input.
    pub(super) fn add(&mut self, at: u64, event: Event<'_>) -> Result<bool, Unreadable> {
        if self.charset == Charset::UsAscii && !event.is_ascii() {
            return refuse("declares US-ASCII, but has a character outside of it");
        }
        match event {
            Event::Decl(declaration) if self.is_start => {
                let declared = declared_charset(&declaration, self.is_decoded);
                self.charset = declared.map_err(|rule| Unreadable { rule })?;
            }
            Event::Decl(_) => return refuse("may have an XML declaration only at its very start"),
            Event::Start(start) => self.open(at, &start)?,
            Event::Empty(start) => {
                self.open(at, &start)?;
                self.close();
            }
            Event::End(_) => self.close(),
            Event::Text(text) if text.contains("]]>") => return refuse("must not contain ]]> in text"),
            Event::Text(text) => self.text(&text.xml10_content())?,
            Event::CData(text) => self.text(&text.xml10_content())?,
            Event::GeneralRef(reference) => self.text(&resolve(&reference)?)?,
            Event::Comment(_) => self.comment()?,
            Event::PI(_) => return refuse("must not have processing instructions"),
            Event::DocType(_) => return refuse("must not have a document type declaration"),
            Event::Eof => return Ok(false),
        }
        self.is_start = false;
        Ok(true)
    }

    /// Returns the root after the end of the input.
    pub(super) fn finish(self) -> Result<Element, Unreadable> {
        match (self.root, self.open.is_empty()) {
            (Some(root), _) => Ok(root),
            (None, true) => refuse("must have an element"),
            (None, false) => refuse("ends before its last element is closed"),
        }
    }

    fn open(&mut self, at: u64, start: &BytesStart<'_>) -> Result<(), Unreadable> {
        let XmlLimits { depth_max, attributes_max } = self.limits;
        if self.root.is_some() {
            return refuse("must end after its outermost element");
        }
        if self.open.len() >= depth_max {
            return refuse(format!("is nested deeper than {depth_max} elements"));
        }
        self.elements = self.elements.saturating_add(1);
        if self.elements > ELEMENTS_MAX {
            return refuse(format!("has more than {ELEMENTS_MAX} elements"));
        }
        check_name(start.name())?;
        if !are_separated(start.attributes_raw()) {
            return refuse("must have white space between the attributes of an element");
        }
        let (mut declarations, mut named) = (Vec::new(), Vec::new());
        for (place, attribute) in start.attributes().enumerate() {
            let attribute = attribute.map_err(|error| malformed(at, &error))?;
            if place >= attributes_max {
                return refuse(format!("has an element with more than {attributes_max} attributes"));
            }
            if attribute.value.contains('<') {
                return refuse("must not have < in an attribute");
            }
            let value = attribute.normalized_value(XmlVersion::Explicit1_0);
            let value = value.map_err(|error| malformed(at, &error))?.into_owned();
            if let Some(character) = value.chars().find(|character| !is_char(*character)) {
                return refuse(format!("refers to U+{:04X}, which XML does not allow", u32::from(character)));
            }
            match attribute.key.as_namespace_binding() {
                Some(PrefixDeclaration::Default) => declarations.push(declared("", value)?),
                Some(PrefixDeclaration::Named("")) => return refuse("must not declare an empty prefix"),
                Some(PrefixDeclaration::Named(prefix)) => declarations.push(declared(prefix, value)?),
                None => {
                    check_name(attribute.key)?;
                    named.push((attribute.key, value));
                }
            }
        }
        let name = self.resolved(start.name(), &declarations, true)?;
        let attributes = named.into_iter().map(|(name, value)| {
            let name = self.resolved(name, &declarations, false)?;
            Ok(Attribute { name, value })
        });
        let attributes = attributes.collect::<Result<_, _>>()?;
        let element = Element { name, declarations, attributes, children: Vec::new() };
        check_unique(&element)?;
        self.open.push(element);
        self.follows_comment = false;
        Ok(())
    }

    /// Resolves the namespace of a name. The parser's own resolution ignores references in declarations.
    fn resolved(
        &self,
        name: QName<'_>,
        own: &[(String, String)],
        is_element: bool,
    ) -> Result<Name, Unreadable> {
        let (local, prefix) = name.decompose();
        let prefix = prefix.map(|prefix| prefix.as_ref().to_owned()).unwrap_or_default();
        let outer = self.open.iter().rev().flat_map(|element| &element.declarations);
        let mut declared = own.iter().chain(outer).filter(|(declared, _)| *declared == prefix);
        let namespace = match prefix.as_str() {
            "" if !is_element => String::new(),
            "" => declared.next().map(|(_, namespace)| namespace.clone()).unwrap_or_default(),
            "xml" => XML_NAMESPACE.to_owned(),
            _ => match declared.next() {
                Some((_, namespace)) if !namespace.is_empty() => namespace.clone(),
                Some(_) | None => {
                    return refuse(format!("has the prefix {}, which is not declared", shown(&prefix)));
                }
            },
        };
        Ok(Name { prefix, namespace, local: local.as_ref().to_owned() })
    }

    /// Refuses a comment after text: programs differ in the text that they read from an element with a comment.
    fn comment(&mut self) -> Result<(), Unreadable> {
        let last = self.open.last().and_then(|element| element.children.last());
        if matches!(last, Some(Node::Text(text)) if !is_white_space(text)) {
            return refuse(COMMENT_IN_TEXT);
        }
        self.follows_comment = true;
        Ok(())
    }

    fn close(&mut self) {
        self.follows_comment = false;
        let Some(element) = self.open.pop() else { return };
        match self.open.last_mut() {
            Some(parent) => parent.children.push(Node::Element(element)),
            None => self.root = Some(element),
        }
    }

    fn text(&mut self, text: &str) -> Result<(), Unreadable> {
        let Some(element) = self.open.last_mut() else {
            let outside = "must not have text outside of its outermost element";
            return if is_white_space(text) { Ok(()) } else { refuse(outside) };
        };
        if self.follows_comment && !is_white_space(text) {
            return refuse(COMMENT_IN_TEXT);
        }
        match element.children.last_mut() {
            Some(Node::Text(so_far)) => so_far.push_str(text),
            Some(Node::Element(_) | Node::Serialized(_)) | None => {
                element.children.push(Node::Text(text.to_owned()));
            }
        }
        Ok(())
    }
}

/// Checks the declaration of a prefix or the default namespace by the rules of Namespaces in XML 1.0.
fn declared(prefix: &str, namespace: String) -> Result<(String, String), Unreadable> {
    if !prefix.is_empty() {
        check_name(QName(prefix))?;
    }
    let is_part = !prefix.contains(':');
    let is_bound = prefix.is_empty() || !namespace.is_empty();
    let is_free = namespace != XMLNS_NAMESPACE && (namespace == XML_NAMESPACE) == (prefix == "xml");
    if !is_part || !is_bound || !is_free {
        return refuse(match prefix {
            "" => "has an invalid declaration of the default namespace".to_owned(),
            _ => format!("has an invalid declaration of the prefix {}", shown(prefix)),
        });
    }
    if namespace.len() > NAMESPACE_BYTES_MAX {
        return refuse(format!("must not have a namespace of more than {NAMESPACE_BYTES_MAX} bytes"));
    }
    Ok((prefix.to_owned(), namespace))
}

/// Refuses attributes that are equal after their prefixes are resolved (Namespaces in XML, section 6.3).
fn check_unique(element: &Element) -> Result<(), Unreadable> {
    let mut names: Vec<(&str, &str)> =
        element.attributes.iter().map(|it| (it.name.namespace.as_str(), it.name.local.as_str())).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair.first() == pair.last()) {
        Some(pair) => {
            let local = pair.first().map(|(_, local)| shown(local)).unwrap_or_default();
            refuse(format!("has the attribute {local} twice in one element"))
        }
        None => Ok(()),
    }
}

fn resolve(reference: &BytesRef<'_>) -> Result<String, Unreadable> {
    let name = reference.xml10_content();
    match reference.resolve_char_ref() {
        Ok(Some(character)) if is_char(character) => Ok(character.to_string()),
        Ok(Some(character)) => {
            refuse(format!("refers to U+{:04X}, which XML does not allow", u32::from(character)))
        }
        Ok(None) => match resolve_xml_entity(&name) {
            Some(text) => Ok(text.to_owned()),
            None => refuse(format!("refers to the undefined entity &{};", shown(&name))),
        },
        // The message of the parser begins with "invalid character reference".
        Err(error) => refuse(format!("has an {}", parser_message(&error))),
    }
}

pub(super) fn malformed(at: u64, error: &dyn std::fmt::Display) -> Unreadable {
    Unreadable { rule: format!("is not well-formed XML at byte {at}: {}", parser_message(error)) }
}

/// Returns the parser's message, shortened and without control characters, since it may quote the document.
fn parser_message(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS_MAX).collect()
}
