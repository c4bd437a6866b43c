//! The XML declaration (XML 1.0, productions 23 to 32). The parser ignores misspelled parts, so this module checks them.

use quick_xml::events::BytesDecl;

use super::shown;
use crate::text::Charset;

/// Returns the encoding that a declaration names, or UTF-8 if it names none. A text that its transport has `decoded` can also name
/// UTF-16, because writers name the encoding of their own strings; the transport decides (RFC 7303, section 3).
///
/// # Errors
/// The violated rule, for another version of XML, another encoding, or a declaration that violates the grammar.
pub(super) fn declared_charset(declaration: &BytesDecl<'_>, decoded: bool) -> Result<Charset, String> {
    let malformed = "has a malformed XML declaration; expected version=\"1.0\", then optionally encoding and then standalone";
    let malformed = || malformed.to_owned();
    let Some(rest) = declaration.strip_prefix("xml") else { return Err(malformed()) };
    let (version, rest) = part(rest, "version");
    match version {
        Some("1.0") => {}
        Some(version) => return Err(format!("must be XML 1.0, but is {}", shown(version))),
        None => return Err(malformed()),
    }
    let (encoding, rest) = part(rest, "encoding");
    let (standalone, rest) = part(rest, "standalone");
    if !matches!(standalone, None | Some("yes" | "no")) || !rest.bytes().all(is_space) {
        return Err(malformed());
    }
    let Some(encoding) = encoding.filter(|name| !(decoded && name.eq_ignore_ascii_case("utf-16"))) else {
        return Ok(Charset::Utf8);
    };
    let unsupported = || format!("must be in UTF-8 or US-ASCII, but declares {}", shown(encoding));
    Charset::named(encoding).ok_or_else(unsupported)
}

/// Returns the value of the next part if it has this name, and the rest of the text.
fn part<'a>(text: &'a str, name: &str) -> (Option<&'a str>, &'a str) {
    let found = || {
        let named = text.trim_start_matches(SPACE).strip_prefix(name).filter(|_| text.starts_with(SPACE))?;
        let value = named.trim_start_matches(SPACE).strip_prefix('=')?.trim_start_matches(SPACE);
        let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''))?;
        value.strip_prefix(quote)?.split_once(quote)
    };
    found().map_or((None, text), |(value, rest)| (Some(value), rest))
}

/// White space (XML 1.0, production 3).
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

fn is_space(byte: u8) -> bool {
    SPACE.contains(&char::from(byte))
}
