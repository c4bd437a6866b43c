//! Current problems, with advice.

use maud::{Markup, html};
use postonce_schemas::json::{Gate, Overview, OverviewActivity, OverviewProcess};

use super::processes::silent;
use super::{depth, is_held, is_late, lacks_workers, last_minute};
use crate::console::addresses::Section;
use crate::console::html::components::{Tone, notice, time};
use crate::console::html::format::{self, counted};
use crate::console::viewer::Viewer;

struct Finding {
    tone: Tone,
    title: String,
    help: Markup,
}

/// Returns the current problems, most severe first, or a notice that there are none.
pub fn status(overview: &Overview, viewer: &Viewer) -> Markup {
    let mut findings = findings(overview, viewer);
    findings.sort_by_key(|finding| severity(finding.tone));
    if findings.is_empty() {
        return notice(Tone::Good, "Everything that was accepted is being posted.", unknowns(overview));
    }
    html! {
        @for Finding { tone, title, help } in findings { (notice(tone, &title, help)) }
    }
}

/// Returns the sort position of a tone, most severe first.
const fn severity(tone: Tone) -> u8 {
    match tone {
        Tone::Bad => 0,
        Tone::Warning => 1,
        Tone::Notice => 2,
        Tone::Neutral => 3,
        Tone::Good => 4,
    }
}

fn findings(overview: &Overview, viewer: &Viewer) -> Vec<Finding> {
    let all = [
        silent_processes(overview),
        held_gate(overview, viewer),
        schedule(overview),
        unready_processes(overview),
        other_epochs(overview, viewer),
        request_errors(overview),
        storage_errors(overview),
        late_work(overview, viewer),
        missing_workers(overview, viewer),
        dead_letters(overview, viewer),
    ];
    all.into_iter().flatten().collect()
}

/// Lists what is unknown, when no problem is known.
fn unknowns(overview: &Overview) -> Markup {
    html! {
        @if overview.oldest_open_age_s.is_none() {
            p { "The age of the oldest message is not known, because workers hold all messages of their queues." }
        }
        @if overview.dead_letters_open.is_none() {
            p { "Dead letters are not counted yet: the process that scrubs counts them." }
        }
    }
}

fn silent_processes(overview: &Overview) -> Option<Finding> {
    let processes: Vec<&OverviewProcess> = silent(overview).collect();
    let number = processes.len();
    (number > 0).then(|| Finding {
        tone: Tone::Bad,
        title: counted(number, "process does not answer", "processes do not answer"),
        help: html! {
            ul {
                @for process in processes { li { (process.kind) " at " code { (process.address) } } }
            }
            p {
                "Look whether it runs, and at its log. One that ended without notice is listed for up to 36 minutes; others do \
                 its work."
            }
        },
    })
}

fn held_gate(overview: &Overview, viewer: &Viewer) -> Option<Finding> {
    let Gate { since, by, reason, release_at, .. } = &overview.gate;
    is_held(&overview.gate).then(|| Finding {
        tone: Tone::Warning,
        title: "The gate is held: nothing new is posted".to_owned(),
        help: html! {
            p {
                "Requests are accepted and wait: "
                (counted(depth(overview), "message", "messages")) " in the queues. "
                @if let Some(at) = release_at { "It is released at " (time(at)) "." }
                @else { "It stays held until an operator releases it." }
            }
            @if since.is_some() || by.is_some() || reason.is_some() {
                p {
                    "Held"
                    @if let Some(since) = since { " since " (time(since)) }
                    @if let Some(by) = by { " by " (by) }
                    @if let Some(reason) = reason { ": " (reason) }
                }
            }
            p { (viewer.link(Section::Gate, "Go to the gate")) }
        },
    })
}

fn schedule(overview: &Overview) -> Option<Finding> {
    let problem = overview.gate.clock_problem.as_ref()?;
    Some(Finding {
        tone: Tone::Warning,
        title: "The scheduled release is in doubt".to_owned(),
        help: html! {
            p {
                "This process does not perform it: " (problem) ". If this applies to all processes, the gate stays held until an \
                 operator releases it."
            }
        },
    })
}

