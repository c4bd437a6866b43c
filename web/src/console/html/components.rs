//! Parts of pages: figures, cards, tables, notices, lists and short texts.

use maud::{Markup, Render, html};

use super::format;

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

/// Column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    /// Heading of the column.
    pub title: &'a str,
    /// Whether the cells are numbers, which are aligned on the right.
    pub numeric: bool,
}

impl<'a> Column<'a> {
    /// Creates a column of text.
    pub const fn text(title: &'a str) -> Self {
        Self { title, numeric: false }
    }

    /// Creates a column of numbers.
    pub const fn number(title: &'a str) -> Self {
        Self { title, numeric: true }
    }

    fn class(&self) -> Option<&'static str> {
        self.numeric.then_some("number")
    }
}

/// Event of a [`timeline`].
#[derive(Debug, Clone, Copy)]
pub struct TimelineEvent<'a> {
    /// Time of the event, in RFC 3339 and UTC.
    pub time: &'a str,
    /// Short description.
    pub title: &'a str,
    /// Further details.
    pub note: Option<&'a str>,
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
pub fn card(title: &str, body: Markup) -> Markup {
    html! {
        section.card {
            .card-head { h2 { (title) } }
            .card-body { (body) }
        }
    }
}

/// Same as [`card`], with an element beside the heading, such as a badge, a link or a button.
pub fn card_with(title: &str, aside: Markup, body: Markup) -> Markup {
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

/// Returns a table with one cell for each column in each row. The caption is for assistive technology, because a heading
/// stands above the table. On narrow screens the table scrolls in its own region, also with the keyboard.
pub fn table(caption: &str, columns: &[Column<'_>], rows: &[Vec<Markup>]) -> Markup {
    html! {
        .table-region role="region" tabindex="0" aria-label=(caption) {
            table {
                caption.unseen { (caption) }
                thead {
                    tr {
                        @for column in columns {
                            th class=[column.class()] scope="col" { (column.title) }
                        }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            @for (column, cell) in columns.iter().zip(row) {
                                td class=[column.class()] { (cell) }
                            }
                        }
                    }
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

/// Explains why a request was refused or failed. `violations` are pairs of a field name and a message.
pub fn problem(
    status: u16,
    title: &str,
    detail: &str,
    violations: &[(String, String)],
    request_id: Option<&str>,
) -> Markup {
    let tone = if status < 500 { Tone::Warning } else { Tone::Bad };
    html! {
        section.problem data-tone=(tone.code()) role="alert" {
            p.problem-status { (symbol(tone)) "Status " (status) }
            h2 { (title) }
            p { (detail) }
            @if !violations.is_empty() {
                ul.violations {
                    @for (field, text) in violations { li { code { (field) } span { (text) } } }
                }
            }
            @if let Some(request) = request_id {
                p.problem-request { "Request " (copyable(request)) }
            }
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
                        @if let Some(note) = event.note { p.timeline-note { (note) } }
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

/// Returns the link to the next page, or a text that says that this is the last one.
pub fn pager(next_href: Option<&str>) -> Markup {
    html! {
        nav.pager aria-label="Pages" {
            @match next_href {
                Some(next) => a.button rel="next" href=(next) { "Next page" },
                None => span { "End of the list" },
            }
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
        let columns = [Column::text("Queue"), Column::number("Messages")];
        let table = table("Queues", &columns, &[vec![html! { "work <1>" }, html! { "12" }]]).into_string();
        assert!(table.contains(r#"role="region" tabindex="0" aria-label="Queues""#));
        assert!(table.contains(r#"<th class="number" scope="col">Messages</th>"#));
        assert!(table.contains(r#"<td>work &lt;1&gt;</td><td class="number">12</td>"#));
    }

    #[test]
    fn a_problem_names_fields_and_the_request() {
        let violations = [("amount".to_owned(), "must be positive".to_owned())];
        let problem = problem(422, "Refused", "Two fields.", &violations, Some("r-1")).into_string();
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
    fn the_last_page_says_so() {
        assert!(pager(None).into_string().contains("End of the list"));
        assert!(pager(Some("?cursor=a&b")).into_string().contains(r#"href="?cursor=a&amp;b""#));
    }
}
