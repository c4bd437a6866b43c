//! An instruction: a valid request of a partner to move money, not stored yet. Its fingerprint distinguishes a repeated
//! request from a reused message id.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::json_number::JsonNumber;
use super::money::Amount;
pub use super::transaction_kind::TransactionKind;

// The validation of requests keeps instructions within these limits. The tests of the stores use them.
/// Longest reference, in characters. ISO 20022 `Max140Text`, as in unstructured remittance information.
pub const REFERENCE_CHARS_MAX: usize = 140;
/// Largest number of members of `metadata`.
pub const METADATA_ENTRIES_MAX: usize = 20;
/// Largest size of `metadata` in bytes, names and values together.
pub const METADATA_BYTES_MAX: usize = 2048;
/// Largest size of the unknown members of a request in bytes, in the form of [`Details::unknown_members`].
pub const UNKNOWN_MEMBERS_BYTES_MAX: usize = 2048;

/// The content of an instruction besides the money.
///
/// The values have been validated: they are within the limits of this module and contain no control characters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Details {
    reference: Option<String>,
    metadata: BTreeMap<String, String>,
    /// The output of [`UnknownMembers::canonical`].
    unknown_members: String,
}

impl Details {
    /// Creates the details of a valid request.
    pub fn new(
        reference: Option<String>,
        metadata: BTreeMap<String, String>,
        unknown_members: &UnknownMembers,
    ) -> Self {
        Self { reference, metadata, unknown_members: unknown_members.canonical() }
    }

    /// Builds details from a store or a queue message. They were validated when they were accepted.
    pub fn from_stored(
        reference: Option<String>,
        metadata: BTreeMap<String, String>,
        unknown_members: String,
    ) -> Self {
        Self { reference, metadata, unknown_members }
    }

    /// Returns the text that the partner gave for the statement.
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// Returns the partner's own data, unchanged.
    pub const fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Returns the canonical JSON of the request's members that this version does not know; empty without such members.
    pub fn unknown_members(&self) -> &str {
        &self.unknown_members
    }
}

/// The parts of a request that this version does not know. They are stored, included in the fingerprint, and returned
/// to readers of the same kind of document.
#[derive(Debug, Clone, PartialEq)]
pub enum UnknownMembers {
    /// Members of a JSON object.
    Members(BTreeMap<String, Value>),
    /// Elements of an XML document in foreign namespaces, each written by [`crate::messaging::xml::write`].
    Elements(Vec<String>),
}

impl Default for UnknownMembers {
    fn default() -> Self {
        Self::Members(BTreeMap::new())
    }
}

impl UnknownMembers {
    /// Writes canonical JSON: an object with sorted members for members, an array of texts for elements, so that the two cannot
    /// be confused. Without unknown members the text is empty. Numbers are written by value ([`JsonNumber::canonical`]).
    fn canonical(&self) -> String {
        let mut text = String::new();
        match self {
            Self::Members(members) if !members.is_empty() => write_object(&mut text, members.iter()),
            Self::Elements(elements) if !elements.is_empty() => {
                text = Value::from(elements.as_slice()).to_string();
            }
            Self::Members(_) | Self::Elements(_) => {}
        }
        text
    }

    /// Parses [`Details::unknown_members`]. Invalid text gives no members: the partner's own data never decides about money.
    pub fn of_canonical(text: &str) -> Self {
        if text.starts_with('[') {
            return Self::Elements(serde_json::from_str(text).unwrap_or_default());
        }
        Self::Members(serde_json::from_str(text).unwrap_or_default())
    }
}

fn write_object<'a>(text: &mut String, members: impl Iterator<Item = (&'a String, &'a Value)>) {
    text.push('{');
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&Value::from(name.as_str()).to_string());
        text.push(':');
        write_canonical(text, value);
    }
    text.push('}');
}

fn write_canonical(text: &mut String, value: &Value) {
    match value {
        // Sorted here, because the order of serde_json's map depends on a feature that any crate in the build can enable.
        Value::Object(members) => {
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            write_object(text, sorted.into_iter());
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(text, item);
            }
            text.push(']');
        }
        Value::Number(number) => text.push_str(&JsonNumber::read(&number.to_string()).canonical()),
        Value::Null | Value::Bool(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
}

/// A valid request to move money on an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// The direction of the money.
    pub kind: TransactionKind,
    /// The amount to move.
    pub amount: Amount,
    /// Reference, metadata and unknown members.
    pub details: Details,
}

impl Instruction {
    /// Returns the fingerprint of the content by the newest hash rule.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint { version: 1, digest: self.digest_v1() }
    }

    /// Returns whether the content has this fingerprint by the rule of its version. A fingerprint of an unknown version
    /// never matches: it is safe to refuse a request, but not to post it twice.
    pub fn matches(&self, stored: &Fingerprint) -> bool {
        stored.version == 1 && stored.digest == self.digest_v1()
    }

    /// Version 1: SHA-256 over the fields in this order. Each text is prefixed with its length.
    fn digest_v1(&self) -> [u8; 32] {
        let Self { kind, amount, details: Details { reference, metadata, unknown_members } } = self;
        let mut fields = Fields::new("postonce instruction 1");
        fields.text(kind.code());
        fields.text(amount.currency().code());
        fields.number(amount.minor_units());
        // An absent reference must not hash like an empty one.
        fields.number(i64::from(reference.is_some()));
        fields.text(reference.as_deref().unwrap_or_default());
        fields.number(i64::try_from(metadata.len()).unwrap_or(i64::MAX));
        for (name, value) in metadata {
            fields.text(name);
            fields.text(value);
        }
        fields.text(unknown_members);
        fields.finish()
    }
}

/// An unambiguous hash over a list of fields: each text is prefixed with its length.
pub(super) struct Fields(Sha256);

impl Fields {
    /// Starts with the name of the rule, so that two rules never give the same hash.
    pub(super) fn new(rule: &str) -> Self {
        let mut fields = Self(Sha256::new());
        fields.text(rule);
        fields
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).expect("a length fits 64 bits");
        self.0.update(length.to_be_bytes());
        self.0.update(bytes);
    }

    pub(super) fn number(&mut self, number: i64) {
        self.0.update(number.to_be_bytes());
    }

    pub(super) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// A hash of the content of an instruction, with the version of the hash rule.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    version: u8,
    digest: [u8; 32],
}

impl Fingerprint {
    /// Returns whether this program knows the hash rule. A fingerprint of an unknown rule never matches.
    pub const fn has_known_rule(&self) -> bool {
        self.version == 1
    }

    /// Parses the output of [`fmt::Display`].
    pub fn parse(text: &str) -> Option<Self> {
        let (version, digest) = text.split_once(':')?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(digest, &mut bytes).ok()?;
        Some(Self { version: version.parse().ok()?, digest: bytes })
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.version, hex::encode(self.digest))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

#[cfg(test)]
mod tests;
