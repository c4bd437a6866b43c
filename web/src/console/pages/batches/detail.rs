//! Page of a batch: its hindrance, progress, money and costs, and the possible acts.

use maud::{Markup, Render, html};
use postonce_schemas::json::{
    Batch, BatchHindrance, BatchHindranceCode as Code, BatchOnInvalid, BatchPhase, BatchSum, PartnerBatch,
};

use super::phase::{PhaseWords, may_cancel, may_read_results, until};
use crate::access::scopes::Scope;
use crate::console::addresses::{BATCH, BATCH_CANCELLATION, BATCH_RESULTS, Section, with_query};
use crate::console::html::components::{
    Table, Tone, badge, button_link, card, card_with, columns, copyable, definition, empty, notice, progress,
    time,
};
use crate::console::html::format::{self, counted, decimal, percent, permille};
use crate::console::html::forms::{Confirmation, Question, submit};
use crate::console::viewer::Viewer;

/// State of the page besides the batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageState<'a> {
    /// Whether the gate is held; `false` if it was not read.
    pub is_gate_held: bool,
    /// Whether to show the confirmation of a cancellation.
    pub asks: bool,
    /// Code of the act that led to the page.
    pub done: &'a str,
}

/// Returns the page.
pub fn body(of: &PartnerBatch, viewer: &Viewer, state: PageState<'_>) -> Markup {
    let PartnerBatch { partner_id, batch } = of;
    let PageState { is_gate_held, asks, done } = state;
    let (words, is_open) = (PhaseWords::of(&batch.phase), !batch.phase.is_final());
    let page = BATCH.of([partner_id, &batch.batch_id]);
    html! {
        @if done == "cancelled" && batch.phase == BatchPhase::Cancelled {
            (notice(Tone::Good, "The batch is cancelled", html! {
                p { "Nothing of it was posted, and nothing will be. The partner reads that it is cancelled." }
            }))
        }
        @if let Some(hindrance) = batch.hindrance.as_ref().filter(|_| is_open) {
            (hindered(hindrance, viewer))
        }
        @if is_gate_held && is_open {
            (notice(Tone::Warning, "The gate is held", html! {
                p {
                    "Nothing more of the batch is posted until the " a href=(Section::Gate.path()) { "gate" } " is released."
                }
            }))
        }
        @if asks && words.is_cancellable && may_cancel(viewer, partner_id) { (confirm_cancel(of, viewer, &page)) }
        (card_with("Progress", badge(words.tone, batch.phase.code()), outcomes(batch, words)))
        (columns(&[card("Posted money", sums(&batch.sums)), card("Costs", costs(batch))]))
        (card("About the batch", facts(of, viewer)))
        (card("What you can do", html! {
            (results(of, viewer))
            (cancellation(of, words, viewer, &page))
            @if is_open { p { (button_link(&page, "Reload for current values")) } }
        }))
    }
}

/// What continues a hindered batch.
enum Remedy {
    /// Nothing: the work is tried again.
    Nothing,
    /// A correction of the cause. The work is tried again meanwhile.
    Correction,
    /// A correction of the cause, and the replay of the dead letter.
    Replay,
}

fn hindered(BatchHindrance { code, message, at }: &BatchHindrance, viewer: &Viewer) -> Markup {
    let remedy = match code {
        Code::StoreUnavailable | Code::Contention | Code::GateHeld | Code::TriedAlone => Remedy::Nothing,
        Code::StoreRefused | Code::NoOrderNumber | Code::SecretUnknown => Remedy::Correction,
        Code::DataMissing
        | Code::DataUnreadable
        | Code::InternalFault
        | Code::ProcessesEnded
        | Code::Unknown
        | Code::Other(_) => Remedy::Replay,
    };
    notice(
        Tone::Bad,
        "The batch is hindered",
        html! {
            p { strong { (message) } }
            p { "Observed " (time(at)) "." }
            @match remedy {
                Remedy::Nothing => p { "The batch needs nothing: this notice ends with its next progress." },
                Remedy::Correction => {
                    p { "If it stays, correct the cause, which the log names. The batch then continues by itself." }
                }
                Remedy::Replay => {
                    p {
                        "Correct the cause, then replay the "
                        @if viewer.may(Scope::Operate) {
                            a href=(Section::DeadLetters.path()) { "dead letter" }
                        } @else {
                            "dead letter (with the scope operate)"
                        }
                        " that names this batch. What is posted stays posted, and nothing is posted twice."
                    }
                }
            }
        },
    )
}

