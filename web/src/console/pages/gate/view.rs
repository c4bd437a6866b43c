//! Content of the gate page.

use maud::{Markup, html};
use postonce_schemas::json::{Gate, Overview, OverviewProcess};

use super::forms::{confirm_hold, confirm_release, confirm_schedule};
use super::panel::{release_button, with_forms};
use super::state::{Done, Step, View};
use crate::access::scopes::Scope;
use crate::console::addresses::Section;
use crate::console::html::components::{Tone, button_link, card, empty, notice, symbol, tile, tiles, time};
use crate::console::html::format::{self, counted, decimal, plural};
use crate::console::html::forms::hidden;
use crate::console::html::shell::live;
use crate::console::pages::overview::{depth, is_held, oldest_age, silent};

/// Returns the page.
pub fn body(view: &View<'_>) -> Markup {
    let overview = view.overview;
    let held = is_held(&overview.gate);
    let is_late = may_change(view) && view.step.is_some_and(|step| step.is_of_held() != held);
    html! {
        @if let Some(done) = view.done { (done_notice(done, &overview.gate)) }
        @if !view.is_read {
            (notice(Tone::Warning, "The gate cannot be read from the store", html! {
                p { "Below is what this process applies. A process that cannot read the gate posts nothing new." }
            }))
        }
        @if is_late {
            (notice(Tone::Notice, "There is nothing to confirm", html! {
                p { "The gate is " (if held { "held" } else { "released" }) " already." }
            }))
        }
        (with_forms(&overview.gate, while_held(view), while_released(view)))
        (live("waiting", waiting(overview)))
        (live("acknowledgments", applied(overview)))
    }
}

/// Returns the amount of waiting work and the rate at which it is accepted.
pub fn waiting(overview: &Overview) -> Markup {
    let (waiting, read_at) =
        (depth(overview), format!("Read at {}", format::instant(&overview.queues_read_at)));
    let target = format!("Target: {}", format::duration_s(overview.scale.posting_age_target_s));
    let of_oldest = if is_held(&overview.gate) { "It waits for the gate" } else { target.as_str() };
    let items = format::count(overview.scale.batch_items);
    let accepted = decimal(&overview.per_second.accepted);
    tiles(&[
        tile(
            "In the queues",
            &format::count(waiting),
            Some(plural(waiting, "message", "messages")),
            Some(&read_at),
        ),
        tile("Oldest message", &oldest_age(overview), None, Some(of_oldest)),
        tile(
            "In open batches",
            &items,
            Some(plural(overview.scale.batch_items, "item", "items")),
            Some("Without an outcome yet"),
        ),
        tile("Accepted", &accepted, Some("per second"), Some("Transactions, over the last 10 s")),
    ])
}

/// Lists which processes apply the gate.
pub fn applied(overview: &Overview) -> Markup {
    let Gate { epoch, .. } = overview.gate;
    let epoch = format::count(epoch);
    let title = format!("Who applies epoch {epoch}");
    if overview.processes.is_empty() {
        let help = html! { "Processes that post are listed here. Start a worker, or a web process." };
        return card(&title, empty("No process posts", help));
    }
    let number = overview.processes.iter().filter(|process| process.acknowledged).count();
    let all = overview.processes.len();
    let others = if is_held(&overview.gate) { "may still post" } else { "do not post yet" };
    let body = html! {
        p {
            (number) " of " (counted(all, "process applies", "processes apply")) " epoch " (epoch) "."
            @if number < all { " Those that do not answer, or apply another epoch, " (others) "." }
        }
        ul.acks { @for process in &overview.processes { (chip(process)) } }
        @if silent(overview).count() > 0 {
            p.hint { "A process that ended without notice is listed for up to 36 minutes." }
        }
    };
    card(&title, body)
}

/// Returns a process, and why it does not acknowledge the gate.
fn chip(process: &OverviewProcess) -> Markup {
    let OverviewProcess { id, kind, address, answers, gate_epoch, acknowledged, .. } = process;
    let (tone, word) = match gate_epoch {
        _ if *acknowledged => (Tone::Good, "acknowledged".to_owned()),
        Some(epoch) => (Tone::Bad, format!("applies epoch {}", format::count(*epoch))),
        None if *answers => (Tone::Bad, "does not report the gate".to_owned()),
        None => (Tone::Bad, "does not answer".to_owned()),
    };
    html! {
        li.ack data-acknowledged=(acknowledged) data-tone=(tone.code()) {
            (symbol(tone))
            .ack-text {
                code.ack-name { (id) }
                span.ack-address { (kind) " at " (address) }
                span.ack-word { (word) }
            }
        }
    }
}

/// Returns the possible acts on a held gate.
fn while_held(view: &View<'_>) -> Markup {
    if !may_change(view) {
        return needed_scope();
    }
    let schedule = match view.overview.gate.release_at {
        Some(_) => "Change the schedule",
        None => "Schedule the release",
    };
    match view.step {
        Some(Step::Release) => confirm_release(view),
        Some(Step::Schedule) => confirm_schedule(view),
        Some(Step::Hold) | None => html! {
            .form {
                form method="get" action=(Section::Gate.path()) {
                    (hidden("confirm", Step::Release.code()))
                    (release_button("Release the gate"))
                }
                .actions { (button_link(&Step::Schedule.path(), schedule)) }
            }
        },
    }
}

/// Returns the possible acts on a released gate.
fn while_released(view: &View<'_>) -> Markup {
    if !may_change(view) {
        return needed_scope();
    }
    match view.step {
        Some(Step::Hold) => confirm_hold(view),
        Some(Step::Release | Step::Schedule) | None => html! {
            .actions {
                (button_link(&Step::Hold.path(), "Hold the gate"))
                span.muted { "Nothing new is posted then; requests are still accepted." }
            }
        },
    }
}

fn may_change(view: &View<'_>) -> bool {
    view.viewer.may(Scope::Operate)
}

fn needed_scope() -> Markup {
    html! { p { "To hold or release the gate, a key needs the scope " code { (Scope::Operate.code()) } "." } }
}

fn done_notice(done: Done, gate: &Gate) -> Markup {
    let (tone, title, text) = match done {
        Done::Released => (Tone::Good, "The gate was released", "All processes that post acknowledged it."),
        Done::Held => (
            Tone::Good,
            "The gate was held",
            "All processes that post acknowledged it: nothing new is posted.",
        ),
        Done::ReleasedPartly => (
            Tone::Warning,
            "The gate was released, but not all processes acknowledged it",
            "The others start when they read the gate the next time. Which ones they are stands below.",
        ),
        Done::HeldPartly => (
            Tone::Warning,
            "The gate was held, but not all processes acknowledged it",
            "The others may post until they read the gate the next time. Which ones they are stands below.",
        ),
        Done::Nothing => (
            Tone::Warning,
            "Nothing was done now",
            "The gate was changed after the form was shown, perhaps by an earlier attempt. Look at its state now, and decide again.",
        ),
    };
    let release_at = gate.release_at.as_ref().filter(|_| matches!(done, Done::Held | Done::HeldPartly));
    let schedule = release_at.map(|at| html! { p { "It is released by itself at " (time(at)) "." } });
    notice(tone, title, html! { p { (text) } @if let Some(schedule) = schedule { (schedule) } })
}
