//! Envelopes: which SOAP it is, the headers of WS-Addressing, and the one element in the body.

use postonce_shared::messaging::xml::{self, Element, Name, Node, shown};

use crate::error::{ApiError, Code};
use crate::formats::soap_names;

/// The namespaces of WS-Addressing: the recommendation of 2005, and the submission of 2004 that older
/// toolkits write.
const ADDRESSING: [&str; 2] =
    ["http://www.w3.org/2005/08/addressing", "http://schemas.xmlsoap.org/ws/2004/08/addressing"];

/// A version of SOAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 1.1.
    V11,
    /// 1.2.
    V12,
}

impl Version {
    const ALL: [Self; 2] = [Self::V11, Self::V12];

    /// The namespace of its envelopes.
    pub const fn namespace(self) -> &'static str {
        match self {
            Self::V11 => soap_names::ENVELOPE_V11,
            Self::V12 => soap_names::ENVELOPE_V12,
        }
    }

    /// The media type of its messages.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::V11 => "text/xml",
            Self::V12 => "application/soap+xml",
        }
    }

    /// The version whose messages have that media type.
    pub fn of_media_type(essence: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.media_type().eq_ignore_ascii_case(essence))
    }
}

/// What a message says about itself, and its answer has to repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addressing {
    namespace: &'static str,
    /// The id of the message, as it was sent.
    pub message_id: String,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where it has a `MessageID`.
    pub addressing: Option<Addressing>,
    /// The element in its body.
    pub body: Element,
}

impl Request {
    /// Reads an envelope of the version that its media type says.
    ///
    /// # Errors
    /// [`ApiError`] of status 400, with the rule that it breaks.
    pub fn parse(version: Version, root: Element) -> Result<Self, ApiError> {
        let namespace = version.namespace();
        if !root.is(namespace, "Envelope") {
            let other = Version::ALL.into_iter().find(|other| root.is(other.namespace(), "Envelope"));
            return Err(match other {
                Some(other) => invalid(format!(
                    "The envelope must be that of {}, but its namespace is that of {}",
                    version.media_type(),
                    other.media_type()
                )),
                None => invalid(format!("The body must be an element Envelope of the namespace {namespace}")),
            });
        }
        let mut parts = root.elements();
        let (header, body) = match (parts.next(), parts.next(), parts.next()) {
            (Some(header), Some(body), None) if header.is(namespace, "Header") => (Some(header), body),
            (Some(body), None, None) => (None, body),
            _ => return Err(invalid("The envelope must have one Body, and at most one Header before it")),
        };
        if !body.is(namespace, "Body") {
            return Err(invalid("The envelope must have a Body"));
        }
        let addressing = header.map(|header| addressing(version, header)).transpose()?.flatten();
        let mut messages = body.elements();
        match (messages.next(), messages.next()) {
            (Some(message), None) if !body.has_loose_text() => Ok(Self { addressing, body: message.clone() }),
            _ => Err(invalid("The Body must have one element and nothing else")),
        }
    }
}

fn invalid(detail: impl Into<String>) -> ApiError {
    ApiError::new(Code::BodyInvalid, format!("{}.", detail.into()))
}

/// Reads the headers that mean something here. Of the others, those that must be understood are not.
fn addressing(version: Version, header: &Element) -> Result<Option<Addressing>, ApiError> {
    let mut found: Option<Addressing> = None;
    for block in header.elements() {
        let known = ADDRESSING.into_iter().find(|namespace| *namespace == block.name.namespace);
        let Some(namespace) = known else {
            if must_be_understood(version, block) {
                let name = shown(&block.name.local);
                return Err(ApiError::new(
                    Code::HeaderNotUnderstood,
                    format!("The header {name} of the envelope must be understood, and is not known here."),
                ));
            }
            continue;
        };
        if block.name.local != "MessageID" {
            continue;
        }
        let message_id = block.text().unwrap_or_default().trim_ascii().to_owned();
        if found.replace(Addressing { namespace, message_id }).is_some() {
            return Err(ApiError::new(
                Code::IdempotencyKeyInvalid,
                "The header MessageID stands more than once.",
            ));
        }
    }
    Ok(found)
}

fn must_be_understood(version: Version, block: &Element) -> bool {
    block.attributes.iter().any(|attribute| {
        let Name { namespace, local, prefix: _ } = &attribute.name;
        namespace == version.namespace()
            && local == "mustUnderstand"
            && ["1", "true"].contains(&&*attribute.value)
    })
}

/// Writes an envelope with a message in it, which answers the request with that addressing.
pub fn write(version: Version, addressing: Option<&Addressing>, message: Element) -> Vec<u8> {
    let soap = |local: &str| named("soap", version.namespace(), local);
    let mut envelope = soap("Envelope");
    if let Some(Addressing { namespace, message_id }) = addressing {
        let relates_to = named("wsa", namespace, "RelatesTo").with_text(message_id);
        envelope = envelope.with(soap("Header").with(relates_to));
    }
    let envelope = envelope.with(soap("Body").with(message));
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", xml::write(&envelope)).into_bytes()
}

/// An empty element whose name has a prefix.
pub fn named(prefix: &str, namespace: &str, local: &str) -> Element {
    let element = Element::new(namespace, local);
    Element { name: Name { prefix: prefix.to_owned(), ..element.name }, ..element }
}

/// An element with others in it, in order.
pub fn holding(element: Element, children: impl IntoIterator<Item = Element>) -> Element {
    let children = children.into_iter().map(Node::Element).collect();
    Element { children, ..element }
}
