//! Parses the children of the outermost element one after the other, so that only one of them is in memory. They are
//! equal to those in the tree that [`read`](super::read()) returns for the whole document.

use std::io::{self, BufRead};
use std::sync::Arc;

use quick_xml::Reader;
use quick_xml::errors::Error;

use super::read::{Tree, is_char, malformed, refuse};
use super::{Element, Node, Unreadable, XmlLimits, is_white_space};

/// The reason why the rest of a document cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum Interrupted {
    /// The input could not be read.
    #[error("cannot be read: {0}")]
    Input(io::Error),
    /// The input is not an acceptable document.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// A document whose children are parsed one after the other.
pub struct Children<R> {
    reader: Reader<R>,
    buffer: Vec<u8>,
    tree: Tree,
}

impl<R: BufRead> Children<R> {
    /// Parses up to the start tag of the outermost element, and returns this element without its content. The limits
    /// apply to each child; the caller limits the number of bytes that `input` yields.
    ///
    /// # Errors
    /// [`Interrupted`] at the first error.
    pub fn open(input: R, limits: &XmlLimits) -> Result<(Element, Self), Interrupted> {
        let mut reader = Reader::from_reader(input);
        reader.config_mut().check_comments = true;
        let mut children = Self { reader, buffer: Vec::new(), tree: Tree::new(*limits) };
        while children.advance()? {
            if let Some(root) = children.tree.open.first().or(children.tree.root.as_ref()) {
                return Ok((root.clone(), children));
            }
        }
        Ok(refuse("must have an element")?)
    }

    /// Returns the next child, or `None` after the end of the document.
    ///
    /// # Errors
    /// [`Interrupted`] at the first error. Text between the children is an error, too.
    pub fn next_child(&mut self) -> Result<Option<Element>, Interrupted> {
        self.tree.elements = 0;
        while self.advance()? {
            let [root] = self.tree.open.as_mut_slice() else { continue };
            match root.children.pop() {
                Some(Node::Element(child)) => return Ok(Some(child)),
                Some(Node::Text(text)) if !is_white_space(&text) => {
                    return Ok(refuse("must not have text between the elements of its outermost element")?);
                }
                Some(Node::Text(_) | Node::Serialized(_)) | None => {}
            }
        }
        let complete = std::mem::replace(&mut self.tree, Tree::new(XmlLimits::default())).finish();
        complete.map(|_| None).map_err(Interrupted::Unreadable)
    }

    /// Parses the next event of the parser. Returns false at the end of the input.
    fn advance(&mut self) -> Result<bool, Interrupted> {
        self.buffer.clear();
        let event = match self.reader.read_event_into(&mut self.buffer) {
            Ok(event) => event,
            Err(Error::Io(error)) => {
                let copy = |error: Arc<io::Error>| io::Error::new(error.kind(), error.to_string());
                return Err(Interrupted::Input(Arc::try_unwrap(error).unwrap_or_else(copy)));
            }
            Err(Error::Encoding(_)) => return Ok(refuse("must be in UTF-8, but is not")?),
            Err(error) => return Err(malformed(self.reader.error_position(), &error).into()),
        };
        if let Some(character) = event.chars().find(|character| !is_char(*character)) {
            let code = u32::from(character);
            return Ok(refuse(format!("has the character U+{code:04X}, which XML does not allow"))?);
        }
        Ok(self.tree.add(self.reader.buffer_position(), event)?)
    }
}
