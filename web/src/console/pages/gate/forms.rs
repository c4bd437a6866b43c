//! Forms that change the gate, each below a description of its consequence.

use maud::{Markup, html};
use postonce_schemas::json::Overview;
use postonce_schemas::json::rules::GATE_REASON_CHARS_MAX;

use super::panel::release_button;
use super::state::{Entered, Step, View};
use crate::console::addresses::Section;
use crate::console::html::components::{Tone, notice, time};
use crate::console::html::format::{self, counted, decimal};
use crate::console::html::forms::{
    Confirmation, Field, Question, TextKind, field, hidden, submit, text_input,
};
use crate::console::pages::overview::{depth, silent};

/// Length of a date and time with seconds, in characters.
const SECONDS_CHARS: usize = 19;

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
    };
    ask(view, Step::Release, "Release the gate?", consequence, fields)
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
    };
    ask(view, Step::Hold, "Hold the gate?", consequence, fields)
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
    };
    ask(view, Step::Schedule, "Schedule the release", consequence, fields)
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

/// Returns the question whether to carry out an act. Its form contains the epoch that the operator saw.
fn ask(view: &View<'_>, step: Step, title: &str, consequence: Markup, fields: Markup) -> Markup {
    let epoch = view.overview.gate.epoch.to_string();
    let (act, button) = match step {
        Step::Release => ("release", release_button("Release the gate now")),
        Step::Hold => ("hold", submit("Hold the gate", Tone::Bad)),
        Step::Schedule => ("hold", submit("Hold with this schedule", Tone::Bad)),
    };
    let question = Question {
        title,
        consequence,
        action: Section::Gate.path(),
        fields: html! {
            @if let Some(refusal) = view.entered.refusal {
                (notice(Tone::Bad, &refusal.title, html! { p { (refusal.detail) } }))
            }
            (hidden("act", act))
            (hidden("step", step.code()))
            (hidden("epoch", &epoch))
            (fields)
        },
        confirmation: Confirmation::Sent,
        button,
        back: Section::Gate.path(),
    };
    question.ask(&view.viewer.csrf)
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

/// Converts the value of the field for the scheduled release, such as `2026-11-23T06:00`, to RFC 3339. Browsers send it
/// without a time zone; it is interpreted as UTC. The API refuses the result of an invalid value.
pub fn rfc_3339(field: &str) -> String {
    let time = field.strip_suffix(['Z', 'z']).unwrap_or(field).replace(' ', "T");
    let seconds = if time.matches(':').count() == 1 { ":00" } else { "" };
    format!("{time}{seconds}Z")
}

/// Returns the value of a field for a time in RFC 3339 and UTC, without fractions of seconds.
fn field_value(rfc3339: &str) -> &str {
    rfc3339.get(..SECONDS_CHARS).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_browsers_send_is_in_utc() {
        let times = [
            ("2026-11-23T06:00", "2026-11-23T06:00:00Z"),
            ("2026-11-23T06:00:30", "2026-11-23T06:00:30Z"),
            ("2026-11-23T06:00:30.5", "2026-11-23T06:00:30.5Z"),
            ("2026-11-23 06:00", "2026-11-23T06:00:00Z"),
            ("2026-11-23T06:00Z", "2026-11-23T06:00:00Z"),
            ("tomorrow", "tomorrowZ"),
        ];
        for (field, time) in times {
            assert_eq!(rfc_3339(field), time);
        }
        assert_eq!(field_value("2026-11-23T06:00:30.123Z"), "2026-11-23T06:00:30");
        assert_eq!(field_value("soon"), "");
        assert_eq!(rfc_3339(field_value("2026-11-23T06:00:30.123Z")), "2026-11-23T06:00:30Z");
    }
}
