//! Envelopes: the SOAP version, the WS-Addressing headers, and the single element of the body.

use postonce_shared::messaging::xml::{self, Element, Name, Node, shown};

use crate::error::{ApiError, Code};
use crate::formats::soap_names;

/// Namespaces of WS-Addressing: the recommendation of 2005, and the submission of 2004, which older toolkits
/// still send.
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

    /// Returns the namespace of its envelopes.
    pub const fn namespace(self) -> &'static str {
        match self {
            Self::V11 => soap_names::ENVELOPE_V11,
            Self::V12 => soap_names::ENVELOPE_V12,
        }
    }

    /// Returns the media type of its messages.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::V11 => "text/xml",
            Self::V12 => "application/soap+xml",
        }
    }

    /// Returns the version with this media type.
    pub fn of_media_type(essence: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.media_type().eq_ignore_ascii_case(essence))
    }
}

/// WS-Addressing properties of a request, which its response must refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addressing {
    namespace: &'static str,
    /// The message id as it was sent.
    pub message_id: String,
}

/// The WS-Addressing headers of a request.
#[derive(Debug, Default)]
struct Headers {
    addressing: Option<Addressing>,
    actions: Vec<String>,
}

/// Parsed SOAP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Present if the request has a `MessageID`.
    pub addressing: Option<Addressing>,
    /// The values of the WS-Addressing header `Action`.
    pub actions: Vec<String>,
    /// The element in the body.
    pub body: Element,
}

impl Request {
    /// Parses an envelope of the version that the media type names.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 and the violated rule.
    pub fn parse(version: Version, root: Element) -> Result<Self, ApiError> {
        let namespace = version.namespace();
        if !root.is(namespace, "Envelope") {
            let other = Version::ALL.into_iter().find(|other| root.is(other.namespace(), "Envelope"));
            return Err(match other {
                Some(other) => invalid(format!(
                    "The envelope must have the namespace for {}, but its namespace is that of {}",
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
        let Headers { addressing, actions } =
            header.map(|header| addressing_headers(version, header)).transpose()?.unwrap_or_default();
        let mut messages = body.elements();
        match (messages.next(), messages.next()) {
            (Some(message), None) if !body.has_loose_text() => {
                Ok(Self { addressing, actions, body: message.clone() })
            }
            _ => Err(invalid("The Body must have one element and nothing else")),
        }
    }
}

fn invalid(detail: impl Into<String>) -> ApiError {
    ApiError::new(Code::BodyInvalid, format!("{}.", detail.into()))
}

/// Parses the supported headers. Refuses other headers that are marked `mustUnderstand`.
fn addressing_headers(version: Version, header: &Element) -> Result<Headers, ApiError> {
    let mut found = Headers::default();
    for block in header.elements() {
        let known = ADDRESSING.into_iter().find(|namespace| *namespace == block.name.namespace);
        let Some(namespace) = known else {
            if must_be_understood(version, block) {
                let name = shown(&block.name.local);
                return Err(ApiError::new(
                    Code::HeaderNotUnderstood,
                    format!(
                        "The header {name} of the envelope is marked mustUnderstand, but is not supported."
                    ),
                ));
            }
            continue;
        };
        let text = block.text().unwrap_or_default().trim_ascii().to_owned();
        if block.name.local == "Action" {
            found.actions.push(text);
            continue;
        }
        if block.name.local != "MessageID" {
            continue;
        }
        if found.addressing.replace(Addressing { namespace, message_id: text }).is_some() {
            return Err(ApiError::new(
                Code::IdempotencyKeyInvalid,
                "The header MessageID occurs more than once.",
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

/// Serializes an envelope with a message. `addressing` is that of the request.
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

/// Creates an empty element with a prefixed name.
pub fn named(prefix: &str, namespace: &str, local: &str) -> Element {
    let element = Element::new(namespace, local);
    Element { name: Name { prefix: prefix.to_owned(), ..element.name }, ..element }
}

/// Replaces the children of an element.
pub fn holding(element: Element, children: impl IntoIterator<Item = Element>) -> Element {
    let children = children.into_iter().map(Node::Element).collect();
    Element { children, ..element }
}
