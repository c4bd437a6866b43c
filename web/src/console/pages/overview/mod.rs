//! Overview page: current problems first, then the figures, the last hour, and the processes.

mod figures;
mod plots;
pub mod processes;
#[cfg(test)]
pub mod sample;
mod status;
#[cfg(test)]
mod tests;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use maud::{Markup, html};
use postonce_schemas::json::{Gate, Overview, OverviewActivity};

pub use self::figures::oldest_age;
pub use self::processes::silent;
use crate::access::scopes::Scope;
use crate::console::addresses::{LIVE_OVERVIEW, Section};
use crate::console::html::components::{Table, Tone, card, columns, notice};
use crate::console::html::shell;
use crate::console::live::{Event, stream};
use crate::console::page_error::PageError;
use crate::console::viewer::Viewer;
use crate::console::visitor::Visitor;

/// API path of the current overview. A longer activity would make every process report more.
pub const NOW: &str = "/v1/admin/overview?seconds=60";
/// API path of the overview with the activity for the plots.
const LAST_HOUR: &str = "/v1/admin/overview?seconds=3600";
/// Length of the window of [`last_minute`], in seconds.
const MINUTE_S: u32 = 60;

/// Shows the page. Redirects a key that may not read it to the first page that the key may read.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let viewer = visitor.viewer();
    if !viewer.may_read(Section::Overview) {
        return Ok(match viewer.sections().first() {
            Some(section) => visitor.see_other(section.path()),
            None => visitor.page("Overview", no_pages()),
        });
    }
    let overview: Overview = visitor.get(LAST_HOUR).await?;
    Ok(visitor.live_page(StatusCode::OK, LIVE_OVERVIEW, body(&overview, viewer)))
}

/// Streams the events of the page.
///
/// # Errors
/// [`PageError`] when the key may not read the page, or there are too many streams.
pub async fn live(visitor: Visitor) -> Result<HttpResponse, PageError> {
    stream(visitor, |visitor| async move {
        let overview: Overview = visitor.get(NOW).await?;
        Ok(events(&overview, visitor.viewer()))
    })
}

fn body(overview: &Overview, viewer: &Viewer) -> Markup {
    let [decided, ways, errors] = plots::plots(&overview.activity);
    let plots = [decided, ways, errors, shell::live("ways", figures::ways(&overview.activity))];
    html! {
        (shell::live("status", status::status(overview, viewer)))
        (shell::live("figures", figures::figures(overview, viewer)))
        (columns(&plots))
        (card("Processes", shell::live("processes", processes::processes(overview))))
    }
}

fn events(overview: &Overview, viewer: &Viewer) -> Vec<Event> {
    let regions = [
        Event::region("status", status::status(overview, viewer)),
        Event::region("figures", figures::figures(overview, viewer)),
        Event::region("ways", figures::ways(&overview.activity)),
        Event::region("processes", processes::processes(overview)),
    ];
    let points = plots::newest(&overview.activity);
    regions.into_iter().chain(points.iter().map(|point| Event::value("plot", point))).collect()
}

/// Explains which scopes each page requires, for a key that may read none.
fn no_pages() -> Markup {
    let scopes = |section: &Section| {
        html! {
            @for (index, scope) in section.scopes().iter().enumerate() {
                @if index > 0 { " or " } code { (scope.code()) }
            }
        }
    };
    let table = Table::new("Pages and their scopes", Section::ALL)
        .text("Page", |section| section.label())
        .text("Scope", scopes);
    let help = html! {
        p {
            "Ask an operator with the scope " code { (Scope::Admin.code()) } " for a key with one of the scopes below, and sign in \
             with it."
        }
    };
    html! {
        (notice(Tone::Notice, "This key may read no page of the console", help))
        (card("Pages and their scopes", table))
    }
}

/// Returns whether the gate is held.
pub fn is_held(gate: &Gate) -> bool {
    gate.state == "held"
}

/// Returns whether work waits longer than the target. While the gate is held, work is never late.
pub fn is_late(overview: &Overview) -> bool {
    let target_s = overview.scale.posting_age_target_s;
    !is_held(&overview.gate) && overview.oldest_open_age_s.is_some_and(|age_s| age_s > target_s)
}

/// Returns whether more workers are wanted than are running.
pub const fn lacks_workers(overview: &Overview) -> bool {
    overview.scale.workers_wanted > overview.workers_running
}

/// Returns the number of messages in all queues.
pub fn depth(overview: &Overview) -> u64 {
    overview.queues.iter().fold(0, |sum: u64, queue| sum.saturating_add(queue.depth))
}

/// Sums the counts of the last minute.
pub fn last_minute(activity: &OverviewActivity, counts: &[u64]) -> u64 {
    let steps = MINUTE_S.div_ceil(activity.step_s.max(1));
    let steps = usize::try_from(steps).unwrap_or(usize::MAX);
    counts.iter().rev().take(steps).fold(0, |sum: u64, count| sum.saturating_add(*count))
}
