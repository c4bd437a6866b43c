//! Page of the work queues: the queues, the wanted number of workers, and the processes.

mod scaling;
#[cfg(test)]
mod tests;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use maud::{Markup, html};
use postonce_schemas::json::{Overview, OverviewQueue};

use super::overview::{NOW, depth, is_held, processes};
use crate::console::addresses::{LIVE_QUEUES, Section};
use crate::console::html::components::{Table, Tone, age, card, card_with, empty, id, notice, time};
use crate::console::html::format::{self, counted};
use crate::console::html::shell;
use crate::console::live::{Event, stream};
use crate::console::page_error::PageError;
use crate::console::viewer::Viewer;
use crate::console::visitor::Visitor;

/// Shows the page.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let overview: Overview = visitor.get(NOW).await?;
    Ok(visitor.live_page(StatusCode::OK, LIVE_QUEUES, body(&overview, visitor.viewer())))
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
    html! {
        (shell::live("gate", gate(overview, viewer)))
        (shell::live("queues", queues(overview)))
        (shell::live("scaling", scaling::advice(overview)))
        (card("Processes", shell::live("processes", processes::processes(overview))))
    }
}

fn events(overview: &Overview, viewer: &Viewer) -> Vec<Event> {
    vec![
        Event::region("gate", gate(overview, viewer)),
        Event::region("queues", queues(overview)),
        Event::region("scaling", scaling::advice(overview)),
        Event::region("processes", processes::processes(overview)),
    ]
}

/// Returns a notice that all work waits, while the gate is held.
fn gate(overview: &Overview, viewer: &Viewer) -> Markup {
    let help = html! {
        p {
            "All queues wait, whatever the number of workers is. "
            (viewer.link(Section::Gate, "Go to the gate"))
        }
    };
    html! {
        @if is_held(&overview.gate) { (notice(Tone::Warning, "The gate is held: nothing new is posted", help)) }
    }
}

fn queues(overview: &Overview) -> Markup {
    let as_of = html! {
        (counted(depth(overview), "message", "messages")) ", as of " (time(&overview.queues_read_at))
    };
    if overview.queues.is_empty() {
        let help = html! { "Processes create the queues when they start. Start one, and look at its log if there is none then." };
        return card_with("Queues", as_of, empty("No queues", help));
    }
    let mut sorted: Vec<&OverviewQueue> = overview.queues.iter().collect();
    sorted.sort_by(|a, b| b.depth.cmp(&a.depth).then_with(|| a.name.cmp(&b.name)));
    let all_answer = overview.processes.iter().all(|process| process.answers);
    let table = Table::new("Queues", sorted)
        .text("Queue", |queue| id(&queue.name))
        .number("Messages", |queue| format::count(queue.depth))
        .number("Leased", |queue| format::count(queue.messages_leased))
        .number("Oldest message", oldest)
        .number("Receivers", receivers)
        .text("Assigned to", |queue| assigned_to(queue, all_answer));
    let body = html! {
        (table)
        @if overview.queues.iter().any(|queue| !queue.oldest_age_known) {
            p.hint {
                "Not known: workers have received all messages of the queue, also workers that ended, and the store tells the age \
                 only of messages that wait. It is known again when a message becomes visible."
            }
        }
        p.hint {
            "One message can contain many transactions. Queues are read rarely, because reading them costs storage operations."
        }
        p.hint {
            "Leased: messages that workers have received and are not done with. They are hidden from others until the lease ends, and \
             count as messages of the queue. Assigned to: under lasting load workers divide the queues among themselves by leases; \
             otherwise each of them receives from all."
        }
    };
    card_with("Queues", as_of, body)
}

fn oldest(queue: &OverviewQueue) -> Markup {
    html! {
        @if !queue.oldest_age_known { span.muted { "not known" } }
        @else if queue.depth == 0 { span.muted { "none" } }
        @else { (age(queue.oldest_age_s)) }
    }
}

fn receivers(queue: &OverviewQueue) -> String {
    let (active, max) = (queue.active_receivers.into(), queue.receivers_max.into());
    format!("{} of {}", format::count(active), format::count(max))
}

/// If `all_answer` is `false`, the queue may be assigned to a process that did not answer.
fn assigned_to(queue: &OverviewQueue, all_answer: bool) -> Markup {
    html! {
        @if queue.assigned_to.is_empty() { span.muted { (if all_answer { "all workers" } else { "not known" }) } }
        @for (index, process) in queue.assigned_to.iter().enumerate() { @if index > 0 { br; } (id(process)) }
    }
}
