//! Parts of pages: figures, cards, tables, notices, lists and small pieces of text.

use maud::{Markup, Render, html};

use super::format;

/// What a piece of information means to an operator. It is always shown by a symbol too, never by the color alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tone {
    /// A fact.
    Neutral,
    /// As it should be.
    Good,
    /// Worth knowing.
    Notice,
    /// Needs attention soon.
    Warning,
    /// Wrong, or dangerous.
    Bad,
}

impl Tone {
    /// Returns the value of the attribute `data-tone`, which the stylesheet reads.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Neutral => "neutral",
            Self::Good => "good",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }

    /// Returns the outline of the symbol, in a square of 16 units.
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

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    /// The heading.
    pub title: &'a str,
    /// Whether its cells are numbers, which are aligned by their last digit.
    pub numeric: bool,
}

impl<'a> Column<'a> {
    /// A column of words.
    pub const fn text(title: &'a str) -> Self {
        Self { title, numeric: false }
    }

    /// A column of numbers.
    pub const fn number(title: &'a str) -> Self {
        Self { title, numeric: true }
    }

    fn class(&self) -> Option<&'static str> {
        self.numeric.then_some("number")
    }
}

/// An event of a [`timeline`].
#[derive(Debug, Clone, Copy)]
pub struct TimelineEvent<'a> {
    /// When it happened, in RFC 3339 and UTC.
    pub time: &'a str,
    /// What happened.
    pub title: &'a str,
    /// More about it.
    pub note: Option<&'a str>,
    /// What it means.
    pub tone: Tone,
}

/// Returns the symbol of a tone, for eyes only.
pub fn symbol(tone: Tone) -> Markup {
    html! {
        svg.symbol viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" data-tone=(tone.code()) {
            path d=(tone.outline()) {}
        }
    }
}

/// Returns a figure: what it is, its value and unit, and a line about it. It belongs into [`tiles`].
pub fn tile(label: &str, value: &str, unit: Option<&str>, note: Option<&str>) -> Markup {
    toned_tile(Tone::Neutral, label, value, unit, note)
}

/// As [`tile`], for a figure that is good or needs attention.
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

/// Returns a row of figures, which breaks where the screen ends.
pub fn tiles(tiles: &[Markup]) -> Markup {
    html! { dl.tiles { @for tile in tiles { (tile) } } }
}

/// Returns a part of a page with a heading.
pub fn card(title: &str, body: Markup) -> Markup {
    html! {
        section.card {
            .card-head { h2 { (title) } }
            .card-body { (body) }
        }
    }
}

/// As [`card`], with something beside the heading, such as a badge, a link or a button.
pub fn card_with(title: &str, aside: Markup, body: Markup) -> Markup {
    html! {
        section.card {
            .card-head { h2 { (title) } .card-aside { (aside) } }
            .card-body { (body) }
        }
    }
}

/// Returns cards beside each other on wide screens, below each other on narrow ones.
pub fn columns(cards: &[Markup]) -> Markup {
    html! { .columns { @for card in cards { (card) } } }
}

/// Returns a state in a word or two, with the symbol of its tone.
pub fn badge(tone: Tone, text: &str) -> Markup {
    html! { span.badge data-tone=(tone.code()) { (symbol(tone)) (text) } }
}

/// Returns a table. Its caption is for assistive technology, because a heading stands above it. A row has one cell for each
/// column. On narrow screens the table scrolls in a region of its own, also with the keyboard.
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

/// Returns what stands in place of a list without entries: what is empty, and what that means or what to do.
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

/// Returns a message above the content that it is about.
pub fn notice(tone: Tone, title: &str, body: Markup) -> Markup {
    html! {
        .notice data-tone=(tone.code()) role=[(tone == Tone::Bad).then_some("alert")] {
            (symbol(tone))
            .notice-text { p.notice-title { (title) } (body) }
        }
    }
}

/// Returns why a request was refused or failed. `violations` are pairs of a field and what is wrong with it. The id finds the
/// request in the logs.
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

/// Returns names and their values.
pub fn definition(entries: &[(&str, Markup)]) -> Markup {
    html! {
        dl.definition {
            @for (name, value) in entries { div { dt { (name) } dd { (value) } } }
        }
    }
}

/// Returns events in the order in which they are given.
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

/// Returns how far something is, in thousandths, with words beside the bar.
pub fn progress(label: &str, part_permille: u16, text: &str) -> Markup {
    html! {
        label.progress {
            span.progress-label { (label) }
            progress max="1000" value=(part_permille.min(1000)) { (text) }
            span.progress-text { (text) }
        }
    }
}

/// Returns the link to the next page, or says that this is the last one.
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

/// Returns a link that looks like a button.
pub fn button_link(href: &str, text: &str) -> Markup {
    html! { a.button href=(href) { (text) } }
}

/// Returns a link, or only its words if the operator may not read the page to which it leads.
pub fn link_if(may: bool, href: &str, words: impl Render) -> Markup {
    html! { @if may { a href=(href) { (words) } } @else { (words) } }
}

/// Returns an id, a code or another text of machines, which breaks where the line ends.
pub fn id(text: &str) -> Markup {
    html! { code.id { (text) } }
}

/// As [`id`], with a button that copies it. The button is there only with scripts.
pub fn copyable(text: &str) -> Markup {
    html! {
        span.copyable {
            code.id { (text) }
            button.copy type="button" data-copy aria-label={ "Copy " (text) } { "Copy" }
        }
    }
}

/// Returns a time given in RFC 3339 and UTC, to the second.
pub fn time(rfc3339: &str) -> Markup {
    html! { time datetime=(rfc3339) { (format::instant(rfc3339)) } }
}

/// Returns the time that has passed since something, such as `4 min 12 s`.
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
