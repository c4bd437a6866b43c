//! Parts of pages: figures, cards, tables, notices, lists and short texts.

use maud::{Markup, Render, html};
use postonce_schemas::json::{Problem, Violation};

use super::format;
use crate::console::addresses::with_query;

/// Significance of a piece of information. A symbol always shows it too, not the color alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tone {
    /// Plain fact.
    Neutral,
    /// Normal state.
    Good,
    /// Worth noting.
    Notice,
    /// Needs attention soon.
    Warning,
    /// Error or danger.
    Bad,
}

impl Tone {
    /// Returns the value of the attribute `data-tone`, which the stylesheet uses.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Neutral => "neutral",
            Self::Good => "good",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }

    /// Returns the outline of the symbol, as an SVG path in a square of 16 units.
    const fn outline(self) -> &'static str {
        match self {
            Self::Neutral => "M8 4.5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 1 0 0-7z",
            Self::Good => "M3 8.5l3.5 3.5L13 4.5",
            Self::Notice => "M8 1.8a6.2 6.2 0 1 0 0 12.4a6.2 6.2 0 1 0 0-12.4zM8 7.4v3.6M8 4.7v.3",
            Self::Warning => "M8 2L14.6 13.6H1.4zM8 6.6v3M8 11.5v.2",
            Self::Bad => "M4 4l8 8M12 4l-8 8",
        }
    }
}

/// Table with one row for each value, and one cell for each column in each row.
pub struct Table<'a, T> {
    caption: &'a str,
    values: Vec<&'a T>,
    columns: Vec<Column<'a, T>>,
}

struct Column<'a, T> {
    title: &'a str,
    class: Option<&'static str>,
    cell: Box<dyn Fn(&T) -> Markup + 'a>,
}

impl<'a, T> Table<'a, T> {
    /// Creates a table without columns. The caption is for assistive technology, because a heading stands above the table.
    pub fn new(caption: &'a str, values: impl IntoIterator<Item = &'a T>) -> Self {
        Self { caption, values: values.into_iter().collect(), columns: Vec::new() }
    }

    /// Adds a column of text with this heading. `cell` returns the cell of a value.
    #[must_use]
    pub fn text<R: Render>(self, title: &'a str, cell: impl Fn(&T) -> R + 'a) -> Self {
        self.column(title, None, cell)
    }

    /// Adds a column of numbers, which are aligned on the right.
    #[must_use]
    pub fn number<R: Render>(self, title: &'a str, cell: impl Fn(&T) -> R + 'a) -> Self {
        self.column(title, Some("number"), cell)
    }

    fn column<R: Render>(
        mut self,
        title: &'a str,
        class: Option<&'static str>,
        cell: impl Fn(&T) -> R + 'a,
    ) -> Self {
        self.columns.push(Column { title, class, cell: Box::new(move |value| cell(value).render()) });
        self
    }
}

/// On narrow screens the table scrolls in its own region, also with the keyboard.
impl<T> Render for Table<'_, T> {
    fn render(&self) -> Markup {
        html! {
            .table-region role="region" tabindex="0" aria-label=(self.caption) {
                table {
                    caption.unseen { (self.caption) }
                    thead {
                        tr { @for column in &self.columns { th class=[column.class] scope="col" { (column.title) } } }
                    }
                    tbody {
                        @for value in &self.values {
                            tr { @for column in &self.columns { td class=[column.class] { ((column.cell)(value)) } } }
                        }
                    }
                }
            }
        }
    }
}

/// Event of a [`timeline`].
#[derive(Debug, Clone)]
pub struct TimelineEvent<'a> {
    /// Time of the event, in RFC 3339 and UTC.
    pub time: &'a str,
    /// Short description.
    pub title: &'a str,
    /// Further details.
    pub note: Option<String>,
    /// Significance of the event.
    pub tone: Tone,
}

/// Returns the symbol of a tone, hidden from assistive technology.
pub fn symbol(tone: Tone) -> Markup {
    html! {
        svg.symbol viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" data-tone=(tone.code()) {
            path d=(tone.outline()) {}
        }
    }
}

/// Returns a figure with its label, value, unit and note, for use in [`tiles`].
pub fn tile(label: &str, value: &str, unit: Option<&str>, note: Option<&str>) -> Markup {
    toned_tile(Tone::Neutral, label, value, unit, note)
}

/// Same as [`tile`], with a tone.
pub fn toned_tile(tone: Tone, label: &str, value: &str, unit: Option<&str>, note: Option<&str>) -> Markup {
    html! {
        .tile data-tone=(tone.code()) {
            dt { (label) }
            dd.tile-value { (value) @if let Some(unit) = unit { " " span.tile-unit { (unit) } } }
            @if let Some(note) = note {
                dd.tile-note { @if tone != Tone::Neutral { (symbol(tone)) } span { (note) } }
            }
        }
    }
}

