//! Table of processes, which the overview and the queues page share.

use maud::{Markup, html};
use postonce_schemas::json::{Overview, OverviewProcess};
use postonce_shared::domain::time::Timestamp;

use crate::console::html::components::{Table, Tone, badge, empty, id, time};
use crate::console::html::format::{self, counted};

/// Seconds in a minute. Uptimes are in whole minutes, so that the table does not change every second.
const MINUTE_S: u64 = 60;

/// Returns the table of processes. Processes that need attention come first.
pub fn processes(overview: &Overview) -> Markup {
    if overview.processes.is_empty() {
        let help = html! { "No process has registered. Those that post do so when they start." };
        return empty("No processes", help);
    }
    let mut processes: Vec<&OverviewProcess> = overview.processes.iter().collect();
    processes.sort_by_key(|process| is_well(process));
    let table = Table::new("Processes", processes)
        .text("Process", |process| {
            html! { (id(&process.id)) br; span.muted { (process.address) } }
        })
        .text("Kind", |process| process.kind.to_string())
        .text("State", state)
        .text("Version", version)
        .number("Up for", |process| known(uptime(process, &overview.at)))
        .number("Receivers", |process| known(process.answers.then(|| receivers(process))))
        .number("Gate epoch", |process| known(process.gate_epoch.map(format::count)));
    let silent = silent(overview).count();
    html! {
        (table)
        @if silent > 0 {
            p.hint {
                "A process that ended without notice is listed for up to 36 minutes. Receivers, activity and costs are those of \
                 the processes that answer."
            }
        }
        @if let Some(builds) = several_builds(overview) {
            p.hint {
                (builds) " run: an upgrade is in progress, or some processes were not restarted after one."
            }
        }
    }
}

/// Returns the processes that do not answer.
pub fn silent(overview: &Overview) -> impl Iterator<Item = &OverviewProcess> {
    overview.processes.iter().filter(|process| !process.answers)
}

/// Describes how long a process has been running: in seconds during its first minute, then in whole minutes.
fn uptime(process: &OverviewProcess, at: &str) -> Option<String> {
    let (started, now) = (Timestamp::parse(&process.started_at)?, Timestamp::parse(at)?);
    let seconds = now.since(started).as_secs();
    let rest = if seconds < MINUTE_S { 0 } else { seconds.checked_rem(MINUTE_S).unwrap_or_default() };
    Some(format::duration_s(seconds.saturating_sub(rest)))
}

fn is_well(process: &OverviewProcess) -> bool {
    process.answers && process.not_ready.is_empty() && process.acknowledged
}

fn receivers(process: &OverviewProcess) -> String {
    let (active, max) = (process.active_receivers.into(), process.receivers_max.into());
    format!("{} of {}", format::count(active), format::count(max))
}

fn version(OverviewProcess { version, commit, .. }: &OverviewProcess) -> Markup {
    html! {
        @if version.is_none() && commit.is_none() { (known(None)) }
        @if let Some(version) = version { (version) }
        @if let Some(commit) = commit { br; code.muted { (commit) } }
    }
}

/// Returns a value that a process may not have reported.
fn known(value: Option<String>) -> Markup {
    html! { @if let Some(value) = value { (value) } @else { span.muted { "not known" } } }
}

fn state(process: &OverviewProcess) -> Markup {
    if !process.answers {
        return html! {
            (badge(Tone::Bad, "Does not answer")) br;
            span.muted { "Registered " (time(&process.seen_at)) }
        };
    }
    let holds = process.gate_held == Some(true);
    html! {
        @if !process.not_ready.is_empty() {
            (badge(Tone::Warning, "Not ready")) br;
            span { "Lacks: " (process.not_ready.join(", ")) }
        } @else if process.gate_epoch.is_none() {
            (badge(Tone::Notice, "Ready, gate not known"))
        } @else if !process.acknowledged {
            (badge(Tone::Warning, "Other gate epoch"))
        } @else if holds {
            (badge(Tone::Notice, "Ready, gate held"))
        } @else {
            (badge(Tone::Good, "Ready"))
        }
    }
}

/// Returns the number of different builds, if there is more than one.
fn several_builds(overview: &Overview) -> Option<String> {
    let builds = overview.processes.iter().filter(|process| process.answers);
    let mut builds: Vec<_> = builds.map(|process| (&process.version, &process.commit)).collect();
    builds.sort_unstable();
    builds.dedup();
    let number = builds.len();
    (number > 1).then(|| counted(number, "build", "different builds"))
}
