//! List of dead letters, preceded by their reasons.

use std::collections::BTreeMap;

use maud::{Markup, Render, html};
use postonce_schemas::json::{DeadLetter, DeadLetterPage};

use super::all::{Affected, question};
use super::decision::Decision;
use super::detail::{age_of, state, transactions_in};
use crate::console::addresses::{DEAD_LETTER, Section, with_query};
use crate::console::html::components::{
    Place, Table, Tone, age, button_link, card, card_with, empty, id, notice,
};
use crate::console::html::format::{count, counted};
use crate::console::viewer::Viewer;

const REASON_CHARS_MAX: usize = 200;

/// A page of dead letters.
#[derive(Debug, Clone, Copy)]
pub struct Listing<'a> {
    /// The dead letters of the page.
    pub page: &'a DeadLetterPage,
    /// Whether resolved dead letters are listed too.
    pub with_resolved: bool,
    /// Whether this is the first page.
    pub is_first: bool,
}

/// Open dead letters on a page that have the same reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group<'a> {
    reason: &'a str,
    /// Id of one dead letter of the group.
    like: &'a str,
    letters: u64,
    transactions: u64,
    /// Earliest time at which one of them became a dead letter.
    oldest: &'a str,
}

/// Groups the open dead letters by reason, the largest group first.
fn groups(letters: &[DeadLetter]) -> Vec<Group<'_>> {
    let mut by_reason: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for letter in letters.iter().filter(|letter| letter.resolution.is_none()) {
        let DeadLetter { id, reason, dead_at, .. } = letter;
        let new = Group { reason, like: id, letters: 0, transactions: 0, oldest: dead_at };
        let group = by_reason.entry(reason).or_insert(new);
        group.letters = group.letters.saturating_add(1);
        group.transactions = group.transactions.saturating_add(transactions_in(letter).unwrap_or_default());
        group.oldest = group.oldest.min(dead_at);
    }
    let mut groups: Vec<Group<'_>> = by_reason.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.letters));
    groups
}

/// Returns the page. `asked` is what a decision about all dead letters with a reason affects, which awaits confirmation.
pub fn body(listing: &Listing<'_>, asked: Option<&Affected>, viewer: &Viewer) -> Markup {
    let Listing { page, with_resolved, is_first } = *listing;
    let letters = &page.dead_letters;
    let groups = groups(letters);
    let list = Section::DeadLetters.path();
    let all = with_query(list, &[("resolved", Some("include"))]);
    let (first_page, toggle) = if with_resolved {
        (all.as_str(), button_link(list, "Only open dead letters"))
    } else {
        (list, button_link(&all, "Include resolved dead letters"))
    };
    let place = Place { first_page, is_first, next_cursor: page.next_cursor.as_deref() };
    html! {
        @if let Some(affected) = asked { (question(affected, viewer)) }
        @if !groups.is_empty() { (reasons(&groups, place.is_whole(), viewer)) }
        (card_with("Dead letters", toggle, place.listing(
            letters.is_empty(),
            nothing(with_resolved),
            letters_table(letters, with_resolved, viewer),
        )))
    }
}

fn nothing(with_resolved: bool) -> Markup {
    let (title, help) = if with_resolved {
        ("No dead letters", "No work was ever set aside.")
    } else {
        (
            "No open dead letters",
            "All work was posted or rejected, or still waits in its queue. Work that fails for a reason that a repetition does \
             not change would be listed here, and wait for your decision.",
        )
    };
    empty(title, html! { p { (help) } })
}