fn unready_processes(overview: &Overview) -> Option<Finding> {
    let unready =
        overview.processes.iter().filter(|process| process.answers && !process.not_ready.is_empty());
    let processes: Vec<&OverviewProcess> = unready.collect();
    let number = processes.len();
    (number > 0).then(|| Finding {
        tone: Tone::Warning,
        title: counted(number, "process is not ready", "processes are not ready"),
        help: html! {
            ul {
                @for process in processes {
                    li {
                        (process.kind) " at " code { (process.address) } " lacks: " (process.not_ready.join(", "))
                    }
                }
            }
            p { "It continues by itself when these parts answer. " code { "/readyz" } " of the process says why they do not." }
        },
    })
}

fn other_epochs(overview: &Overview, viewer: &Viewer) -> Option<Finding> {
    let applies_other = |process: &&OverviewProcess| process.gate_epoch.is_some() && !process.acknowledged;
    let behind: Vec<&OverviewProcess> = overview.processes.iter().filter(applies_other).collect();
    let number = behind.len();
    let epoch = format::count(overview.gate.epoch);
    (number > 0).then(|| Finding {
        tone: Tone::Warning,
        title: counted(number, "process does", "processes do") + &format!(" not apply epoch {epoch} of the gate"),
        help: html! {
            p {
                "After a change of the gate, this lasts for a moment. If it stays so, the process cannot read the gate: look at \
                 its log. "
                (viewer.link(Section::Gate, "Who applies it"))
            }
        },
    })
}

fn request_errors(overview: &Overview) -> Option<Finding> {
    let (one, several) =
        ("request was answered with a status of 5xx", "requests were answered with a status of 5xx");
    let help = "Clients repeat such requests with the same message id, and nothing is posted twice. The logs of the processes say why \
                each of them failed.";
    errors(&overview.activity, &overview.activity.request_errors, (one, several), help)
}

fn storage_errors(overview: &Overview) -> Option<Finding> {
    let (one, several) = ("storage operation failed", "storage operations failed");
    let help = "The store did not answer, or was overloaded. Most operations are repeated, and nothing is lost. If it continues, look \
                at the state of the store; the logs of the processes contain the errors.";
    errors(&overview.activity, &overview.activity.storage_errors, (one, several), help)
}

/// Returns a finding if there were errors in the last minute. `one` and `several` are their names in singular and plural.
fn errors(
    activity: &OverviewActivity,
    counts: &[u64],
    (one, several): (&str, &str),
    help: &str,
) -> Option<Finding> {
    let number = last_minute(activity, counts);
    (number > 0).then(|| Finding {
        tone: Tone::Warning,
        title: counted(number, one, several) + " in the last minute",
        help: html! { p { (help) } },
    })
}

fn late_work(overview: &Overview, viewer: &Viewer) -> Option<Finding> {
    let age_s = overview.oldest_open_age_s.filter(|_| is_late(overview))?;
    let (age, target) = (format::duration_s(age_s), format::duration_s(overview.scale.posting_age_target_s));
    Some(Finding {
        tone: Tone::Warning,
        title: format!("Accepted work waits for {age}; the target is {target}"),
        help: html! {
            p {
                "There are too few workers, the store is slow, or one message fails again and again. "
                (viewer.link(Section::Queues, "See queues and workers"))
            }
        },
    })
}

fn missing_workers(overview: &Overview, viewer: &Viewer) -> Option<Finding> {
    let (workers_wanted, running) = (overview.scale.workers_wanted, overview.workers_running);
    let missing = workers_wanted.saturating_sub(running);
    lacks_workers(overview).then(|| Finding {
        tone: Tone::Warning,
        title: counted(workers_wanted, "worker is wanted, ", "workers are wanted, ")
            + &counted(running, "runs", "run"),
        help: html! {
            p {
                "Start " (counted(missing, "more worker", "more workers")) ", unless an autoscaler does so. "
                (viewer.link(Section::Queues, "See why"))
            }
        },
    })
}

fn dead_letters(overview: &Overview, viewer: &Viewer) -> Option<Finding> {
    let number = overview.dead_letters_open.filter(|number| *number > 0)?;
    Some(Finding {
        tone: Tone::Warning,
        title: counted(number, "dead letter waits", "dead letters wait") + " for a decision",
        help: html! {
            p {
                "These messages failed for good and are not posted. "
                (viewer.link(Section::DeadLetters, "Replay or discard them"))
            }
        },
    })
}
