//! Page of the anchors: signed statements about the ends of all journals.

use actix_web::HttpResponse;
use maud::{Markup, html};
use postonce_schemas::json::{Anchor, AnchorPage};
use postonce_shared::domain::time::Timestamp;

use crate::console::act::Values;
use crate::console::addresses::{cursor_parameter, encoded};
use crate::console::html::components::{
    Column, Tone, badge, card, copyable, definition, empty, notice, pager, table, time,
};
use crate::console::html::format;
use crate::console::html::shell::Section;
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

const PAGE_LEN: usize = 50;
/// Age above which the last anchor is overdue, in seconds. An anchor is made about once a day.
const OVERDUE_S: u64 = 3 * 86_400;
/// Number of characters of a shortened key.
const SHORT_CHARS: usize = 12;

/// Lists the anchors, newest first.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn list(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let query = Values::of_query(visitor.request());
    let cursor = cursor_parameter(query.given("cursor"));
    let page: AnchorPage = visitor.get(&format!("/v1/admin/anchors?limit={PAGE_LEN}{cursor}")).await?;
    let now = cursor.is_empty().then(|| visitor.console().world.now());
    Ok(visitor.page(Section::Anchors, "Anchors", body(&page, now)))
}

/// Returns the page. `now` is given only on the first page of the list.
fn body(page: &AnchorPage, now: Option<Timestamp>) -> Markup {
    if let ([], Some(_)) = (page.anchors.as_slice(), now) {
        return html! { (card("Anchors", none())) (explanation()) };
    }
    let head = [
        Column::number("Number"),
        Column::text("Made"),
        Column::text("Occasion"),
        Column::number("Accounts"),
        Column::text("Key of the signer"),
        Column::text("Statement and signature"),
    ];
    let rows: Vec<_> = page.anchors.iter().map(row).collect();
    let next = page.next_cursor.as_deref();
    let next = next.map(|next| format!("{}?cursor={}", Section::Anchors.path(), encoded(next)));
    html! {
        @if let Some(late) = late(page.anchors.first(), now) { (late) }
        (table("Anchors", &head, &rows))
        (pager(next.as_deref()))
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
fn late(last: Option<&Anchor>, now: Option<Timestamp>) -> Option<Markup> {
    let age_s = now?.since(Timestamp::parse(&last?.made_at)?).as_secs();
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

fn row(anchor: &Anchor) -> Vec<Markup> {
    let occasion = if anchor.kind == "restore" {
        badge(Tone::Notice, "restore: the store continues from an earlier state")
    } else {
        html! { "round of the scrubber" }
    };
    let short: String = anchor.public_key.chars().take(SHORT_CHARS).collect();
    vec![
        html! { (format::count(anchor.sequence)) },
        time(&anchor.made_at),
        occasion,
        html! { (format::count(anchor.accounts)) },
        html! { code { (short) "…" } },
        html! {
            details {
                summary { "Show" }
                (definition(&[
                    ("Key", copyable(&anchor.public_key)),
                    ("Statement", copyable(&anchor.statement)),
                    ("Signature", copyable(&anchor.signature)),
                ]))
            }
        },
    ]
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

    fn at(time: &str) -> Option<Timestamp> {
        Some(Timestamp::parse(time).unwrap())
    }

    #[test]
    fn without_anchors_the_page_says_how_to_turn_them_on() {
        let none = AnchorPage { anchors: Vec::new(), next_cursor: None };
        let html = body(&none, at("2026-11-21T09:00:00Z")).into_string();
        assert!(html.contains("<code>anchor-key</code>") && html.contains("What an anchor proves"));
        assert!(!body(&none, None).into_string().contains("There are no anchors"));
    }

    #[test]
    fn anchors_are_listed_with_what_was_signed() {
        let page = AnchorPage {
            anchors: vec![anchor("restore"), anchor("round")],
            next_cursor: Some("n_1".to_owned()),
        };
        let html = body(&page, at("2026-11-21T09:00:00Z")).into_string();
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
        let html = body(&page, at("2026-11-25T09:00:00Z")).into_string();
        assert!(html.contains("The last anchor is 4 d old"));
        assert!(!body(&page, None).into_string().contains("The last anchor is"));
    }
}
