//! List of batches, and the search form.

use maud::{Markup, html};
use postonce_schemas::json::{BatchPhase, PartnerBatch, PartnerBatchPage};
use postonce_shared::domain::ids::{BatchId, PartnerId, parse_hyphenated};

use super::batch_path;
use super::viewer::{PhaseWords, Viewer, until};
use crate::console::act::Values;
use crate::console::addresses::encoded;
use crate::console::html::components::{
    Column, Tone, badge, button_link, card, card_with, empty, id, notice, pager, table, time,
};
use crate::console::html::format::{self, percent};
use crate::console::html::forms::{Field, TextKind, search_form, select, submit, text_input};
use crate::console::html::shell::Section;

const PARTNER_CHARS: u16 = 32;
const BATCH_CHARS: u16 = 36;

/// Search criteria with their errors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    /// Id of the partner. Without one, open batches are listed.
    pub partner: Option<String>,
    /// Id of the batch.
    pub batch: Option<String>,
    phase: Option<BatchPhase>,
    partner_error: Option<String>,
    batch_error: Option<String>,
}

impl Search {
    /// Parses the search. Keys that may read only the batches of their own partner cannot choose another partner.
    pub fn of(query: &Values, viewer: Viewer<'_>) -> Self {
        let partner = query.given("partner_id").filter(|_| viewer.operates);
        let batch = query.given("batch_id");
        let phase = query.text("phase");
        Self {
            partner: partner.map(str::to_owned),
            batch: batch.map(str::to_owned),
            phase: BatchPhase::CODES.contains(&phase).then(|| phase.into()),
            partner_error: partner.and_then(|it| PartnerId::parse(it).err()).map(|it| format!("This {it}.")),
            batch_error: batch
                .and_then(|it| parse_hyphenated::<BatchId>(it).err())
                .map(|it| format!("This {it}.")),
        }
    }

    /// Returns whether a field is not valid.
    pub const fn is_wrong(&self) -> bool {
        self.partner_error.is_some() || self.batch_error.is_some()
    }

    /// Returns the criteria and the position as parameters of a query, which the API and the page share.
    pub fn query(&self, cursor: Option<&str>) -> String {
        let values =
            [("partner_id", self.partner.as_deref()), ("phase", self.phase_code()), ("cursor", cursor)];
        let given = values.into_iter().filter_map(|(name, value)| Some((name, encoded(value?))));
        given.fold(String::new(), |query, (name, value)| format!("{query}&{name}={value}"))
    }

    /// Returns the search form.
    pub fn form(&self, viewer: Viewer<'_>) -> Markup {
        let partner = Field::new("partner_id", "Partner").max_length(PARTNER_CHARS);
        let partner = partner
            .hint("Lists all its batches, also those that ended.")
            .error(self.partner_error.as_deref());
        let batch = Field::new("batch_id", "Batch").max_length(BATCH_CHARS);
        let batch = batch.hint("The id that the partner chose.").error(self.batch_error.as_deref());
        let mut phases = vec![("", "any phase")];
        phases.extend(BatchPhase::CODES.iter().map(|code| (*code, *code)));
        card(
            "Find batches",
            search_form(
                Section::Batches.path(),
                html! {
                    @if viewer.operates { (text_input(&partner, TextKind::Code, self.partner.as_deref().unwrap_or_default())) }
                    (text_input(&batch, TextKind::Code, self.batch.as_deref().unwrap_or_default()))
                    (select(&Field::new("phase", "Phase"), &phases, self.phase_code().unwrap_or_default()))
                    (submit("Find", Tone::Notice))
                },
            ),
        )
    }

    fn phase_code(&self) -> Option<&str> {
        self.phase.as_ref().map(BatchPhase::code)
    }

    fn title(&self, viewer: Viewer<'_>) -> String {
        match &self.partner {
            Some(partner) => format!("Batches of {partner}"),
            None if viewer.operates => "Open batches of all partners".to_owned(),
            None => format!("Batches of {}", viewer.partner),
        }
    }
}

/// Returns the page.
pub fn body(page: &PartnerBatchPage, search: &Search, viewer: Viewer<'_>) -> Markup {
    let mut batches: Vec<&PartnerBatch> = page.batches.iter().collect();
    // Hindered batches first, because they need an operator, then the newest.
    batches.sort_by(|one, other| {
        let newest = || other.batch.received_at.cmp(&one.batch.received_at);
        is_hindered(other).cmp(&is_hindered(one)).then_with(newest)
    });
    let hindered = batches.iter().filter(|it| is_hindered(it)).count();
    let more = page.next_cursor.as_deref().map(|cursor| search.query(Some(cursor)));
    let more = more.map(|query| format!("{}?{}", Section::Batches.path(), query.trim_start_matches('&')));
    let all = search
        .partner
        .is_some()
        .then(|| button_link(Section::Batches.path(), "Open batches of all partners"));
    html! {
        @if hindered > 0 { (hindered_notice(hindered)) }
        (card_with(&search.title(viewer), html! { @if let Some(all) = all { (all) } }, html! {
            @if batches.is_empty() {
                (nothing(search, viewer, more.is_some()))
            } @else {
                (rows(&batches, viewer))
                p.muted { "Hindered batches stand first, then the newest of this page. Reload the page for current values." }
            }
            @if more.is_some() || !batches.is_empty() { (pager(more.as_deref())) }
        }))
        (search.form(viewer))
    }
}

fn is_hindered(of: &PartnerBatch) -> bool {
    of.batch.hindrance.is_some() && !of.batch.phase.is_final()
}

