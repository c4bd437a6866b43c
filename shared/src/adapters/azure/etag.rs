//! ETags of rows, in the exact syntax of the table service: `W/"datetime'2026-11-22T20%3A08%3A00.1234567Z'"`.
//!
//! A revision may come from a queue message, and other programs may be able to write to the queue. The revision is sent in a
//! header, and in a batch in a line-based text without escaping. There, `*` or a line break followed by another header would
//! be a guard that always holds. So only a text of this syntax becomes an ETag, and any other revision matches no row.

use azure_core::Etag;
use azure_data_tables::IfMatchCondition;

use super::attempt::{ErrorResponse, RequestFault, UnexpectedResponse};
use crate::domain::account::Revision;

const BEGIN: &str = "W/\"datetime'";
const END: &str = "'\"";
/// Maximum length of the time within an ETag. The service writes 32 characters.
const TIME_CHARS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowTag(Revision);

impl RowTag {
    /// Returns the ETag for a guarded write. If the revision is not an ETag, returns the failure for an ETag that does
    /// not match (412), without a request.
    pub(super) fn of_guard(guard: &Revision) -> Result<Self, RequestFault> {
        if is_tag(guard.as_str()) {
            return Ok(Self(guard.clone()));
        }
        Err(RequestFault::of_answer(ErrorResponse { status: 412, code: None, row: None }))
    }

    /// Parses the ETag in a response of the service.
    pub(super) fn from_response(text: &str) -> Result<Revision, RequestFault> {
        if is_tag(text) {
            return Ok(Revision::new(text));
        }
        let shown: String = text.chars().take(TIME_CHARS_MAX).collect();
        Err(RequestFault::Unclear(Box::new(UnexpectedResponse(format!("the invalid ETag {shown:?}")))))
    }

    /// Returns the condition that the row has this ETag.
    pub(super) fn condition(&self) -> IfMatchCondition {
        IfMatchCondition::Etag(Etag::from(self.0.as_str()))
    }
}

fn is_tag(text: &str) -> bool {
    let time = text.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b':' | b'.' | b'%' | b'+');
    time.is_some_and(|time| !time.is_empty() && time.len() <= TIME_CHARS_MAX && time.bytes().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_of_the_service_are_accepted() {
        for text in [
            "W/\"datetime'2026-11-22T20%3A08%3A00.1234567Z'\"",
            "W/\"datetime'2026-11-22T20:08:00.1234567Z'\"",
            "W/\"datetime'2026-11-22T20%3A08%3A00Z'\"",
        ] {
            assert_eq!(RowTag::from_response(text).unwrap().as_str(), text);
            let IfMatchCondition::Etag(tag) = RowTag::of_guard(&Revision::new(text)).unwrap().condition()
            else {
                panic!("{text} did not become a condition on one ETag")
            };
            assert_eq!(tag.to_string(), text);
        }
    }

    #[test]
    fn any_other_text_is_rejected() {
        let one = "W/\"datetime'2026-11-22T20%3A08%3A00.1234567Z'\"";
        let mut others: Vec<String> = ["", "*", " *", "* ", "\"\"", "W/\"*\"", "W/\"datetime''\"", "7"]
            .into_iter()
            .map(str::to_owned)
            .collect();
        for inside in ["*", "'", "\"", "\n", "\r", "\t", " ", ",", ";", "\0", "\u{7f}", "\u{fc}", "/", "\\"] {
            others.push(format!("W/\"datetime'2026{inside}11'\""));
            others.push(format!("{one}{inside}"));
            others.push(format!("{inside}{one}"));
        }
        others.push(format!("{one}, {one}"));
        others.push(format!("{one}\nif-match: *"));
        others.push(format!("W/\"datetime'{}'\"", "9".repeat(TIME_CHARS_MAX + 1)));
        others.extend((0..one.len()).map(|length| one[..length].to_owned()));
        for text in others {
            let guard = RowTag::of_guard(&Revision::new(text.as_str()));
            assert!(guard.is_err_and(|failure| failure.has_status(412)), "{text:?} was accepted as a guard");
            assert!(
                RowTag::from_response(&text).is_err_and(|failure| failure.is_unclear()),
                "{text:?} was accepted"
            );
        }
    }
}
