//! Parser of `Signature-Input` and `Signature`: structured field dictionaries with the same labels.

use actix_web::http::header::HeaderMap;
use postonce_shared::domain::partner::SignatureKey;
use sfv::{BareItem, Dictionary, InnerList, ListEntry, ListSerializer, Parser};

use super::base::field_value;
use super::{SIGNATURE, SIGNATURE_INPUT, invalid};
use crate::error::ApiError;

const SIGNATURES_MAX: usize = 8;
const COMPONENTS_MAX: usize = 64;

/// Parsed signature that names a key of the partner.
pub(super) struct RequestSignature<'a> {
    pub(super) key: &'a SignatureKey,
    pub(super) components: Vec<String>,
    /// The serialized components and parameters, as in the last line of the signature base.
    pub(super) params: String,
    /// Unix time in seconds.
    pub(super) created: i64,
    pub(super) expires: Option<i64>,
    pub(super) algorithm: Option<String>,
    pub(super) signature: Vec<u8>,
}

/// Parses the signatures made with `keys`. Signatures with other keys are skipped.
///
/// # Errors
/// [`ApiError`] with status 401 when the headers are malformed or use an unsupported feature.
pub(super) fn read<'a>(
    headers: &HeaderMap,
    keys: &'a [SignatureKey],
) -> Result<Vec<RequestSignature<'a>>, ApiError> {
    let (inputs, signatures) = (dictionary(headers, SIGNATURE_INPUT)?, dictionary(headers, SIGNATURE)?);
    if inputs.len() > SIGNATURES_MAX {
        return Err(invalid(format!("A request may have at most {SIGNATURES_MAX} signatures.")));
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
        found.push(parse_signature(key, input, signature.to_vec())?);
    }
    Ok(found)
}

fn parse_signature<'a>(
    key: &'a SignatureKey,
    input: &InnerList,
    signature: Vec<u8>,
) -> Result<RequestSignature<'a>, ApiError> {
    let number = |name: &str| match input.params.get(name) {
        None => Ok(None),
        Some(value) => value
            .as_integer()
            .map(|seconds| Some(i64::from(seconds)))
            .ok_or_else(|| invalid(format!("The parameter {name} must be a Unix time in seconds."))),
    };
    let created = number("created")?.ok_or_else(|| invalid("The parameter created is missing."))?;
    let algorithm = match input.params.get("alg") {
        None => None,
        Some(value) => {
            Some(text(value).ok_or_else(|| invalid("The parameter alg must be a string."))?.to_owned())
        }
    };
    Ok(RequestSignature {
        key,
        components: components(input)?,
        params: serialized(input),
        created,
        expires: number("expires")?,
        algorithm,
        signature,
    })
}

/// Returns the names of the components, which must be unique and have no parameters.
fn components(input: &InnerList) -> Result<Vec<String>, ApiError> {
    if input.items.len() > COMPONENTS_MAX {
        return Err(invalid(format!("A signature may cover at most {COMPONENTS_MAX} components.")));
    }
    let mut names: Vec<String> = Vec::with_capacity(input.items.len());
    for item in &input.items {
        let name = text(&item.bare_item).ok_or_else(|| invalid("Each component must be a string."))?;
        if !item.params.is_empty() {
            return Err(invalid("Components with parameters are not supported."));
        }
        if names.iter().any(|other| other == name) {
            return Err(invalid("A component occurs more than once."));
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

/// Parses a header as a dictionary. A missing header is an empty dictionary.
pub(super) fn dictionary(headers: &HeaderMap, name: &'static str) -> Result<Dictionary, ApiError> {
    let value = field_value(headers, name).unwrap_or_default();
    Parser::new(&value)
        .parse()
        .map_err(|_| invalid(format!("The header {name} is not a dictionary (RFC 9651).")))
}
