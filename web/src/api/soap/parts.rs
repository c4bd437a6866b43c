//! Building blocks of envelopes, header blocks and faults.

use postonce_shared::messaging::xml::{Element, Name, Node};

use crate::error::{ApiError, Code};
use crate::formats::soap_names;

/// SOAP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// SOAP 1.1.
    V11,
    /// SOAP 1.2.
    V12,
}

impl Version {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::V11, Self::V12];

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

/// Kind of a fault, which determines its code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FaultKind {
    /// An error of the client or of the server.
    #[default]
    Other,
    /// The version of the envelope is not the version of its media type.
    VersionMismatch,
    /// The service does not understand these mandatory header blocks.
    MustUnderstand(Vec<Name>),
}

/// Returns the error for a malformed envelope.
pub fn invalid(detail: impl Into<String>) -> ApiError {
    ApiError::new(Code::BodyInvalid, format!("{}.", detail.into()))
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
