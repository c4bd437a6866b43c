//! Streams of current values (server-sent events, HTML Living Standard, section 9.2).
//!
//! A stream reads through the API like its page, on behalf of the same session: it ends with it, also when the key is revoked. How
//! often the store is read does not depend on the number of streams (see [`crate::admin::overview`]).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::{self, HeaderName};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use futures::stream;
use maud::Markup;
use serde_json::Value;

use super::page_error::PageError;
use super::visitor::Visitor;

/// Time between two events.
const INTERVAL: Duration = Duration::from_secs(1);
/// A comment is sent after so many intervals without an event, so that proxies keep the connection.
const QUIET_INTERVALS_MAX: u32 = 15;
/// Most streams of one process: each is a connection of a browser.
const STREAMS_MAX: usize = 200;
/// Tells proxies not to collect the answer before they pass it on.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The streams of this process.
static STREAMS: AtomicUsize = AtomicUsize::new(0);

/// An event: the new content of a region, or a value for a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    name: &'static str,
    /// What the event is about, if several have its name.
    about: String,
    data: String,
}

impl Event {
    /// The content of the region with this name. It is sent only if it changed.
    pub fn region(name: &'static str, content: Markup) -> Self {
        Self { name, about: String::new(), data: content.into_string() }
    }

    /// A value for a script, about the thing whose name is its member `name`. It is sent only if it changed.
    pub fn value(name: &'static str, value: &Value) -> Self {
        let about = value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { name, about, data: value.to_string() }
    }

    fn text(name: &'static str, data: String) -> Self {
        Self { name, about: String::new(), data }
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

/// Counts a stream until it is dropped.
struct Counted;

impl Counted {
    fn begin() -> Option<Self> {
        let before = STREAMS.fetch_add(1, Ordering::Relaxed);
        let counted = Self;
        (before < STREAMS_MAX).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        STREAMS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream between two events.
struct Stream<R> {
    visitor: Rc<Visitor>,
    render: R,
    /// What was sent last, by name and what it is about.
    sent: BTreeMap<(&'static str, String), String>,
    quiet: u32,
    is_first: bool,
    has_ended: bool,
    _counted: Counted,
}

/// Answers with a stream of what `render` returns, about once a second, until the session or the process ends.
///
/// # Errors
/// [`PageError`] when the process has too many streams.
pub fn stream<R, F>(visitor: Visitor, render: R) -> Result<HttpResponse, PageError>
where
    R: Fn(Rc<Visitor>) -> F + 'static,
    F: Future<Output = Result<Vec<Event>, PageError>> + 'static,
{
    let Some(counted) = Counted::begin() else {
        let detail = format!(
            "This process serves {STREAMS_MAX} consoles already. Reload the page for current values."
        );
        return Err(visitor.refuse(StatusCode::SERVICE_UNAVAILABLE, "Too many consoles", &detail));
    };
    let begun = Stream {
        visitor: Rc::new(visitor),
        render,
        sent: BTreeMap::new(),
        quiet: 0,
        is_first: true,
        has_ended: false,
        _counted: counted,
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
    /// Returns what is sent next; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if self.has_ended || self.visitor.console().readiness.is_ending() {
                return None;
            }
            if !std::mem::take(&mut self.is_first) {
                self.visitor.console().world.sleep(INTERVAL).await;
            }
            if !self.visitor.is_valid() || !self.visitor.has_key().await {
                self.has_ended = true;
                return Some(Event::text("signed-out", "1".to_owned()).written());
            }
            let events = match (self.render)(Rc::clone(&self.visitor)).await {
                Ok(events) => events,
                Err(problem) => {
                    // The page shows no current values until it receives some again.
                    self.sent.clear();
                    vec![Event::text("problem", problem.summary())]
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

impl Visitor {
    /// Returns whether the key of the session is still valid. Without an answer it counts as valid: the API checks it anyway.
    async fn has_key(&self) -> bool {
        match self.attempt::<Value>((Method::GET, "/v1/key"), None).await {
            Ok(_) => true,
            Err(problem) => !problem.leads_elsewhere(),
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