fn outcomes(batch: &Batch, words: PhaseWords) -> Markup {
    let done = batch.done();
    let waiting = batch.items.saturating_sub(done);
    let waiting_means = if batch.phase == BatchPhase::Cancelled {
        "never posted, because the batch is cancelled"
    } else {
        "not decided yet"
    };
    let parts = [
        ("posted", batch.posted, "booked on their accounts by this batch"),
        ("rejected", batch.rejected, "refused by the bank, with a reason in the results"),
        ("refused", batch.refused, "their id was used before with other content"),
        ("replayed", batch.replayed, "sent before, alone or in another batch, and not posted again"),
        ("invalid", batch.invalid, "break a rule of form"),
        ("open", waiting, waiting_means),
    ];
    let table = Table::new("Items by outcome", &parts)
        .text("Outcome", |(name, ..)| *name)
        .number("Items", |(_, count, _)| format::count(*count))
        .number("Part", |(_, count, _)| percent(*count, batch.items))
        .text("Meaning", |(.., meaning)| *meaning);
    let text =
        format!("{} of {} ({})", format::count(done), format::count(batch.items), percent(done, batch.items));
    html! {
        p { "Phase " strong { (batch.phase) } ": " (words.meaning) "." }
        (progress("Items with a final outcome", permille(done, batch.items), &text))
        (table)
    }
}

