//! Overview page: current problems first, then the figures, the last hour, and the processes.

mod figures;
mod measures;
mod plots;
pub mod processes;
#[cfg(test)]
pub mod sample;
mod status;
#[cfg(test)]
mod tests;

use actix_web::HttpResponse;
use maud::{Markup, html};
use postonce_schemas::json::Overview;

pub use self::figures::oldest_age;
pub use self::measures::{depth, is_held};
use crate::access::scopes::Scope;
use crate::console::html::components::{Column, Tone, card, columns, notice, table};
use crate::console::html::shell::{self, Section};
use crate::console::live::{Event, stream};
use crate::console::page_error::PageError;
use crate::console::visitor::{Visitor, scopes_of};

/// API path of the current overview. A longer activity would make every process report more.
pub const NOW: &str = "/v1/admin/overview?seconds=60";
/// API path of the overview with the activity for the plots.
const LAST_HOUR: &str = "/v1/admin/overview?seconds=3600";
const LIVE: &str = "/console/live/overview";

/// Shows the page. Redirects a key that may not read it to the first page that the key may read.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let sections = visitor.sections();
    if !visitor.may(Scope::Metrics) {
        return Ok(match sections.first() {
            Some(section) => visitor.see_other(section.path()),
            None => visitor.page(Section::Overview, "Overview", no_pages()),
        });
    }
    let overview: Overview = visitor.get(LAST_HOUR).await?;
    Ok(visitor.live_page(Section::Overview, "Overview", LIVE, body(&overview, &sections)))
}

/// Streams the events of the page.
///
/// # Errors
/// [`PageError`] when the key may not read the page, or there are too many streams.
pub async fn live(visitor: Visitor) -> Result<HttpResponse, PageError> {
    stream(visitor, |visitor| async move {
        let overview: Overview = visitor.get(NOW).await?;
        Ok(events(&overview, &visitor.sections()))
    })
}

fn body(overview: &Overview, sections: &[Section]) -> Markup {
    let [decided, ways, errors] = plots::plots(&overview.activity);
    let plots = [decided, ways, errors, shell::live("ways", figures::ways(&overview.activity))];
    html! {
        (shell::live("status", status::status(overview, sections)))
        (shell::live("figures", figures::figures(overview, sections)))
        (columns(&plots))
        (card("Processes", shell::live("processes", processes::processes(overview))))
    }
}

fn events(overview: &Overview, sections: &[Section]) -> Vec<Event> {
    let regions = [
        Event::region("status", status::status(overview, sections)),
        Event::region("figures", figures::figures(overview, sections)),
        Event::region("ways", figures::ways(&overview.activity)),
        Event::region("processes", processes::processes(overview)),
    ];
    let points = plots::newest(&overview.activity);
    regions.into_iter().chain(points.iter().map(|point| Event::value("plot", point))).collect()
}

/// Explains which scopes each page requires, for a key that may read none.
fn no_pages() -> Markup {
    let scopes = |section: Section| scopes_of(section).iter().map(|scope| scope.code());
    let row = |section: &Section| {
        vec![
            html! { (section.label()) },
            html! {
                @for (index, code) in scopes(*section).enumerate() { @if index > 0 { " or " } code { (code) } }
            },
        ]
    };
    let rows: Vec<Vec<Markup>> = Section::ALL.iter().map(row).collect();
    let help = html! {
        p {
            "Ask an operator with the scope " code { (Scope::Admin.code()) } " for a key with one of the scopes below, and sign in \
             with it."
        }
    };
    html! {
        (notice(Tone::Notice, "This key may read no page of the console", help))
        (card("Pages and their scopes", table("Pages and their scopes", &[Column::text("Page"), Column::text("Scope")], &rows)))
    }
}
