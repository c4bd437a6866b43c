//! What `Signature-Input` and `Signature` say: structured fields, both dictionaries by the same labels.

use actix_web::http::header::HeaderMap;
use postonce_shared::domain::partner::SignatureKey;
use sfv::{BareItem, Dictionary, InnerList, ListEntry, ListSerializer, Parser};

use super::base::field_value;
use super::{SIGNATURE, SIGNATURE_INPUT, invalid};
use crate::error::ApiError;

/// Most signatures of a request that are looked at.
const SIGNATURES_MAX: usize = 8;
/// Most components that one of them covers.
const COMPONENTS_MAX: usize = 64;

/// One signature by a key of the partner.
pub(super) struct Signed<'a> {
    pub(super) key: &'a SignatureKey,
    pub(super) components: Vec<String>,
    /// The components with their parameters, as the last line of the base has them.
    pub(super) params: String,
    /// Seconds since 1970.
    pub(super) created: i64,
    pub(super) expires: Option<i64>,
    pub(super) algorithm: Option<String>,
    pub(super) signature: Vec<u8>,
}

/// The signatures by these keys.
///
/// # Errors
/// [`ApiError`] of status 401 when the headers cannot be read, or say something that is not known here.
pub(super) fn read<'a>(headers: &HeaderMap, keys: &'a [SignatureKey]) -> Result<Vec<Signed<'a>>, ApiError> {
    let (inputs, signatures) = (dictionary(headers, SIGNATURE_INPUT)?, dictionary(headers, SIGNATURE)?);
    if inputs.len() > SIGNATURES_MAX {
        return Err(invalid(format!("A request has at most {SIGNATURES_MAX} signatures.")));
    }
    let mut found = Vec::new();
    for (label, input) in &inputs {
        let ListEntry::InnerList(input) = input else {
            return Err(invalid(
                "Each member of Signature-Input must be a list of components in parentheses.",
            ));
        };
        let id = input.params.get("keyid").and_then(text);
        let Some(key) = keys.iter().find(|key| id == Some(key.id.as_str())) else { continue };
        let signature = match signatures.get(label) {
            Some(ListEntry::Item(item)) => item.bare_item.as_byte_sequence(),
            Some(ListEntry::InnerList(_)) | None => None,
        };
        let signature = signature.ok_or_else(|| {
            invalid("Signature must have a byte sequence under the same label as Signature-Input.")
        })?;
        found.push(signed(key, input, signature.to_vec())?);
    }
    Ok(found)
}

fn signed<'a>(key: &'a SignatureKey, input: &InnerList, signature: Vec<u8>) -> Result<Signed<'a>, ApiError> {
    let number = |name: &str| match input.params.get(name) {
        None => Ok(None),
        Some(value) => value
            .as_integer()
            .map(|seconds| Some(i64::from(seconds)))
            .ok_or_else(|| invalid(format!("The parameter {name} must be seconds since 1970."))),
    };
    let created = number("created")?.ok_or_else(|| invalid("The parameter created is missing."))?;
    let algorithm = match input.params.get("alg") {
        None => None,
        Some(value) => {
            Some(text(value).ok_or_else(|| invalid("The parameter alg must be a string."))?.to_owned())
        }
    };
    Ok(Signed {
        key,
        components: components(input)?,
        params: serialized(input),
        created,
        expires: number("expires")?,
        algorithm,
        signature,
    })
}

/// The names of the components, each once and without parameters.
fn components(input: &InnerList) -> Result<Vec<String>, ApiError> {
    if input.items.len() > COMPONENTS_MAX {
        return Err(invalid(format!("A signature covers at most {COMPONENTS_MAX} components.")));
    }
    let mut names: Vec<String> = Vec::with_capacity(input.items.len());
    for item in &input.items {
        let name = text(&item.bare_item).ok_or_else(|| invalid("Each component must be a string."))?;
        if !item.params.is_empty() {
            return Err(invalid("Components with parameters are not supported here."));
        }
        if names.iter().any(|other| other == name) {
            return Err(invalid("A component stands more than once."));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

fn serialized(input: &InnerList) -> String {
    let mut list = ListSerializer::new();
    let mut inner = list.inner_list();
    inner.items(&input.items);
    let _serializer = inner.finish().parameters(&input.params);
    list.finish().unwrap_or_default()
}

fn text(item: &BareItem) -> Option<&str> {
    item.as_string().map(|text| text.as_str())
}

/// A header that is a dictionary; empty where it is missing.
pub(super) fn dictionary(headers: &HeaderMap, name: &'static str) -> Result<Dictionary, ApiError> {
    let value = field_value(headers, name).unwrap_or_default();
    Parser::new(&value)
        .parse()
        .map_err(|_| invalid(format!("The header {name} is no dictionary of RFC 9651.")))
}