fn hindered_notice(count: usize) -> Markup {
    let title = if count == 1 {
        "A batch on this page is hindered".to_owned()
    } else {
        format!(
            "{} batches on this page are hindered",
            format::count(u64::try_from(count).unwrap_or(u64::MAX))
        )
    };
    let help = html! { p { "Something keeps them from making progress now. Open each of them to read what, and what to do." } };
    notice(Tone::Bad, &title, help)
}

fn nothing(search: &Search, viewer: Viewer<'_>, has_more: bool) -> Markup {
    let (title, help) = match (has_more, &search.partner, &search.phase) {
        (true, _, _) => (
            "No such batch on this page",
            "Continue with the next page: a page has what it found among the next batches.",
        ),
        (false, None, Some(BatchPhase::Completed | BatchPhase::Cancelled)) if viewer.operates => {
            ("No open batch", "Batches that ended are listed by partner: enter the partner below.")
        }
        (false, _, Some(_)) => ("No batch in this phase", "Choose any phase to see the others."),
        (false, None, None) if viewer.operates => (
            "No batch is open",
            "All batches that partners sent are completed or cancelled. To see them, enter their partner below.",
        ),
        (false, _, None) => {
            ("No batches", "The partner has sent no batch. Partners send them to POST /v1/batches.")
        }
    };
    empty(title, html! { p { (help) } })
}

fn rows(batches: &[&PartnerBatch], viewer: Viewer<'_>) -> Markup {
    let columns = [
        Column::text("Batch"),
        Column::text("Partner"),
        Column::text("Phase"),
        Column::number("Items"),
        Column::number("Final"),
        Column::number("Items/s"),
        Column::text("Estimated end"),
        Column::text("Received"),
    ];
    let rows: Vec<Vec<Markup>> = batches.iter().map(|it| row(it, viewer)).collect();
    table("Batches", &columns, &rows)
}

fn row(of: &PartnerBatch, viewer: Viewer<'_>) -> Vec<Markup> {
    let PartnerBatch { partner_id, batch } = of;
    let words = PhaseWords::of(&batch.phase);
    let done = batch.done();
    let none = "\u{2013}";
    vec![
        html! { a href=(batch_path(partner_id, &batch.batch_id)) { (id(&batch.batch_id)) } },
        viewer.partner_link(partner_id),
        html! {
            (badge(words.tone, batch.phase.code()))
            @if is_hindered(of) { " " (badge(Tone::Bad, "hindered")) }
        },
        html! { (format::count(batch.items)) },
        html! { (format::count(done)) " (" (percent(done, batch.items)) ")" },
        html! { (batch.items_per_second.map_or_else(|| none.to_owned(), format::count)) },
        html! {
            @match batch.estimated_end.as_deref() {
                Some(end) => {
                    (time(end))
                    @if let Some(left) = until(end, viewer.now) { " (in " (left) ")" }
                }
                None => (none),
            }
        },
        time(&batch.received_at),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::viewer::tests::{batch, viewer};
    use super::*;

    fn page(batches: Vec<PartnerBatch>, next_cursor: Option<&str>) -> PartnerBatchPage {
        PartnerBatchPage { batches, next_cursor: next_cursor.map(str::to_owned) }
    }

    #[test]
    fn hindered_batches_stand_first_and_are_escaped() {
        let one = batch(&json!({}));
        let other = batch(&json!({
            "batch_id": "<script>", "hindrance": { "code": "gate_held", "message": "It is held.", "at": "2026-11-21T07:59:00.000Z" },
            "received_at": "2026-11-20T07:00:00.000Z"
        }));
        let html = body(&page(vec![one, other], Some("n x")), &Search::default(), viewer()).into_string();
        assert!(html.contains("A batch on this page is hindered"), "{html}");
        assert!(html.find("&lt;script&gt;").unwrap() < html.find("1c1d6c9e").unwrap(), "{html}");
        assert!(!html.contains("<script>"));
        assert!(html.contains("(38.2 %)") && html.contains("(in 2 s)"), "{html}");
        assert!(html.contains(r#"href="/console/batches?cursor=n%20x""#), "{html}");
        assert!(html.contains(r#"href="/console/partners/shop""#));
    }

    #[test]
    fn without_batches_the_page_says_what_that_means() {
        let check = |search: &Search, viewer, words: &str| {
            let html = body(&page(Vec::new(), None), search, viewer).into_string();
            assert!(html.contains(words) && !html.contains("End of the list"), "{words}: {html}");
        };
        let own = Viewer { operates: false, ..viewer() };
        check(&Search::default(), viewer(), "No batch is open");
        check(&Search::default(), own, "The partner has sent no batch.");
        check(
            &Search { phase: Some(BatchPhase::Completed), ..Search::default() },
            viewer(),
            "enter the partner below",
        );
        let of_shop = Search {
            partner: Some("shop".to_owned()),
            phase: Some(BatchPhase::Posting),
            ..Search::default()
        };
        check(&of_shop, viewer(), "No batch in this phase");
        let html = body(&page(Vec::new(), Some("n")), &of_shop, viewer()).into_string();
        assert!(html.contains("partner_id=shop&amp;phase=posting&amp;cursor=n"), "{html}");
    }

    #[test]
    fn a_key_without_the_scope_operate_chooses_no_partner() {
        let own = Viewer { operates: false, ..viewer() };
        let html = body(&page(Vec::new(), None), &Search::default(), own).into_string();
        assert!(!html.contains("name=\"partner_id\"") && html.contains("Batches of ops"), "{html}");
    }
}
