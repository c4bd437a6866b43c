//! Streams of current values (server-sent events, HTML Living Standard, section 9.2).
//!
//! A stream reads through the API like its page, with the API key of the same session. It ends with the session, also
//! when the key is revoked. The number of streams does not affect how often the store is read (see
//! [`crate::admin::overview`]).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName};
use actix_web::web::Bytes;
use futures::stream;
use maud::Markup;
use serde_json::Value;

use super::page_error::PageError;
use super::visitor::Visitor;
use crate::access::slots::{NoSlot, SlotGuard};

/// Time between two events.
const INTERVAL: Duration = Duration::from_secs(1);
/// Intervals without an event before a comment is sent, which keeps the connection open or detects that it is closed.
const QUIET_INTERVALS_MAX: u32 = 5;
/// Name of the event that tells why the current values cannot be read.
const PROBLEM: &str = "problem";
/// Header that disables buffering of the response in proxies.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Event with the new content of a region, or with a value for a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    name: &'static str,
    /// Distinguishes events with the same name; empty if there is only one.
    about: String,
    data: String,
}

impl Event {
    /// Creates an event that replaces the content of a region. It is sent only if the content changed.
    pub fn region(name: &'static str, content: Markup) -> Self {
        Self { name, about: String::new(), data: content.into_string() }
    }

    /// Creates an event with a value for a script, identified by its member `name`. It is sent only if it changed.
    pub fn value(name: &'static str, value: &Value) -> Self {
        let about = value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { name, about, data: value.to_string() }
    }

    fn text(name: &'static str, data: String) -> Self {
        Self { name, about: String::new(), data }
    }

    const fn problem_key() -> (&'static str, String) {
        (PROBLEM, String::new())
    }

    fn key(&self) -> (&'static str, String) {
        (self.name, self.about.clone())
    }

    fn written(&self) -> String {
        let data: String =
            self.data.split(['\r', '\n']).fold(String::new(), |all, line| format!("{all}data: {line}\n"));
        format!("event: {}\n{data}\n", self.name)
    }
}

struct Stream<R> {
    visitor: Rc<Visitor>,
    render: R,
    /// Last data that was sent, by the key of the event.
    sent: BTreeMap<(&'static str, String), String>,
    quiet: u32,
    is_first: bool,
    has_ended: bool,
    _slot: SlotGuard,
}

/// Answers with a stream of the events that `render` returns about once a second, until the session or the process ends.
///
/// # Errors
/// [`PageError`] when the key may not read the page of the stream, or there are too many streams.
pub fn stream<R, F>(visitor: Visitor, render: R) -> Result<HttpResponse, PageError>
where
    R: Fn(Rc<Visitor>) -> F + 'static,
    F: Future<Output = Result<Vec<Event>, PageError>> + 'static,
{
    let section = visitor.section();
    if !visitor.viewer().may_read(section) {
        let detail = format!("The API key may not read the page {}.", section.label());
        return Err(visitor.refuse(StatusCode::FORBIDDEN, "Not allowed", &detail));
    }
    let slot = visitor.stream_slot().map_err(|refusal| {
        let of = match refusal {
            NoSlot::OfHolder(max) => format!("{max} of this partner"),
            NoSlot::OfAll(max) => max.to_string(),
        };
        let detail = format!(
            "This process keeps {of} open pages current already. Reload the page for current values."
        );
        visitor.refuse(refusal.status(), "Too many open pages", &detail)
    })?;
    let begun = Stream {
        visitor: Rc::new(visitor),
        render,
        sent: BTreeMap::new(),
        quiet: 0,
        is_first: true,
        has_ended: false,
        _slot: slot,
    };
    let events = stream::unfold(begun, |mut stream| async move {
        let next = stream.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(next)), stream))
    });
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CACHE_CONTROL, "no-store")).insert_header((X_ACCEL_BUFFERING, "no"));
    Ok(response.content_type("text/event-stream").streaming(events))
}

impl<R, F> Stream<R>
where
    R: Fn(Rc<Visitor>) -> F,
    F: Future<Output = Result<Vec<Event>, PageError>>,
{
    /// Returns the next part of the stream; `None` at its end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if self.has_ended || self.visitor.console().readiness.is_ending() {
                return None;
            }
            if !std::mem::take(&mut self.is_first) {
                self.visitor.console().world.sleep(INTERVAL).await;
            }
            if !self.visitor.is_valid() {
                // Another page may have renewed the cookie, so the browser reconnects with the current one.
                return None;
            }
            let events = match (self.render)(Rc::clone(&self.visitor)).await {
                Ok(events) => {
                    self.sent.remove(&Event::problem_key());
                    events
                }
                Err(problem) if problem.leads_elsewhere() => {
                    self.has_ended = true;
                    return Some(Event::text("signed-out", "1".to_owned()).written());
                }
                Err(problem) => {
                    // Forgets the values, so that all of them are sent again after the problem.
                    self.sent.retain(|key, _| *key == Event::problem_key());
                    vec![Event::text(PROBLEM, problem.summary())]
                }
            };
            let changed: Vec<Event> =
                events.into_iter().filter(|event| self.sent.get(&event.key()) != Some(&event.data)).collect();
            if !changed.is_empty() {
                self.quiet = 0;
                let text = changed.iter().map(Event::written).collect();
                self.sent.extend(changed.into_iter().map(|event| (event.key(), event.data)));
                return Some(text);
            }
            self.quiet = self.quiet.saturating_add(1);
            if self.quiet >= QUIET_INTERVALS_MAX {
                self.quiet = 0;
                return Some(":\n\n".to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;

    #[test]
    fn content_of_several_lines_is_one_event() {
        let event = Event::region("gate", html! { p { "a\nb" } });
        assert_eq!(event.written(), "event: gate\ndata: <p>a\ndata: b</p>\n\n");
    }
}
