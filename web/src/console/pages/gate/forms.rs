//! Forms that change the gate, each below a description of its consequence.

use maud::{Markup, html};
use postonce_schemas::json::rules::GATE_REASON_CHARS_MAX;
use postonce_schemas::json::{Gate, Overview};

use super::PAGE;
use super::schedule::field_value;
use super::state::{Entered, Step, View};
use crate::console::html::components::{Tone, button_link, notice, time};
use crate::console::html::format::{self, counted, decimal};
use crate::console::html::forms::{Field, TextKind, confirm, field, form, submit, text_input};
use crate::console::html::gate::release_button;
use crate::console::pages::overview::depth;
use crate::console::pages::overview::processes::silent;

/// Returns the confirmation of a release.
pub fn confirm_release(view: &View<'_>) -> Markup {
    let overview = view.overview;
    let silent = u64::try_from(silent(overview).count()).unwrap_or(u64::MAX);
    let consequence = html! {
        p { strong { (start(overview)) "." } }
        p {
            "The queues were read at " (time(&overview.queues_read_at)) ". One message can contain many transactions. What is \
             accepted from now on is posted at once."
        }
        @if let Some(at) = &overview.gate.release_at { p { "The release scheduled for " (time(at)) " is then done." } }
        @if silent > 0 {
            p {
                (counted(silent, "process does not answer; it starts", "processes do not answer; they start"))
                " after reading the gate."
            }
        }
    };
    let fields = html! {
        (reason(view.entered, "It is shown with the gate."))
        (release_button("Release the hounds now"))
    };
    confirm("Release the hounds?", consequence, act(view, Step::Release, fields))
}

/// Returns the confirmation of holding the gate.
pub fn confirm_hold(view: &View<'_>) -> Markup {
    let Overview { processes, per_second, .. } = view.overview;
    let consequence = html! {
        p {
            strong {
                "Nothing new is posted by " (counted(processes.len(), "process", "processes"))
                "; requests are still accepted, and wait; so does the rest of batches."
            }
        }
        p { "At present, " (decimal(&per_second.posted)) " transactions are posted per second." }
    };
    let fields = html! {
        (reason(view.entered, "It is shown with the gate, also to other operators."))
        (release_at(view, "Left empty, the gate stays held until an operator releases it."))
        (submit("Hold the gate", Tone::Bad))
    };
    confirm("Hold the gate?", consequence, act(view, Step::Hold, fields))
}

/// Returns the form for the scheduled release of a held gate.
pub fn confirm_schedule(view: &View<'_>) -> Markup {
    let Overview { gate, .. } = view.overview;
    let consequence = html! {
        p {
            strong { "The gate stays held until the time below, and is then released by itself." }
        }
        p { "If that were now: " (start(view.overview)) "." }
        @if let Some(at) = &gate.release_at { p { "So far, the release is scheduled for " (time(at)) "." } }
    };
    let fields = html! {
        (release_at(view, "Left empty, there is no schedule: the gate stays held until an operator releases it."))
        (reason(view.entered, "It replaces the reason that is shown with the gate."))
        (submit("Hold with this schedule", Tone::Bad))
    };
    confirm("Schedule the release", consequence, act(view, Step::Schedule, fields))
}

/// Describes the effect of a release at this time.
fn start(overview: &Overview) -> String {
    let answering = overview.processes.iter().filter(|process| process.answers).count();
    let answering = u64::try_from(answering).unwrap_or(u64::MAX);
    let messages = match depth(overview) {
        0 => "; no messages wait".to_owned(),
        depth => " on ".to_owned() + &counted(depth, "waiting message", "waiting messages"),
    };
    let items = match overview.scale.batch_items {
        0 => String::new(),
        items => ", and ".to_owned() + &counted(items, "item of a batch waits", "items of batches wait"),
    };
    format!("{} at once{messages}{items}", counted(answering, "process starts", "processes start"))
}

/// Returns the form of an act. It contains the epoch that the operator saw.
fn act(view: &View<'_>, step: Step, fields: Markup) -> Markup {
    let Gate { epoch, .. } = view.overview.gate;
    let act = match step {
        Step::Release => "release",
        Step::Hold | Step::Schedule => "hold",
    };
    let refusal = view.entered.refusal;
    form(
        PAGE,
        view.csrf,
        html! {
            @if let Some(refusal) = refusal { (notice(Tone::Bad, &refusal.title, html! { p { (refusal.detail) } })) }
            input type="hidden" name="act" value=(act);
            input type="hidden" name="step" value=(step.code());
            input type="hidden" name="epoch" value=(epoch);
            (fields)
            .actions { (button_link(PAGE, "Cancel")) }
        },
    )
}

fn reason(entered: &Entered<'_>, hint: &str) -> Markup {
    let of = Field::new("reason", "Reason").hint(hint).error(error_of(entered, "reason"));
    text_input(&of.max_length(GATE_REASON_CHARS_MAX), TextKind::Text, entered.reason)
}

fn release_at(view: &View<'_>, hint: &str) -> Markup {
    let (entered, now) = (view.entered, &view.overview.at);
    let hint = format!("In UTC, where it is {} now. {hint}", format::instant(now));
    let of = Field::new("release_at", "Release at (UTC)").hint(&hint).error(error_of(entered, "release_at"));
    let scheduled = view.overview.gate.release_at.as_deref().map(field_value).unwrap_or_default();
    let value = if entered.refusal.is_some() { entered.release_at } else { scheduled };
    let input = html! {
        input id=(of.element_id()) name=(of.name) type="datetime-local" step="1" min=(field_value(now)) value=(value)
            aria-describedby=[of.described_by()] aria-invalid=[of.error.map(|_| "true")];
    };
    field(&of, input)
}

/// Returns the violation that the API reported for a field.
fn error_of<'a>(entered: &Entered<'a>, field: &str) -> Option<&'a str> {
    let violations = &entered.refusal?.violations;
    violations.iter().find(|violation| violation.field == field).map(|violation| violation.message.as_str())
}
