//! XML of strangers, as a small tree: read within limits ([`read`]) and written in one form only
//! ([`write`]), so that equal content gives equal text.
//!
//! A document is hostile until it was read. What can make a small one large, slow or ambiguous is
//! refused: document types (and with them every entity but the five of XML), processing instructions,
//! other encodings than UTF-8, depth and numbers beyond limits.

mod read;
mod write;

pub use self::read::{Unreadable, XmlLimits, read};
pub use self::write::{escaped, write};

/// A name with its namespace. The prefix is kept, for whoever wants to see the same text again; two
/// names are the same by namespace and local part alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Empty for none.
    pub prefix: String,
    /// Empty for none.
    pub namespace: String,
    /// The local part.
    pub local: String,
}

/// An attribute that is no declaration of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Its name.
    pub name: Name,
    /// Its value, without references.
    pub value: String,
}

/// What can stand in an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// An element.
    Element(Element),
    /// Text; two never stand beside each other.
    Text(String),
    /// An element that [`write()`] wrote before, as it is.
    Written(String),
}

/// An element, with what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its name.
    pub name: Name,
    /// The prefixes that it declares itself, with their namespaces; the empty prefix is the default.
    pub declarations: Vec<(String, String)>,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// Its content, in order. Comments are left out.
    pub children: Vec<Node>,
}

impl Element {
    /// An empty element of a namespace, without a prefix.
    pub fn new(namespace: &str, local: &str) -> Self {
        let name = Name { prefix: String::new(), namespace: namespace.to_owned(), local: local.to_owned() };
        Self { name, declarations: Vec::new(), attributes: Vec::new(), children: Vec::new() }
    }

    /// The same with a text in it; an empty text adds nothing.
    #[must_use]
    pub fn with_text(mut self, text: &str) -> Self {
        if !text.is_empty() {
            self.children.push(Node::Text(text.to_owned()));
        }
        self
    }

    /// The same with one more element in it.
    #[must_use]
    pub fn with(mut self, child: Self) -> Self {
        self.children.push(Node::Element(child));
        self
    }

    /// Whether it has that name.
    pub fn is(&self, namespace: &str, local: &str) -> bool {
        self.name.namespace == namespace && self.name.local == local
    }

    /// The elements in it.
    pub fn elements(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter_map(|child| match child {
            Node::Element(element) => Some(element),
            Node::Text(_) | Node::Written(_) => None,
        })
    }

    /// The text in it, where there is nothing but text; `None` when it has elements.
    pub fn text(&self) -> Option<&str> {
        match self.children.as_slice() {
            [] => Some(""),
            [Node::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether something but white space stands between the elements in it.
    pub fn has_loose_text(&self) -> bool {
        let is_loose = |child: &Node| matches!(child, Node::Text(text) if !is_white_space(text));
        self.children.iter().any(is_loose)
    }
}

/// Whether a text says nothing: the white space of XML only.
pub fn is_white_space(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

/// The name of something in a document, short and harmless enough for an answer or a log.
pub fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(40).flat_map(char::escape_default).collect();
    if name.chars().nth(40).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