fn reasons(groups: &[Group<'_>], is_whole: bool, viewer: &Viewer) -> Markup {
    let letters = groups.iter().fold(0_u64, |sum, group| sum.saturating_add(group.letters));
    let place = if is_whole { "" } else { " on this page" };
    let waiting = if letters == 1 { "waits" } else { "wait" };
    let title =
        format!("{}{place} {waiting} for a decision", counted(letters, "dead letter", "dead letters"));
    let table = Table::new("Open dead letters by reason", groups)
        .text("Reason", |group| shortened(group.reason))
        .number("Dead letters", |group| count(group.letters))
        .number("Transactions", |group| count(group.transactions))
        .number("Oldest", |group| age_of(group.oldest, viewer.now).map(age).unwrap_or_default())
        .text("Decide about all of the reason", decisions);
    html! {
        (notice(Tone::Bad, &title, html! {
            p {
                "Their work is not posted, and nothing of it is tried again. Remove the cause, then replay them. Discard only what \
                 must never be posted."
            }
        }))
        (card("By reason", html! {
            (table)
            @if !is_whole { p.muted { "Counted on this page. A decision is about all open dead letters with the reason." } }
        }))
    }
}

fn decisions(group: &Group<'_>) -> Markup {
    html! {
        .actions {
            @for decision in Decision::ALL {
                @let parameters = [("confirm", Some(decision.code())), ("like", Some(group.like))];
                (button_link(
                    &with_query(Section::DeadLetters.path(), &parameters),
                    &format!("{} all\u{2026}", decision.verb()),
                ))
            }
        }
    }
}

fn letters_table(letters: &[DeadLetter], with_resolved: bool, viewer: &Viewer) -> Markup {
    let table = Table::new("Dead letters", letters)
        .text("Dead letter", |letter| {
            html! { a href=(DEAD_LETTER.of([&letter.id])) { (id(&letter.id)) } }
        })
        .text("Reason", |letter| shortened(&letter.reason))
        .text("Queue", |letter| html! { span.unbroken { (letter.queue) } })
        .number("Age", |letter| age_of(&letter.dead_at, viewer.now).map(age).unwrap_or_default())
        .number("Deliveries", |letter| count(letter.dequeue_count.into()))
        .number("Transactions", |letter| {
            transactions_in(letter).map_or_else(|| "not known".to_owned(), count)
        });
    if with_resolved { table.text("State", state).render() } else { table.render() }
}

fn shortened(reason: &str) -> String {
    match reason.char_indices().nth(REASON_CHARS_MAX) {
        None => reason.to_owned(),
        Some((end, _)) => format!("{}\u{2026}", reason.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::letter;
    use super::*;
    use crate::access::scopes::Scope;
    use crate::console::viewer::tests::viewer;

    fn shown(letters: Vec<DeadLetter>, next_cursor: Option<&str>, with_resolved: bool) -> String {
        let page = DeadLetterPage { dead_letters: letters, next_cursor: next_cursor.map(str::to_owned) };
        body(&Listing { page: &page, with_resolved, is_first: true }, None, &viewer(Scope::ALL)).into_string()
    }

    fn resolved() -> DeadLetter {
        let resolution = json!({ "kind": "replayed", "by": "ops", "at": "2026-11-21T07:45:00.000Z" });
        letter(&json!({ "id": "letter-0", "reason": "resolved", "resolution": resolution }))
    }

    #[test]
    fn reasons_stand_first_with_their_numbers() {
        let letters = [
            resolved(),
            letter(&json!({ "reason": "rare" })),
            letter(&json!({ "id": "a b", "reason": "<script>", "items": ["x", "y"] })),
            letter(&json!({ "reason": "<script>", "items": ["z"], "dead_at": "2026-11-21T06:00:00.000Z" })),
        ];
        let found = groups(&letters);
        let first = Group {
            reason: "<script>",
            like: "a b",
            letters: 2,
            transactions: 3,
            oldest: "2026-11-21T06:00:00.000Z",
        };
        assert_eq!((found.len(), found[0]), (2, first));
        let html = shown(letters.to_vec(), Some("n"), true);
        assert!(html.contains("3 dead letters on this page wait for a decision"), "{html}");
        assert!(html.contains("href=\"/console/dead-letters?confirm=discard&amp;like=a%20b\""), "{html}");
        assert!(html.contains("href=\"/console/dead-letters?resolved=include&amp;cursor=n\""), "{html}");
        assert!(html.contains("<span class=\"age\">2 h</span>") && html.contains("30 min"), "{html}");
        assert!(!html.contains("<script>") && html.contains("&lt;script&gt;"));
    }

    #[test]
    fn an_empty_list_says_what_that_means() {
        let html = shown(Vec::new(), None, false);
        assert!(html.contains("No open dead letters") && html.contains("?resolved=include"), "{html}");
        assert!(!html.contains("wait for a decision"));
        assert!(shown(Vec::new(), Some("n"), false).contains("Nothing on this page"));
        assert!(shown(Vec::new(), None, true).contains("No work was ever set aside."));
    }

    #[test]
    fn resolved_ones_need_nothing() {
        let html = shown(vec![resolved()], None, true);
        assert!(html.contains("replayed") && !html.contains("By reason"), "{html}");
        assert!(html.contains("href=\"/console/dead-letters\""));
    }

    #[test]
    fn long_reasons_are_shortened() {
        let long = "\u{e9}".repeat(300);
        assert_eq!(shortened(&long).chars().count(), REASON_CHARS_MAX + 1);
        assert_eq!(shortened("short"), "short");
    }
}
