//! Page of the anchors: signed statements about the ends of all journals.

use actix_web::HttpResponse;
use maud::{Markup, html};
use postonce_schemas::json::{Anchor, AnchorPage};
use postonce_shared::domain::time::Timestamp;

use crate::console::addresses::Section;
use crate::console::html::components::{
    Place, Table, Tone, badge, card, copyable, definition, empty, notice, time,
};
use crate::console::html::format::{self, count};
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

/// Age above which the last anchor is overdue, in seconds. An anchor is made about once a day.
const OVERDUE_S: u64 = 3 * 86_400;
/// Number of characters of a shortened key.
const SHORT_CHARS: usize = 12;

/// Lists the anchors, newest first.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn list(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let page: AnchorPage = visitor.listing("/v1/admin/anchors?limit=50").await?;
    Ok(visitor.page("Anchors", body(&page, visitor.is_first_page(), visitor.viewer().now)))
}

fn body(page: &AnchorPage, is_first: bool, now: Timestamp) -> Markup {
    let AnchorPage { anchors, next_cursor } = page;
    let place = Place { first_page: Section::Anchors.path(), is_first, next_cursor: next_cursor.as_deref() };
    let table = Table::new("Anchors", anchors)
        .number("Number", |anchor| count(anchor.sequence))
        .text("Made", |anchor| time(&anchor.made_at))
        .text("Occasion", occasion)
        .number("Accounts", |anchor| count(anchor.accounts))
        .text("Key of the signer", short_key)
        .text("Statement and signature", signed);
    html! {
        @if let Some(late) = late(anchors.first().filter(|_| is_first), now) { (late) }
        (place.listing(anchors.is_empty(), card("Anchors", none()), table))
        (explanation())
    }
}

fn none() -> Markup {
    let help = html! {
        p { "No process makes anchors. Without them, a program with write access to the store could replace a journal with all \
             of its hashes, unnoticed. To turn them on:" }
        p { "1. Make a key pair with " code { "postonce-web anchors new-key" } ", and keep the public key." }
        p { "2. Set the secret one as " code { "anchor-key" } " of the workers, in a file (" code { "POSTONCE_ANCHOR_KEY_FILE" } ")." }
        p { "3. A round of the scrubber then makes an anchor once a day; " code { "postonce-web anchors append" } " makes one at once." }
    };
    empty("There are no anchors", help)
}

fn explanation() -> Markup {
    card(
        "What an anchor proves",
        html! {
            p {
                "An anchor is a statement about the end of the journal of each account, signed with a key that the store does not \
                 contain. Who changes a decision that is older than an anchor cannot make the anchor fit again: not even with \
                 write access to the store, and after computing all hashes anew."
            }
            p {
                "It proves this only with a copy that is kept elsewhere. Save copies outside of the bank with "
                code { "postonce-web anchors > anchors.jsonl" } ", and compare them with the store at least once a week, because it \
                 keeps what is needed for the last 7 anchors: " code { "postonce-web verify --anchors anchors.jsonl" } "."
            }
            p { "An anchor proves nothing about later decisions, and accounts that were opened later." }
        },
    )
}

/// Warns that no anchors are made any more, if the last one is overdue.
fn late(last: Option<&Anchor>, now: Timestamp) -> Option<Markup> {
    let age_s = now.since(Timestamp::parse(&last?.made_at)?).as_secs();
    let body = html! {
        p {
            "An anchor is normally made once a day. Look at the "
            a href=(Section::Scrubber.path()) { "scrubber" }
            ": its process needs the setting " code { "anchor-key" } ", its rounds must end, and a finding " code { "anchored_account" }
            " stops the signing."
        }
    };
    let title = format!("The last anchor is {} old", format::duration_s(age_s));
    (age_s > OVERDUE_S).then(|| notice(Tone::Warning, &title, body))
}

fn occasion(anchor: &Anchor) -> Markup {
    if anchor.kind == "restore" {
        return badge(Tone::Notice, "restore: the store continues from an earlier state");
    }
    html! { "round of the scrubber" }
}

fn short_key(anchor: &Anchor) -> Markup {
    let short: String = anchor.public_key.chars().take(SHORT_CHARS).collect();
    html! { code { (short) "…" } }
}

fn signed(anchor: &Anchor) -> Markup {
    html! {
        details {
            summary { "Show" }
            (definition(&[
                ("Key", copyable(&anchor.public_key)),
                ("Statement", copyable(&anchor.statement)),
                ("Signature", copyable(&anchor.signature)),
            ]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=";

    fn anchor(kind: &'static str) -> Anchor {
        Anchor {
            sequence: 1_017,
            made_at: "2026-11-21T08:00:00.123Z".to_owned(),
            kind: kind.into(),
            accounts: 12_345,
            statement: r#"{"v":1,"x":"<script>"}"#.to_owned(),
            public_key: KEY.to_owned(),
            signature: "pKvU".to_owned(),
        }
    }

    fn at(time: &str) -> Timestamp {
        Timestamp::parse(time).unwrap()
    }

    #[test]
    fn without_anchors_the_page_says_how_to_turn_them_on() {
        let none = AnchorPage { anchors: Vec::new(), next_cursor: None };
        let html = body(&none, true, at("2026-11-21T09:00:00Z")).into_string();
        assert!(html.contains("<code>anchor-key</code>") && html.contains("What an anchor proves"));
        assert!(
            !body(&none, false, at("2026-11-21T09:00:00Z")).into_string().contains("There are no anchors")
        );
    }

    #[test]
    fn anchors_are_listed_with_what_was_signed() {
        let page = AnchorPage {
            anchors: vec![anchor("restore"), anchor("round")],
            next_cursor: Some("n_1".to_owned()),
        };
        let html = body(&page, true, at("2026-11-21T09:00:00Z")).into_string();
        assert!(
            html.contains("1\u{202f}017") && html.contains("12\u{202f}345") && html.contains("JrQLj5P/89iX…")
        );
        assert!(html.contains("earlier state") && html.contains("round of the scrubber"));
        assert!(html.contains("/console/anchors?cursor=n_1") && html.contains(KEY));
        assert!(
            html.contains("&lt;script&gt;")
                && !html.contains("<script>")
                && !html.contains("The last anchor is")
        );
    }

    #[test]
    fn old_anchors_mean_that_none_are_made() {
        let page = AnchorPage { anchors: vec![anchor("round")], next_cursor: None };
        let html = body(&page, true, at("2026-11-25T09:00:00Z")).into_string();
        assert!(html.contains("The last anchor is 4 d old"));
        assert!(!body(&page, false, at("2026-11-25T09:00:00Z")).into_string().contains("The last anchor is"));
    }
}
