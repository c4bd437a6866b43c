//! Any XML document, as the element tree that all XML formats are read from.

use postonce_shared::messaging::xml::{self, Element, Node, XmlLimits};

/// Maximum length of a message about a document.
const MESSAGE_CHARS_MAX: usize = 400;

/// Parses any bytes as a document.
pub fn check(input: &[u8]) {
    let limits = XmlLimits::default();
    match xml::read(input, &limits) {
        Err(unreadable) => {
            let rule = unreadable.rule;
            assert!(!rule.is_empty() && rule.chars().count() <= MESSAGE_CHARS_MAX, "{rule:?}");
            assert!(!rule.contains(char::is_control), "{rule:?}");
        }
        Ok(root) => {
            check_bounds(&root, limits.depth_max);
            let written = xml::write(&root);
            // The namespace declarations that are added when an element is written may exceed the limit.
            let roomy = XmlLimits { attributes_max: usize::MAX, ..limits };
            let again = xml::read(written.as_bytes(), &roomy);
            let again = again.unwrap_or_else(|error| panic!("{error}: {written:?}"));
            assert_eq!(xml::write(&again), written, "written once more");
        }
    }
}

/// Properties of every tree.
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