/// Returns a row of figures, which wraps to the width of the screen.
pub fn tiles(tiles: &[Markup]) -> Markup {
    html! { dl.tiles { @for tile in tiles { (tile) } } }
}

/// Returns a section with a heading.
pub fn card(title: &str, body: impl Render) -> Markup {
    html! {
        section.card {
            .card-head { h2 { (title) } }
            .card-body { (body) }
        }
    }
}

/// Same as [`card`], with an element beside the heading, such as a badge, a link or a button.
pub fn card_with(title: &str, aside: Markup, body: impl Render) -> Markup {
    html! {
        section.card {
            .card-head { h2 { (title) } .card-aside { (aside) } }
            .card-body { (body) }
        }
    }
}

/// Arranges cards side by side on wide screens, and one below the other on narrow screens.
pub fn columns(cards: &[Markup]) -> Markup {
    html! { .columns { @for card in cards { (card) } } }
}

/// Returns a state of one or two words, with the symbol of its tone.
pub fn badge(tone: Tone, text: &str) -> Markup {
    html! { span.badge data-tone=(tone.code()) { (symbol(tone)) (text) } }
}

/// Place of a page in a listing, which the API returns page by page.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Address of the first page.
    pub first_page: &'a str,
    /// Whether this is the first page.
    pub is_first: bool,
    /// Cursor of the next page.
    pub next_cursor: Option<&'a str>,
}

impl Place<'_> {
    /// Returns whether the page is the whole listing.
    pub const fn is_whole(&self) -> bool {
        self.is_first && self.next_cursor.is_none()
    }

    /// Returns the items of the page with a link to the next page. If there are none, returns `empty` for an empty listing,
    /// and otherwise a text that the listing has other pages.
    pub fn listing(&self, is_empty: bool, empty_listing: Markup, items: impl Render) -> Markup {
        if is_empty && self.is_whole() {
            return empty_listing;
        }
        let help = html! { p { "A page can be empty before the end of the list." } };
        html! {
            @if is_empty { (empty("Nothing on this page", help)) } @else { (items) }
            nav.pager aria-label="Pages" {
                @match self.next_cursor {
                    Some(_) => {
                        a.button rel="next" href=(with_query(self.first_page, &[("cursor", self.next_cursor)])) { "Next page" }
                    }
                    None => span { "End of the list" },
                }
            }
        }
    }
}

/// Replaces an empty list: says what is empty, and what this means or what to do.
pub fn empty(title: &str, help: Markup) -> Markup {
    html! {
        .empty {
            svg.empty-mark viewBox="0 0 48 32" width="48" height="32" aria-hidden="true" {
                path d="M2 18L9 4h30l7 14v10H2zM2 18h13l3 5h12l3-5h13" {}
            }
            p.empty-title { (title) }
            .empty-help { (help) }
        }
    }
}

/// Returns a message, to be placed above the content it refers to.
pub fn notice(tone: Tone, title: &str, body: Markup) -> Markup {
    html! {
        .notice data-tone=(tone.code()) role=[(tone == Tone::Bad).then_some("alert")] {
            (symbol(tone))
            .notice-text { p.notice-title { (title) } (body) }
        }
    }
}

/// Explains why a request was refused or failed.
pub fn problem(status: u16, title: &str, detail: &str) -> Markup {
    explained(status, title, detail, &html! {})
}

/// Same as [`problem`], with what the API answered.
pub fn refusal(of: &Problem) -> Markup {
    let details = html! {
        @if !of.violations.is_empty() {
            ul.violations {
                @for Violation { field, message } in &of.violations { li { code { (field) } span { (message) } } }
            }
        }
        @if let Some(request) = &of.request_id {
            p.problem-request { "Request " (copyable(request)) }
        }
    };
    explained(of.status, &of.title, &of.detail, &details)
}

fn explained(status: u16, title: &str, detail: &str, details: &Markup) -> Markup {
    let tone = if status < 500 { Tone::Warning } else { Tone::Bad };
    html! {
        section.problem data-tone=(tone.code()) role="alert" {
            p.problem-status { (symbol(tone)) "Status " (status) }
            h2 { (title) }
            p { (detail) }
            (details)
        }
    }
}

/// Returns a list of names and values.
pub fn definition(entries: &[(&str, Markup)]) -> Markup {
    html! {
        dl.definition {
            @for (name, value) in entries { div { dt { (name) } dd { (value) } } }
        }
    }
}

