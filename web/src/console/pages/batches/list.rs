//! List of batches, and the search form.

use maud::{Markup, Render, html};
use postonce_schemas::json::{Batch, BatchPhase, PartnerBatch, PartnerBatchPage};
use postonce_shared::domain::ids::{BatchId, PartnerId, parse_hyphenated};

use super::phase::{PhaseWords, until};
use crate::access::scopes::Scope;
use crate::console::addresses::{BATCH, Section, with_query};
use crate::console::html::components::{
    Place, Table, Tone, badge, button_link, card, card_with, empty, id, notice, time,
};
use crate::console::html::format::{self, percent};
use crate::console::html::forms::{Field, TextKind, search_form, select, submit, text_input};
use crate::console::values::Values;
use crate::console::viewer::Viewer;

const PARTNER_CHARS: u16 = 32;
const BATCH_CHARS: u16 = 36;
/// Replaces a value that a batch does not have.
const NONE: &str = "\u{2013}";

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
    pub fn of(query: &Values, viewer: &Viewer) -> Self {
        let partner = query.given("partner_id").filter(|_| viewer.may(Scope::Operate));
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

    /// Adds the criteria to an address, as parameters that the API and the page share.
    pub fn added_to(&self, address: &str) -> String {
        with_query(address, &[("partner_id", self.partner.as_deref()), ("phase", self.phase_code())])
    }

    /// Returns the search form.
    pub fn form(&self, viewer: &Viewer) -> Markup {
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
                    @if viewer.may(Scope::Operate) { (text_input(&partner, TextKind::Code, self.partner.as_deref().unwrap_or_default())) }
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

    fn title(&self, viewer: &Viewer) -> String {
        match &self.partner {
            Some(partner) => format!("Batches of {partner}"),
            None if viewer.may(Scope::Operate) => "Open batches of all partners".to_owned(),
            None => format!("Batches of {}", viewer.partner),
        }
    }
}

/// Returns the page.
pub fn body(page: &PartnerBatchPage, search: &Search, is_first: bool, viewer: &Viewer) -> Markup {
    let mut batches: Vec<&PartnerBatch> = page.batches.iter().collect();
    // Hindered batches first, because they need an operator, then the newest.
    batches.sort_by(|one, other| {
        let newest = || other.batch.received_at.cmp(&one.batch.received_at);
        is_hindered(other).cmp(&is_hindered(one)).then_with(newest)
    });
    let hindered = batches.iter().filter(|it| is_hindered(it)).count();
    let list = Section::Batches.path();
    let place =
        Place { first_page: &search.added_to(list), is_first, next_cursor: page.next_cursor.as_deref() };
    let all = search.partner.is_some().then(|| button_link(list, "Open batches of all partners"));
    html! {
        @if hindered > 0 { (hindered_notice(hindered)) }
        (card_with(&search.title(viewer), all.unwrap_or_default(), place.listing(
            batches.is_empty(),
            nothing(search, viewer),
            html! {
                (batches_table(&batches, viewer))
                p.muted { "Hindered batches stand first, then the newest of this page. Reload the page for current values." }
            },
        )))
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

fn nothing(search: &Search, viewer: &Viewer) -> Markup {
    let (title, help) = match (&search.partner, &search.phase) {
        (None, Some(BatchPhase::Completed | BatchPhase::Cancelled)) if viewer.may(Scope::Operate) => {
            ("No open batch", "Batches that ended are listed by partner: enter the partner below.")
        }
        (_, Some(_)) => ("No batch in this phase", "Choose any phase to see the others."),
        (None, None) if viewer.may(Scope::Operate) => (
            "No batch is open",
            "All batches that partners sent are completed or cancelled. To see them, enter their partner below.",
        ),
        (_, None) => ("No batches", "The partner has sent no batch. Partners send them to POST /v1/batches."),
    };
    empty(title, html! { p { (help) } })
}

fn batches_table(batches: &[&PartnerBatch], viewer: &Viewer) -> Markup {
    let table = Table::new("Batches", batches.iter().copied())
        .text("Batch", |PartnerBatch { partner_id, batch }| {
            html! { a href=(BATCH.of([partner_id, &batch.batch_id])) { (id(&batch.batch_id)) } }
        })
        .text("Partner", |of| viewer.partner_link(&of.partner_id))
        .text("Phase", phase)
        .number("Items", |of| format::count(of.batch.items))
        .number("Final", |PartnerBatch { batch, .. }| {
            let done = batch.done();
            format!("{} ({})", format::count(done), percent(done, batch.items))
        })
        .number("Items/s", |of| of.batch.items_per_second.map_or_else(|| NONE.to_owned(), format::count))
        .text("Estimated end", |of| estimated_end(&of.batch, viewer))
        .text("Received", |of| time(&of.batch.received_at));
    table.render()
}

fn phase(of: &PartnerBatch) -> Markup {
    let words = PhaseWords::of(&of.batch.phase);
    html! {
        (badge(words.tone, of.batch.phase.code()))
        @if is_hindered(of) { " " (badge(Tone::Bad, "hindered")) }
    }
}

fn estimated_end(batch: &Batch, viewer: &Viewer) -> Markup {
    let Some(end) = batch.estimated_end.as_deref() else { return html! { (NONE) } };
    html! {
        (time(end))
        @if let Some(left) = until(end, viewer.now) { " (in " (left) ")" }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::phase::tests::batch;
    use super::*;
    use crate::console::viewer::tests::viewer;

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
        let html = body(&page(vec![one, other], Some("n x")), &Search::default(), true, &viewer(Scope::ALL))
            .into_string();
        assert!(html.contains("A batch on this page is hindered"), "{html}");
        assert!(html.find("&lt;script&gt;").unwrap() < html.find("1c1d6c9e").unwrap(), "{html}");
        assert!(!html.contains("<script>"));
        assert!(html.contains("(38.2 %)") && html.contains("(in 2 s)"), "{html}");
        assert!(html.contains(r#"href="/console/batches?cursor=n%20x""#), "{html}");
        assert!(html.contains(r#"href="/console/partners/shop""#));
    }

    #[test]
    fn without_batches_the_page_says_what_that_means() {
        let check = |search: &Search, scope, words: &str| {
            let html = body(&page(Vec::new(), None), search, true, &viewer(&[scope])).into_string();
            assert!(html.contains(words) && !html.contains("End of the list"), "{words}: {html}");
        };
        check(&Search::default(), Scope::Operate, "No batch is open");
        check(&Search::default(), Scope::Batch, "The partner has sent no batch.");
        check(
            &Search { phase: Some(BatchPhase::Completed), ..Search::default() },
            Scope::Operate,
            "enter the partner below",
        );
        let of_shop = Search {
            partner: Some("shop".to_owned()),
            phase: Some(BatchPhase::Posting),
            ..Search::default()
        };
        check(&of_shop, Scope::Operate, "No batch in this phase");
        let html = body(&page(Vec::new(), Some("n")), &of_shop, true, &viewer(Scope::ALL)).into_string();
        assert!(html.contains("partner_id=shop&amp;phase=posting&amp;cursor=n"), "{html}");
    }

    #[test]
    fn a_key_without_the_scope_operate_chooses_no_partner() {
        let own = viewer(&[Scope::Batch]);
        let html = body(&page(Vec::new(), None), &Search::default(), true, &own).into_string();
        assert!(!html.contains("name=\"partner_id\"") && html.contains("Batches of ops"), "{html}");
    }
}
