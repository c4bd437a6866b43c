//! Conditional requests (RFC 9110, section 13): entity tags, `If-Match` and `If-None-Match`.

use actix_web::HttpRequest;
use actix_web::http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};

/// The entity tags that a condition lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityTags(Vec<String>);

impl EntityTags {
    /// Returns the tags of `If-Match`; `None` without this condition.
    pub fn of_if_match(request: &HttpRequest) -> Option<Self> {
        Self::of(request, IF_MATCH)
    }

    /// Returns the tags of `If-None-Match`; `None` without this condition.
    pub fn of_if_none_match(request: &HttpRequest) -> Option<Self> {
        Self::of(request, IF_NONE_MATCH)
    }

    fn of(request: &HttpRequest, name: HeaderName) -> Option<Self> {
        let mut lines = request.headers().get_all(name).peekable();
        lines.peek()?;
        // A value that cannot be read lists no tag, so that a change is refused rather than made unconditionally.
        let texts = lines.filter_map(|line| line.to_str().ok());
        Some(Self(texts.flat_map(|text| text.split(',')).map(|tag| tag.trim().to_owned()).collect()))
    }

    /// Returns whether the tag is listed, by the strong comparison of `If-Match`. `*` lists every tag.
    pub fn list(&self, tag: &str) -> bool {
        self.0.iter().any(|listed| listed == "*" || listed == tag)
    }

    /// Returns whether the tag is listed, by the weak comparison of `If-None-Match`. `*` lists every tag.
    pub fn list_weakly(&self, tag: &str) -> bool {
        self.0.iter().any(|listed| listed == "*" || listed.strip_prefix("W/").unwrap_or(listed) == tag)
    }

    /// Returns whether the tag of this version is listed, in any format.
    pub fn list_version(&self, version: u64) -> bool {
        let version_of = |tag: &str| -> Option<u64> {
            let (version, _format) = tag.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
            version.parse().ok()
        };
        self.0.iter().any(|listed| listed == "*" || version_of(listed) == Some(version))
    }
}

/// Returns the tag of a representation of something that has versions. Its formats have different tags, because their bytes
/// differ.
pub fn tag_of_version(version: u64, format: &str) -> String {
    format!("\"{version}-{format}\"")
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn tags_are_compared_strongly_weakly_or_by_their_version() {
        let check = |lines: &[&'static str], strong: bool, weak: bool, version: bool| {
            let request = lines
                .iter()
                .fold(TestRequest::get(), |request, line| request.append_header((IF_MATCH, *line)))
                .to_http_request();
            let tags = EntityTags::of_if_match(&request).unwrap();
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
        check(&[""], false, false, false);
        let without = TestRequest::get().to_http_request();
        assert_eq!(EntityTags::of_if_none_match(&without), None);
    }
}
