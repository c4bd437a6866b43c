//! Envelopes: their version, the header, and the single element of the body.

use postonce_shared::messaging::xml::{self, Element};

use super::contract::Contract;
use super::headers::{self, Addressing, HeaderBlocks};
use super::parts::{FaultKind, holding, invalid, named};
use crate::error::{ApiError, Code};

pub use super::parts::Version;

/// How the answer to a request is written, as far as the request was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyTerms {
    /// The version of the answer.
    pub version: Version,
    /// The properties of the request to which the answer relates.
    pub addressing: Option<Addressing>,
    /// The kind of fault, if the answer is one.
    pub fault: FaultKind,
}

impl ReplyTerms {
    /// Returns the terms of an answer about a request of which only the version is known.
    pub fn of(version: Version) -> Self {
        Self { version, addressing: None, fault: FaultKind::Other }
    }
}

/// Why an envelope is refused, with the terms of the fault.
#[derive(Debug)]
pub struct Refusal {
    /// The error.
    pub error: ApiError,
    /// How the fault is written.
    pub terms: Box<ReplyTerms>,
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
    /// Parses an envelope of the version that the media type names, in the order that SOAP prescribes: the version, the
    /// header blocks that the service must understand, and then the rest (1.1, sections 4.1.2 and 4.2; 1.2 part 1, section 2.6).
    ///
    /// # Errors
    /// [`Refusal`] with status 400 and the violated rule.
    pub fn parse(version: Version, root: Element) -> Result<Self, Refusal> {
        check_version(version, &root)?;
        let refuse = |error| Refusal { error, terms: Box::new(ReplyTerms::of(version)) };
        let (header, body) = parts(version, &root).map_err(refuse)?;
        let header = header.map(|header| HeaderBlocks::of(version, header)).transpose().map_err(refuse)?;
        let header = header.unwrap_or_default();
        let terms = ReplyTerms { addressing: header.addressing().cloned(), ..ReplyTerms::of(version) };
        let HeaderBlocks { message_ids, actions, not_understood } = header;
        if let Some(first) = not_understood.first() {
            let local = xml::shown(&first.local);
            let detail =
                format!("The header {local} of the envelope is marked mustUnderstand, but is not supported.");
            let error = ApiError::new(Code::HeaderNotUnderstood, detail);
            let fault = FaultKind::MustUnderstand(not_understood);
            return Err(Refusal { error, terms: Box::new(ReplyTerms { fault, ..terms }) });
        }
        if message_ids.len() > 1 {
            let detail = "The header MessageID occurs more than once.";
            return Err(refuse(ApiError::new(Code::IdempotencyKeyInvalid, detail)));
        }
        let mut messages = body.elements();
        match (messages.next(), messages.next()) {
            (Some(message), None) if !body.has_loose_text() => {
                Ok(Self { addressing: terms.addressing, actions, body: message.clone() })
            }
            _ => {
                let error = invalid("The Body must have one element and nothing else");
                Err(Refusal { error, terms: Box::new(terms) })
            }
        }
    }
}

/// Checks that the outermost element is an envelope of the version.
///
/// # Errors
/// [`Refusal`] with a version mismatch: in SOAP 1.1 if the namespace is another one (section 4.4.1), in 1.2 for any other element
/// (part 1, section 5.4.6). The fault is in 1.1 if the media type or the envelope is (1.2 part 1, appendix A).
fn check_version(version: Version, root: &Element) -> Result<(), Refusal> {
    let namespace = version.namespace();
    if root.is(namespace, "Envelope") {
        return Ok(());
    }
    let other = Version::ALL.into_iter().find(|other| root.is(other.namespace(), "Envelope"));
    let error = match other {
        Some(other) => invalid(format!(
            "The envelope must have the namespace for {}, but its namespace is that of {}",
            version.media_type(),
            other.media_type()
        )),
        None => invalid(format!("The body must be an element Envelope of the namespace {namespace}")),
    };
    let is_mismatch = match version {
        Version::V11 => root.name.local == "Envelope",
        Version::V12 => true,
    };
    let fault = if is_mismatch { FaultKind::VersionMismatch } else { FaultKind::Other };
    let terms =
        ReplyTerms { fault, ..ReplyTerms::of(other.filter(|_| version == Version::V12).unwrap_or(version)) };
    Err(Refusal { error, terms: Box::new(terms) })
}

/// Returns the header, if there is one, and the body of an envelope.
fn parts(version: Version, root: &Element) -> Result<(Option<&Element>, &Element), ApiError> {
    let namespace = version.namespace();
    let mut parts = root.elements();
    let (header, body) = match (parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(body), None) if header.is(namespace, "Header") => (Some(header), body),
        (Some(body), None, None) => (None, body),
        _ => return Err(invalid("The envelope must have one Body, and at most one Header before it")),
    };
    if !body.is(namespace, "Body") {
        return Err(invalid("The envelope must have a Body"));
    }
    if root.has_loose_text() || header.is_some_and(Element::has_loose_text) {
        return Err(invalid("The envelope and its Header must have no text between their elements"));
    }
    Ok((header, body))
}

/// Serializes an envelope with a message of a contract, and with the header blocks that its terms require.
pub fn write(contract: Contract, terms: &ReplyTerms, message: Element) -> Vec<u8> {
    let ReplyTerms { version, addressing, fault } = terms;
    let soap = |local: &str| named("soap", version.namespace(), local);
    let mut envelope = soap("Envelope");
    // The action of a fault is that of the problem in its detail, as the WSDL declares it.
    let is_fault = message.is(version.namespace(), "Fault");
    let action = contract.action(if is_fault { "Problem" } else { &message.name.local });
    let of_response = addressing.iter().flat_map(|addressing| addressing.of_response(&action));
    let blocks: Vec<Element> = of_response.chain(headers::header_blocks(*version, fault)).collect();
    if !blocks.is_empty() {
        envelope = envelope.with(holding(soap("Header"), blocks));
    }
    let envelope = envelope.with(soap("Body").with(message));
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", xml::write(&envelope)).into_bytes()
}
