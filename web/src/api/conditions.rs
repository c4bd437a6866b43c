//! Conditional requests (RFC 9110, section 13): entity tags, `If-Match` and `If-None-Match`.

use actix_web::http::header::HeaderMap;

use crate::headers::split_unquoted;

/// The entity tags in a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntityTags {
    /// `*`: every tag.
    Any,
    /// At least one tag, each as it was sent.
    Listed(Vec<String>),
    /// Not in the grammar. It matches no tag, so that a change is refused rather than made unconditionally.
    Malformed,
}

impl EntityTags {
    /// Returns the tags in the header with that name, or `None` without it.
    pub fn of(headers: &HeaderMap, name: &str) -> Option<Self> {
        let mut lines = headers.get_all(name).peekable();
        lines.peek()?;
        let lines: Option<Vec<&str>> = lines.map(|line| line.to_str().ok()).collect();
        Some(lines.map_or(Self::Malformed, |lines| Self::parse(&lines.join(","))))
    }

    /// Parses a list of tags, or `*` (RFC 9110, section 13.1.1).
    fn parse(text: &str) -> Self {
        if text.trim() == "*" {
            return Self::Any;
        }
        let members = split_unquoted(text, ',').map(str::trim).filter(|tag| !tag.is_empty());
        let tags: Option<Vec<String>> = members.map(|tag| is_tag(tag).then(|| tag.to_owned())).collect();
        tags.filter(|tags| !tags.is_empty()).map_or(Self::Malformed, Self::Listed)
    }

    fn lists(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(tags) => tags.iter().any(|tag| is_wanted(tag)),
            Self::Malformed => false,
        }
    }

    /// Returns whether the tag is listed, by the strong comparison for `If-Match`. `*` matches every tag.
    pub fn list(&self, tag: &str) -> bool {
        self.lists(|listed| listed == tag)
    }

    /// Returns whether the tag is listed, by the weak comparison for `If-None-Match`. `*` matches every tag.
    pub fn list_weakly(&self, tag: &str) -> bool {
        self.lists(|listed| listed.strip_prefix("W/").unwrap_or(listed) == tag)
    }

    /// Returns whether a tag of this version is listed, in any format.
    pub fn list_version(&self, version: u64) -> bool {
        let version = version.to_string();
        let version_of = |tag: &str| -> Option<String> {
            let (version, _format) = tag.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
            Some(version.to_owned())
        };
        self.lists(|listed| version_of(listed).as_ref() == Some(&version))
    }

    /// Returns whether `If-None-Match` refuses a change at this version. A malformed condition refuses it too.
    pub fn refuse_version(&self, version: u64) -> bool {
        *self == Self::Malformed || self.list_version(version)
    }
}

/// Returns whether a text is an entity tag (RFC 9110, section 8.8.3).
fn is_tag(text: &str) -> bool {
    let opaque = text.strip_prefix("W/").unwrap_or(text);
    let characters = opaque.strip_prefix('"').and_then(|opaque| opaque.strip_suffix('"'));
    characters.is_some_and(|characters| characters.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x7E)))
}

/// Returns the entity tag of a version in a format. Each format has its own tag, because the bytes of the representations
/// differ.
pub fn tag_of_version(version: u64, format: &str) -> String {
    format!("\"{version}-{format}\"")
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::IF_MATCH;
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn tags_are_compared_strongly_weakly_or_by_their_version() {
        let check = |lines: &[&'static str], strong: bool, weak: bool, version: bool| {
            let request = lines
                .iter()
                .fold(TestRequest::get(), |request, line| request.append_header((IF_MATCH, *line)))
                .to_http_request();
            let tags = EntityTags::of(request.headers(), "if-match").unwrap();
            let tag = tag_of_version(7, "json");
            let found = (tags.list(&tag), tags.list_weakly(&tag), tags.list_version(7));
            assert_eq!(found, (strong, weak, version), "{lines:?}");
        };
        check(&["*"], true, true, true);
        check(&["\"7-json\""], true, true, true);
        check(&["\"6-json\" , \"7-json\""], true, true, true);
        check(&["\"6-json\"", "\"7-json\""], true, true, true);
        check(&["W/\"7-json\""], false, true, false);
        check(&["\"7-xml\""], false, false, true);
        check(&["\"8-json\""], false, false, false);
        check(&["7-json"], false, false, false);
        check(&["\"7\""], false, false, false);
        check(&["\"07-json\""], false, false, false);
        check(&["\"+7-json\""], false, false, false);
        // Malformed, so nothing matches.
        for malformed in
            ["", ",", "\"7-json", "7-json, \"7-json\"", "*, \"7-json\"", "\"*\", *", "\"7-json\" \"8-json\""]
        {
            check(&[malformed], false, false, false);
        }
        assert!(EntityTags::parse("7-json").refuse_version(7) && EntityTags::parse("*").refuse_version(7));
        assert!(!EntityTags::parse("\"8-json\"").refuse_version(7));
        let without = TestRequest::get().to_http_request();
        assert_eq!(EntityTags::of(without.headers(), "if-none-match"), None);
    }
}