fn sums(sums: &[BatchSum]) -> Markup {
    if sums.is_empty() {
        let help = html! { p { "The sums appear with the first posted items." } };
        return empty("No money is posted", help);
    }
    let table = Table::new("Posted money by currency and type", sums)
        .text("Currency", |sum| sum.currency.to_string())
        .text("Type", |sum| sum.r#type.to_string())
        .number("Posted", |sum| decimal(&sum.posted));
    table.render()
}

fn costs(batch: &Batch) -> Markup {
    html! {
        (definition(&[
            ("Per item", html! { (batch.operations_per_item) " storage operations" }),
            ("Per million items", html! { (format::usd(&batch.usd_per_million_items)) ", at the configured prices" }),
        ]))
        p.muted { "Of its steps so far, with the receipt of the document. Steps that were repeated count once." }
    }
}

fn facts(of: &PartnerBatch, viewer: &Viewer) -> Markup {
    let PartnerBatch { partner_id, batch } = of;
    let on_invalid = match &batch.on_invalid {
        BatchOnInvalid::Refuse => "refuse: one invalid item refuses the whole batch",
        BatchOnInvalid::Skip => {
            "skip: the other items are posted, and invalid ones are reported in the results"
        }
        BatchOnInvalid::Other(other) => other,
    };
    let mut entries = vec![
        ("Partner", viewer.partner_link(partner_id)),
        ("Batch", copyable(&batch.batch_id)),
        ("Items", html! { (format::count(batch.items)) }),
        ("Invalid items", html! { (on_invalid) }),
        ("Received", time(&batch.received_at)),
    ];
    if let Some(rate) = batch.items_per_second {
        entries.push((
            "Rate",
            html! { (format::count(rate)) " items per second, on average since the posting began" },
        ));
    }
    if let Some(end) = &batch.estimated_end {
        let left = until(end, viewer.now);
        entries.push((
            "Estimated end",
            html! { (time(end)) @if let Some(left) = left { " (in " (left) ", at this rate)" } },
        ));
    }
    if let Some(at) = &batch.completed_at {
        entries.push(("Completed", time(at)));
    }
    if let Some(at) = &batch.cancelled_at {
        entries.push(("Cancelled", time(at)));
    }
    definition(&entries)
}

fn results(of: &PartnerBatch, viewer: &Viewer) -> Markup {
    let PartnerBatch { partner_id, batch } = of;
    html! {
        @if !may_read_results(viewer, partner_id) {
            p { "The results of batches of all partners contain balances: they need a key with the scope " code { "admin" } "." }
        } @else if batch.phase == BatchPhase::Completed {
            p { (button_link(&BATCH_RESULTS.of([partner_id, &batch.batch_id]), "Download the results (CSV)")) }
            p.muted { "One line for each item, in the order of the document, with its outcome and the balance right after it." }
        } @else {
            p { "The results can be downloaded once the batch is completed." }
        }
    }
}

fn cancellation(of: &PartnerBatch, words: PhaseWords, viewer: &Viewer, page: &str) -> Markup {
    html! {
        @if of.batch.phase.is_final() {
            p { "The batch has ended, so it cannot be cancelled." }
        } @else if !words.is_cancellable {
            p {
                "The batch cannot be cancelled: posting has begun, and what is posted stays posted. Holding the gate stops it until \
                 the gate is released."
            }
        } @else if may_cancel(viewer, &of.partner_id) {
            p { (button_link(&with_query(page, &[("confirm", Some("cancel"))]), "Cancel the batch\u{2026}")) }
        } @else {
            p { "To cancel a batch of another partner, the key needs the scope " code { "operate" } "." }
        }
    }
}

fn confirm_cancel(of: &PartnerBatch, viewer: &Viewer, page: &str) -> Markup {
    let PartnerBatch { partner_id, batch } = of;
    let consequence = html! {
        p {
            strong { (counted(batch.items, "item", "items")) } " will not be posted, and the partner "
            strong { (partner_id) } " reads that the batch is cancelled. This cannot be undone, and the id of the batch cannot be \
             used again: to have the items posted after all, the partner sends them as a new batch."
        }
        p { "If posting begins before you confirm, nothing is cancelled, and the page says so." }
    };
    let question = Question {
        title: "Cancel the batch?",
        consequence,
        action: &BATCH_CANCELLATION.of([partner_id, &batch.batch_id]),
        fields: html! {},
        confirmation: Confirmation::Ticked("I want this batch not to be posted"),
        button: submit("Cancel the batch", Tone::Bad),
        back: page,
    };
    question.ask(&viewer.csrf)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::phase::tests::batch;
    use super::*;
    use crate::console::viewer::tests::viewer;

    const PATH: &str = "/console/batches/shop/1c1d6c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";

    fn shown(changes: &serde_json::Value, scopes: &[Scope], asks: bool) -> String {
        body(&batch(changes), &viewer(scopes), PageState { asks, ..PageState::default() }).into_string()
    }

    #[test]
    fn a_held_gate_is_shown_while_the_batch_waits_for_it() {
        let held = PageState { is_gate_held: true, ..PageState::default() };
        let page = |phase: &str, state| {
            body(&batch(&json!({ "phase": phase })), &viewer(Scope::ALL), state)
                .into_string()
                .contains("The gate is held")
        };
        assert!(page("received", held) && page("posting", held));
        assert!(
            !page("completed", held) && !page("cancelled", held) && !page("received", PageState::default())
        );
    }

    #[test]
    fn a_batch_that_is_posted_shows_its_progress_and_cannot_be_cancelled() {
        let html = shown(&json!({}), Scope::ALL, true);
        assert!(html.contains(r#"<progress max="1000" value="382">"#), "{html}");
        assert!(
            html.contains("1\u{202f}531 of 4\u{202f}000 (38.2 %)") && html.contains("2\u{202f}469"),
            "{html}"
        );
        assert!(html.contains("1\u{202f}250.00") && html.contains("$0.210000000"));
        assert!(html.contains("posting has begun") && !html.contains("/cancel"), "{html}");
        assert!(html.contains("once the batch is completed"));
    }

    #[test]
    fn a_hindrance_is_shown_first_and_escaped() {
        let hindrance = json!({
            "code": "processes_ended", "message": "Processes ended <script>.", "at": "2026-11-21T07:59:00.000Z"
        });
        let html = shown(&json!({ "hindrance": hindrance }), Scope::ALL, false);
        assert!(html.contains("Processes ended &lt;script&gt;."), "{html}");
        assert!(html.contains("2026-11-21 07:59:00 UTC") && !html.contains("<script>"));
        assert!(html.find("The batch is hindered").unwrap() < html.find("Progress").unwrap());
        assert!(html.contains(r#"href="/console/dead-letters""#));
        let passing =
            json!({ "code": "gate_held", "message": "It is held.", "at": "2026-11-21T07:59:00.000Z" });
        let html = shown(&json!({ "hindrance": passing }), Scope::ALL, false);
        assert!(html.contains("It is held.") && !html.contains("dead letter"), "{html}");
        let refused =
            json!({ "code": "store_refused", "message": "It refuses.", "at": "2026-11-21T07:59:00.000Z" });
        let html = shown(&json!({ "hindrance": refused }), Scope::ALL, false);
        assert!(html.contains("correct the cause") && !html.contains("dead letter"), "{html}");
    }

    #[test]
    fn a_received_batch_is_cancelled_only_after_a_confirmation() {
        let received = json!({ "phase": "received", "posted": 0, "rejected": 0, "refused": 0, "replayed": 0, "sums": [] });
        let html = shown(&received, Scope::ALL, false);
        assert!(
            html.contains(&format!("href=\"{PATH}?confirm=cancel\"")) && !html.contains("<form"),
            "{html}"
        );
        assert!(html.contains("No money is posted"));
        let asked = shown(&received, Scope::ALL, true);
        assert!(asked.contains(&format!("action=\"{PATH}/cancel\"")), "{asked}");
        assert!(
            asked.contains("<strong>4\u{202f}000 items</strong> will not be posted")
                && asked.contains("name=\"confirm\"")
        );
        let refused = shown(&received, &[Scope::Batch], true);
        assert!(
            refused.contains("needs the scope <code>operate</code>") && !refused.contains("<form"),
            "{refused}"
        );
    }

    #[test]
    fn results_are_offered_once_they_exist_to_those_who_may_read_them() {
        let completed = json!({ "phase": "completed", "completed_at": "2026-11-21T08:00:00.000Z" });
        assert!(shown(&completed, Scope::ALL, false).contains(&format!("href=\"{PATH}/results\"")));
        let html = shown(&completed, &[Scope::Operate], false);
        assert!(html.contains("<code>admin</code>") && !html.contains("/results"), "{html}");
        assert!(html.contains("The batch has ended"));
    }

    #[test]
    fn only_what_happened_is_announced() {
        let cancelled = batch(&json!({ "phase": "cancelled", "cancelled_at": "2026-11-21T08:00:00.000Z" }));
        let state = PageState { done: "cancelled", ..PageState::default() };
        assert!(
            body(&cancelled, &viewer(Scope::ALL), state).into_string().contains("The batch is cancelled")
        );
        let posting = body(&batch(&json!({})), &viewer(Scope::ALL), state).into_string();
        assert!(!posting.contains("The batch is cancelled"));
    }
}
