//! Table of processes, which the overview and the queues page share.

use maud::{Markup, html};
use postonce_schemas::json::{Overview, OverviewProcess};
use postonce_shared::domain::time::Timestamp;

use crate::console::html::components::{Column, Tone, badge, empty, id, table, time};
use crate::console::html::format::{self, counted};

/// Seconds in a minute. Uptimes are in whole minutes, so that the table does not change every second.
const MINUTE_S: u64 = 60;

const COLUMNS: [Column<'_>; 7] = [
    Column::text("Process"),
    Column::text("Kind"),
    Column::text("State"),
    Column::text("Version"),
    Column::number("Up for"),
    Column::number("Receivers"),
    Column::number("Gate epoch"),
];

/// Returns the table of processes. Processes that need attention come first.
pub fn processes(overview: &Overview) -> Markup {
    if overview.processes.is_empty() {
        let help = html! { "No process has registered. Those that post do so when they start." };
        return empty("No processes", help);
    }
    let mut processes: Vec<&OverviewProcess> = overview.processes.iter().collect();
    processes.sort_by_key(|process| is_well(process));
    let rows: Vec<Vec<Markup>> = processes.into_iter().map(|process| row(process, &overview.at)).collect();
    let silent = silent(overview).count();
    html! {
        (table("Processes", &COLUMNS, &rows))
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

fn row(process: &OverviewProcess, at: &str) -> Vec<Markup> {
    let OverviewProcess { id: name, address, kind, version, commit, gate_epoch, .. } = process;
    let receivers = || {
        format!(
            "{} of {}",
            format::count(process.active_receivers.into()),
            format::count(process.receivers_max.into())
        )
    };
    vec![
        html! { (id(name)) br; span.muted { (address) } },
        html! { (kind) },
        state(process),
        html! {
            @if version.is_none() && commit.is_none() { (unknown()) }
            @if let Some(version) = version { (version) }
            @if let Some(commit) = commit { br; code.muted { (commit) } }
        },
        html! { @if let Some(uptime) = uptime(process, at) { (uptime) } @else { (unknown()) } },
        html! { @if process.answers { (receivers()) } @else { (unknown()) } },
        html! { @if let Some(epoch) = gate_epoch { (format::count(*epoch)) } @else { (unknown()) } },
    ]
}

/// Replaces a value that a process did not report.
fn unknown() -> Markup {
    html! { span.muted { "not known" } }
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
