//! XML from untrusted sources, as a small tree: parsed within limits ([`mod@read`]), optionally child by child
//! ([`stream`]), and written in one canonical form ([`mod@write`]), so that equal content gives equal text.
//!
//! Every document is treated as hostile. Features that can make a small document large, slow or ambiguous are refused:
//! document types (and with them all entities except the five of XML), processing instructions, comments in text,
//! encodings other than UTF-8 and US-ASCII, excessive nesting, and too many elements or attributes.

mod declaration;
mod read;
mod stream;
mod write;

pub use self::read::{Unreadable, XmlLimits, read, read_decoded};
pub use self::stream::{Children, Interrupted};
pub use self::write::{escaped, write};

/// A name with its namespace. The prefix is kept to reproduce the text; [`Element::is`] ignores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The prefix; empty without one.
    pub prefix: String,
    /// The namespace; empty without one.
    pub namespace: String,
    /// The local part.
    pub local: String,
}

/// An attribute that does not declare a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The name.
    pub name: Name,
    /// The value, with all references resolved.
    pub value: String,
}

/// A child of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// An element.
    Element(Element),
    /// Text. The parser never returns two adjacent texts.
    Text(String),
    /// An element that [`write()`] has already serialized; inserted unchanged.
    Serialized(String),
}

/// An element with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its name.
    pub name: Name,
    /// The declared prefixes with their namespaces. The empty prefix is the default.
    pub declarations: Vec<(String, String)>,
    /// The attributes, without declarations of namespaces.
    pub attributes: Vec<Attribute>,
    /// The content in order, without comments.
    pub children: Vec<Node>,
}

impl Element {
    /// Creates an empty element in a namespace, without a prefix.
    pub fn new(namespace: &str, local: &str) -> Self {
        let name = Name { prefix: String::new(), namespace: namespace.to_owned(), local: local.to_owned() };
        Self { name, declarations: Vec::new(), attributes: Vec::new(), children: Vec::new() }
    }

    /// Appends a text. An empty text adds nothing.
    #[must_use]
    pub fn with_text(mut self, text: &str) -> Self {
        if !text.is_empty() {
            self.children.push(Node::Text(text.to_owned()));
        }
        self
    }

    /// Appends a child element.
    #[must_use]
    pub fn with(mut self, child: Self) -> Self {
        self.children.push(Node::Element(child));
        self
    }

    /// Returns whether the element has this name, with any prefix.
    pub fn is(&self, namespace: &str, local: &str) -> bool {
        self.name.namespace == namespace && self.name.local == local
    }

    /// Returns the child elements.
    pub fn elements(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter_map(|child| match child {
            Node::Element(element) => Some(element),
            Node::Text(_) | Node::Serialized(_) => None,
        })
    }

    /// Returns the text of an element without child elements; `None` if it has any.
    pub fn text(&self) -> Option<&str> {
        match self.children.as_slice() {
            [] => Some(""),
            [Node::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns whether the content has text other than white space outside of child elements.
    pub fn has_loose_text(&self) -> bool {
        let is_loose = |child: &Node| matches!(child, Node::Text(text) if !is_white_space(text));
        self.children.iter().any(is_loose)
    }
}

/// Returns whether a text consists only of XML white space.
pub fn is_white_space(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

/// Shortens and escapes a name from a document for a response or a log.
pub fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(40).flat_map(char::escape_default).collect();
    if name.chars().nth(40).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