/// Returns a list of events in the given order.
pub fn timeline(events: &[TimelineEvent<'_>]) -> Markup {
    html! {
        ol.timeline {
            @for event in events {
                li data-tone=(event.tone.code()) {
                    span.timeline-mark { (symbol(event.tone)) }
                    .timeline-text {
                        p.timeline-title { (event.title) }
                        @if let Some(note) = &event.note { p.timeline-note { (note) } }
                        p.timeline-time { (time(event.time)) }
                    }
                }
            }
        }
    }
}

/// Returns a progress bar with a text beside it. `part_permille` is in thousandths.
pub fn progress(label: &str, part_permille: u16, text: &str) -> Markup {
    html! {
        label.progress {
            span.progress-label { (label) }
            progress max="1000" value=(part_permille.min(1000)) { (text) }
            span.progress-text { (text) }
        }
    }
}

/// Returns a link styled as a button.
pub fn button_link(href: &str, text: &str) -> Markup {
    html! { a.button href=(href) { (text) } }
}

/// Returns a link, or plain text if the operator may not read the linked page.
pub fn link_if(may: bool, href: &str, words: impl Render) -> Markup {
    html! { @if may { a href=(href) { (words) } } @else { (words) } }
}

/// Returns an id, a code or another machine-readable text, which may wrap anywhere.
pub fn id(text: &str) -> Markup {
    html! { code.id { (text) } }
}

/// Same as [`id`], with a button that copies it. The script of the page shows the button.
pub fn copyable(text: &str) -> Markup {
    html! {
        span.copyable {
            code.id { (text) }
            button.copy type="button" data-copy aria-label={ "Copy " (text) } { "Copy" }
        }
    }
}

/// Returns a time with a precision of a second. It must be in RFC 3339 and UTC.
pub fn time(rfc3339: &str) -> Markup {
    html! { time datetime=(rfc3339) { (format::instant(rfc3339)) } }
}

/// Returns an elapsed time, such as `4 min 12 s`.
pub fn age(seconds: u64) -> Markup {
    html! { span.age { (format::duration_s(seconds)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tone_has_a_symbol_of_its_own() {
        let tones = [Tone::Neutral, Tone::Good, Tone::Notice, Tone::Warning, Tone::Bad];
        for (index, tone) in tones.iter().enumerate() {
            assert!(badge(*tone, "state").into_string().contains(tone.outline()));
            let others = tones.iter().skip(index + 1);
            assert!(others.clone().all(|other| other.outline() != tone.outline()));
            assert!(others.clone().all(|other| other.code() != tone.code()));
        }
    }

    #[test]
    fn a_table_scrolls_with_the_keyboard_and_aligns_numbers() {
        let table = Table::new("Queues", &[("work <1>", 12)])
            .text("Queue", |(name, _)| (*name).to_owned())
            .number("Messages", |(_, messages)| *messages);
        let table = table.render().into_string();
        assert!(table.contains(r#"role="region" tabindex="0" aria-label="Queues""#));
        assert!(table.contains(r#"<th class="number" scope="col">Messages</th>"#));
        assert!(table.contains(r#"<td>work &lt;1&gt;</td><td class="number">12</td>"#));
    }

    #[test]
    fn a_problem_names_fields_and_the_request() {
        let problem: Problem = serde_json::from_value(serde_json::json!({
            "type": "urn:postonce:problem:validation_failed", "title": "Refused", "status": 422, "detail": "Two fields.",
            "code": "validation_failed", "request_id": "r-1",
            "violations": [{ "field": "amount", "message": "must be positive" }]
        }))
        .unwrap();
        let problem = refusal(&problem).into_string();
        assert!(problem.contains("Status 422"));
        assert!(problem.contains("<li><code>amount</code><span>must be positive</span></li>"));
        assert!(problem.contains(r#"data-copy aria-label="Copy r-1""#));
    }

    #[test]
    fn times_have_both_forms() {
        let time = time("2026-11-23T06:00:00.250Z").into_string();
        assert_eq!(time, r#"<time datetime="2026-11-23T06:00:00.250Z">2026-11-23 06:00:00 UTC</time>"#);
        assert_eq!(age(252).into_string(), r#"<span class="age">4 min 12 s</span>"#);
    }

    #[test]
    fn only_an_empty_listing_is_called_empty() {
        let shown = |is_first, next_cursor, is_empty| {
            let place = Place { first_page: "/list?a=b", is_first, next_cursor };
            place.listing(is_empty, html! { "none" }, html! { "items" }).into_string()
        };
        assert_eq!(shown(true, None, true), "none");
        for (is_first, next_cursor) in [(true, Some("c&d")), (false, Some("c&d")), (false, None)] {
            let (empty, filled) = (shown(is_first, next_cursor, true), shown(is_first, next_cursor, false));
            assert!(empty.contains("Nothing on this page") && !empty.contains("none"), "{empty}");
            assert!(filled.starts_with("items<nav"), "{filled}");
            let next = r#"href="/list?a=b&amp;cursor=c%26d""#;
            assert_eq!(filled.contains(next), next_cursor.is_some(), "{filled}");
            assert_eq!(filled.contains("End of the list"), next_cursor.is_none(), "{filled}");
        }
        assert!(shown(true, None, false).contains("End of the list"));
    }
}
