//! Header blocks: those of a request that are for the service, those of them that it must understand, and their values; and those of
//! a fault.
//!
//! The rules are those of SOAP 1.1, section 4.2, and of SOAP 1.2 part 1, sections 2 and 5.2. The service is the ultimate
//! receiver. A block for another role has no effect here, whatever it is and however it is marked.

use postonce_shared::messaging::xml::{Attribute, Element, Name, shown};

use super::parts::{FaultKind, Version, holding, invalid, named};
use crate::error::ApiError;

/// Namespaces of WS-Addressing: the recommendation of 2005, and the submission of 2004, which older toolkits
/// still send.
const ADDRESSING: [&str; 2] =
    ["http://www.w3.org/2005/08/addressing", "http://schemas.xmlsoap.org/ws/2004/08/addressing"];
/// The headers of WS-Addressing that the service understands. What is sent here is `To` here; responses and faults are sent to the
/// client alone, so there is no support for `ReplyTo` and `FaultTo`.
const UNDERSTOOD: [&str; 3] = ["MessageID", "Action", "To"];
/// Largest number of blocks that are named as not understood: a fault must not be much larger than its request.
const NAMED_MAX: usize = 20;

/// WS-Addressing properties of a request, which its response refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addressing {
    namespace: &'static str,
    /// The message id as it was sent.
    pub message_id: String,
}

impl Addressing {
    /// Returns the header blocks of a response to the request. `Action` is mandatory in a message with these headers (WS-Addressing
    /// 1.0 core, section 3.2).
    pub fn of_response(&self, action: &str) -> [Element; 2] {
        let block = |local| named("wsa", self.namespace, local);
        [block("Action").with_text(action), block("RelatesTo").with_text(&self.message_id)]
    }
}

/// The header blocks of a request that are for the service.
#[derive(Debug, Default)]
pub struct HeaderBlocks {
    /// The headers `MessageID`.
    pub message_ids: Vec<Addressing>,
    /// The values of the headers `Action`.
    pub actions: Vec<String>,
    /// The first blocks that must be understood, and are not.
    pub not_understood: Vec<Name>,
}

impl HeaderBlocks {
    /// Reads the blocks of a header.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 for a block with an invalid `mustUnderstand`, and for a known block that cannot be read.
    pub fn of(version: Version, header: &Element) -> Result<Self, ApiError> {
        let mut found = Self::default();
        for block in header.elements().filter(|block| is_for_this_service(version, block)) {
            let is_mandatory = must_be_understood(version, block)?;
            let addressing = ADDRESSING.into_iter().find(|namespace| *namespace == block.name.namespace);
            let local = block.name.local.as_str();
            let Some(namespace) = addressing.filter(|_| UNDERSTOOD.contains(&local)) else {
                if is_mandatory && found.not_understood.len() < NAMED_MAX {
                    found.not_understood.push(block.name.clone());
                }
                continue;
            };
            let text = block.text().ok_or_else(|| invalid(format!("The header {local} must be a text")))?;
            let text = collapsed(text).to_owned();
            match local {
                "MessageID" => found.message_ids.push(Addressing { namespace, message_id: text }),
                "Action" => found.actions.push(text),
                _ => {}
            }
        }
        Ok(found)
    }

    /// Returns the properties to which the response refers, if they are unambiguous.
    pub fn addressing(&self) -> Option<&Addressing> {
        self.message_ids.first().filter(|_| self.message_ids.len() == 1)
    }
}

/// Returns the header blocks of a fault: for a version mismatch the envelopes that are supported (SOAP 1.2 part 1, section 5.4.7;
/// also in 1.1, appendix A), and in 1.2 the header blocks that are not understood (section 5.4.8).
pub fn header_blocks(version: Version, fault: &FaultKind) -> Vec<Element> {
    let v12 = |local: &str| named("env", Version::V12.namespace(), local);
    match (version, fault) {
        (Version::V11 | Version::V12, FaultKind::Other) | (Version::V11, FaultKind::MustUnderstand(_)) => {
            Vec::new()
        }
        (Version::V11 | Version::V12, FaultKind::VersionMismatch) => {
            let supported = Version::ALL
                .into_iter()
                .rev()
                .map(|it| with_qualified_name(v12("SupportedEnvelope"), it.namespace(), "Envelope"));
            vec![holding(v12("Upgrade"), supported)]
        }
        (Version::V12, FaultKind::MustUnderstand(names)) => {
            let block = |name: &Name| with_qualified_name(v12("NotUnderstood"), &name.namespace, &name.local);
            names.iter().map(block).collect()
        }
    }
}

/// Returns an element with a name in its attribute `qname`.
fn with_qualified_name(element: Element, namespace: &str, local: &str) -> Element {
    let (declarations, value) = match namespace {
        "" => (Vec::new(), local.to_owned()),
        _ => (vec![("q".to_owned(), namespace.to_owned())], format!("q:{local}")),
    };
    let name = Name { prefix: String::new(), namespace: String::new(), local: "qname".to_owned() };
    Element { declarations, attributes: vec![Attribute { name, value }], ..element }
}

/// Returns whether a block is for the service: without a role it is for the ultimate receiver, and an empty one means the same
/// (1.2 part 1, section 5.2.2).
fn is_for_this_service(version: Version, block: &Element) -> bool {
    let (name, own): (&str, &[&str]) = match version {
        Version::V11 => ("actor", &["", "http://schemas.xmlsoap.org/soap/actor/next"]),
        Version::V12 => (
            "role",
            &[
                "",
                "http://www.w3.org/2003/05/soap-envelope/role/next",
                "http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver",
            ],
        ),
    };
    attribute(version, block, name).is_none_or(|role| own.contains(&role))
}

/// Returns whether a block must be understood: `1` or `0` in 1.1 (section 4.2.3), a boolean of XML Schema in 1.2 (part 1, section
/// 5.2.3).
fn must_be_understood(version: Version, block: &Element) -> Result<bool, ApiError> {
    let Some(value) = attribute(version, block, "mustUnderstand") else { return Ok(false) };
    match (version, value) {
        (Version::V11 | Version::V12, "1") | (Version::V12, "true") => Ok(true),
        (Version::V11 | Version::V12, "0") | (Version::V12, "false") => Ok(false),
        (Version::V11 | Version::V12, other) => {
            let allowed = match version {
                Version::V11 => "1 or 0",
                Version::V12 => "true, 1, false or 0",
            };
            let local = shown(&block.name.local);
            let other = shown(other);
            Err(invalid(format!("mustUnderstand of the header {local} must be {allowed}, but is {other:?}")))
        }
    }
}

/// Returns the value of an attribute of SOAP, without the white space around it.
fn attribute<'a>(version: Version, block: &'a Element, local: &str) -> Option<&'a str> {
    let mut named = block.attributes.iter().filter(|it| it.name.local == local);
    named.find(|it| it.name.namespace == version.namespace()).map(|it| collapsed(&it.value))
}

/// Removes the white space of XML around a value (the facet `collapse` of XML Schema, for values without spaces).
fn collapsed(value: &str) -> &str {
    value.trim_matches([' ', '\t', '\r', '\n'])
}
