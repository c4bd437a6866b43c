//! `application/xml`: a `BatchRequest` of the canonical XML, with one `TransactionRequest` per item and an optional `Control`
//! with control totals. Violations use the JSON names of members, so an invalid item is the same in every format.

use std::cell::Cell;
use std::io::BufRead;
use std::rc::Rc;

use postonce_shared::messaging::xml::{Children, Element, Interrupted, XmlLimits, write};

use super::{Bounded, ITEM_BYTES_MAX, Items, ItemsError, Parsed, PlainItem, of_input};
use crate::error::ApiError;
use crate::formats::table::{Table, read_root};
use crate::formats::xml::{BATCH, BATCH_CONTROL, BATCH_ITEM};

/// Reader of the items of an XML document.
pub struct Xml<R> {
    children: Children<Bounded<R>>,
    allowance: Rc<Cell<usize>>,
    /// Number of items read so far.
    count: u32,
    /// The last item.
    item: Option<Element>,
}

impl<R: BufRead> Xml<R> {
    /// Reads the start tag of the root element.
    ///
    /// # Errors
    /// [`ItemsError`] if the root element is not a `BatchRequest`, or cannot be read.
    pub fn new(input: R, limits: &XmlLimits) -> Result<Self, ItemsError> {
        let (bounded, allowance) = Bounded::new(input);
        let (root, children) = Children::open(bounded, limits).map_err(|error| broken(error, 0))?;
        let form = |error: ApiError| {
            let problem = error.problem();
            let first = problem.violations.first().map(|it| format!("{} {}.", it.field, it.message));
            ItemsError::Form(first.unwrap_or(problem.detail))
        };
        let started = read_root(&BATCH, &root).and_then(|members| members.finish(Some(())));
        started.map_err(form)?;
        Ok(Self { children, allowance, count: 0, item: None })
    }
}

impl<R: BufRead> Items for Xml<R> {
    fn next(&mut self) -> Result<Option<Result<Parsed, ApiError>>, ItemsError> {
        self.allowance.set(ITEM_BYTES_MAX);
        let element = self.children.next_child().map_err(|error| broken(error, self.count))?;
        let Some(element) = element else { return Ok(None) };
        if element.is(BATCH.namespace, BATCH_CONTROL) {
            let around = Element::new(BATCH.namespace, BATCH.root).with(element);
            return Ok(Some(Ok(Parsed::Members(BATCH.read(&around)))));
        }
        self.count = self.count.saturating_add(1);
        let parsed = match plain(&element).and_then(PlainItem::parse) {
            Some(item) => Ok(Parsed::Plain(Box::new(item))),
            None => read_root(&BATCH_ITEM, &element).map(Parsed::Members),
        };
        self.item = Some(element);
        Ok(Some(parsed))
    }

    fn sent(&self) -> Vec<u8> {
        self.item.as_ref().map(write).unwrap_or_default().into_bytes()
    }
}

/// Returns the members of an item if each is an element with text only.
fn plain(element: &Element) -> Option<PlainItem<'_>> {
    let Table { namespace, root, .. } = BATCH_ITEM;
    let mut item = PlainItem::default();
    if !element.is(namespace, root) || !element.attributes.is_empty() || element.has_loose_text() {
        return None;
    }
    for child in element.elements() {
        if child.name.namespace != namespace || !child.attributes.is_empty() {
            return None;
        }
        item.set(BATCH_ITEM.member(&child.name.local)?, child.text()?)?;
    }
    Some(item)
}

fn broken(error: Interrupted, count: u32) -> ItemsError {
    match error {
        Interrupted::Input(error) => of_input(error),
        Interrupted::Unreadable(unreadable) => {
            ItemsError::Form(format!("After {count} items, the body {unreadable}."))
        }
    }
}
