//! Any XML document, as the element tree that all XML formats use, and as the elements of a batch.

use std::io::BufReader;

use postonce_shared::messaging::xml::{self, Children, Element, Interrupted, Node, XmlLimits};
use postonce_shared::text;

/// Maximum length of a message about a document.
const MESSAGE_CHARS_MAX: usize = 400;

/// Parses any bytes as an XML document.
pub fn check(input: &[u8]) {
    let limits = XmlLimits::default();
    // Every reader removes the byte order mark first.
    let Ok(input) = text::without_mark(input) else { return };
    match xml::read(input, &limits) {
        Err(unreadable) => {
            check_children(input, &limits, None);
            let rule = unreadable.rule;
            assert!(!rule.is_empty() && rule.chars().count() <= MESSAGE_CHARS_MAX, "{rule:?}");
            assert!(!rule.contains(char::is_control), "{rule:?}");
        }
        Ok(root) => {
            check_bounds(&root, limits.depth_max);
            check_children(input, &limits, Some(&root));
            let written = xml::write(&root);
            // Writing an element adds namespace declarations, which may exceed the limit.
            let roomy = XmlLimits { attributes_max: usize::MAX, ..limits };
            let again = xml::read(written.as_bytes(), &roomy);
            let again = again.unwrap_or_else(|error| panic!("{error}: {written:?}"));
            assert_eq!(xml::write(&again), written, "written once more");
        }
    }
}

/// Checks that a document that is parsed child by child has the same content, for any size of reads.
fn check_children(input: &[u8], limits: &XmlLimits, root: Option<&Element>) {
    for size in [1, 7, 4096] {
        let read = || {
            let (start, mut children) = Children::open(BufReader::with_capacity(size, input), limits)?;
            let mut all = Vec::new();
            while let Some(child) = children.next_child()? {
                all.push(child);
            }
            Ok::<_, Interrupted>((start, all))
        };
        let has_text = root.is_some_and(Element::has_loose_text);
        match (read(), root) {
            (Ok((start, children)), Some(root)) => {
                assert_eq!((&start.name, &start.attributes), (&root.name, &root.attributes));
                assert!(root.elements().eq(&children) && !has_text, "{root:?}");
            }
            (Ok(_), None) => panic!("only its children are acceptable"),
            (Err(Interrupted::Input(error)), _) => panic!("{error}"),
            (Err(Interrupted::Unreadable(unreadable)), root) => {
                assert!(root.is_none() || has_text, "{unreadable}");
            }
        }
    }
}

/// Checks the properties of every tree.
fn check_bounds(element: &Element, depth_left: usize) {
    let depth_left = depth_left.checked_sub(1).expect("nothing is deeper than the limit");
    assert!(!element.name.local.is_empty());
    let mut was_text = false;
    for child in &element.children {
        let is_text = matches!(child, Node::Text(_));
        assert!(!(was_text && is_text), "two adjacent text nodes");
        was_text = is_text;
        match child {
            Node::Element(inner) => check_bounds(inner, depth_left),
            Node::Text(_) => {}
            Node::Serialized(written) => panic!("{written:?} was not read"),
        }
    }
}
