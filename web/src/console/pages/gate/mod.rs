//! Page of the gate.
//!
//! Releasing and holding take two steps. A button leads to a description of the consequence, and only the form there
//! changes the gate. The form contains the epoch for which it was shown; if the gate has changed since, it has no effect.

mod forms;
mod panel;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::cell::RefCell;
use std::rc::Rc;

use actix_web::HttpResponse;
use actix_web::http::{Method, StatusCode};
use postonce_schemas::json::{Gate, GateChanged, Overview};
use serde_json::{Map, Value};

use self::forms::rfc_3339;
use self::panel::{PANEL, panel};
use self::state::{Done, Entered, Step, View};
use self::view::body;
use super::overview::NOW;
use crate::console::act::Act;
use crate::console::addresses::{LIVE_GATE, Section, encoded};
use crate::console::live::{Event, stream};
use crate::console::local_api::status_of;
use crate::console::page_error::PageError;
use crate::console::values::Values;
use crate::console::visitor::Visitor;

const GATE: &str = "/v1/admin/gate";
/// Code of the problem if the gate has changed since the form was shown.
const CHANGED: &str = "precondition_failed";

/// The bank with the current gate.
struct Known {
    overview: Overview,
    /// Whether the gate could be read from the store. Otherwise it is the gate that this process applies.
    is_read: bool,
}

impl Known {
    /// Reads the overview and the gate. A page after an act thus shows the change, although processes may apply it later.
    ///
    /// # Errors
    /// [`PageError`] with the problem that the API answers.
    async fn read(visitor: &Visitor) -> Result<Self, PageError> {
        let overview: Overview = visitor.get(NOW).await?;
        let gate = visitor.attempt::<Gate>((Method::GET, GATE), None).await?;
        let is_read = gate.is_ok();
        let gate = gate.unwrap_or_else(|_| overview.gate.clone());
        Ok(Self { overview: with_gate(overview, gate), is_read })
    }
}

/// Shows the page.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let query = visitor.query();
    let (step, done) = (Step::of_code(query.text("confirm")), Done::of_code(query.text("done")));
    page(&visitor, StatusCode::OK, (step, done), &Entered::default()).await
}

/// Holds or releases the gate.
///
/// # Errors
/// [`PageError`] with the problem that the API answers. Violations are shown beside their fields.
pub async fn change(act: Act) -> Result<HttpResponse, PageError> {
    let Act { visitor, form } = &act;
    let state = match form.text("act") {
        "hold" => "held",
        "release" => "released",
        _ => {
            let detail = "The form says neither to hold nor to release the gate, so nothing was done.";
            return Err(visitor.refuse(StatusCode::BAD_REQUEST, "The form cannot be read", detail));
        }
    };
    let wanted = wanted(state, form);
    // The entity tag of the gate is its epoch. A form without an epoch matches no gate.
    let shown = format!("\"{}\"", encoded(form.text("epoch")));
    match visitor.attempt_if_match::<GateChanged>((Method::PUT, GATE), Some(&wanted), &shown).await? {
        Ok(changed) => Ok(act.done(Section::Gate.path(), Done::of_change(&changed).code())),
        Err(refusal) if refusal.code == CHANGED => Ok(act.done(Section::Gate.path(), Done::Nothing.code())),
        Err(refusal) if refusal.violations.is_empty() => Err(visitor.refused(&refusal)),
        Err(refusal) => {
            let entered = Entered {
                reason: form.text("reason"),
                release_at: form.text("release_at"),
                refusal: Some(&refusal),
            };
            let step = if state == "held" { Step::Hold } else { Step::Release };
            let step = Step::of_code(form.text("step")).unwrap_or(step);
            page(visitor, status_of(&refusal), (Some(step), None), &entered).await
        }
    }
}

/// Streams the events of the page.
///
/// # Errors
/// [`PageError`] when the key may not read the page, or there are too many streams.
pub async fn live(visitor: Visitor) -> Result<HttpResponse, PageError> {
    // The overview contains the author and reason of a change only later, so the gate is read once for each change.
    let latest = Rc::new(RefCell::new(None::<Gate>));
    stream(visitor, move |visitor| {
        let latest = Rc::clone(&latest);
        async move {
            let overview: Overview = visitor.get(NOW).await?;
            let mut gate = latest.borrow().clone().filter(|gate| gate.epoch >= overview.gate.epoch);
            if gate.is_none() {
                gate = visitor.attempt::<Gate>((Method::GET, GATE), None).await?.ok();
                latest.replace(gate.clone());
            }
            let gate = gate.unwrap_or_else(|| overview.gate.clone());
            Ok(events(&with_gate(overview, gate)))
        }
    })
}

async fn page(
    visitor: &Visitor,
    status: StatusCode,
    (step, done): (Option<Step>, Option<Done>),
    entered: &Entered<'_>,
) -> Result<HttpResponse, PageError> {
    let Known { overview, is_read } = Known::read(visitor).await?;
    let view = View { overview: &overview, is_read, step, done, entered, viewer: visitor.viewer() };
    Ok(visitor.live_page(status, LIVE_GATE, body(&view)))
}

fn events(overview: &Overview) -> Vec<Event> {
    vec![
        Event::region(PANEL, panel(&overview.gate)),
        Event::region("waiting", view::waiting(overview)),
        Event::region("acknowledgments", view::applied(overview)),
    ]
}

/// Replaces the gate of the overview by the one read from the store, unless that is older, and updates the acknowledgments.
fn with_gate(mut overview: Overview, read: Gate) -> Overview {
    if read.epoch < overview.gate.epoch {
        return overview;
    }
    let clock_problem = overview.gate.clock_problem.take().or_else(|| read.clock_problem.clone());
    let clock_problem = clock_problem.filter(|_| read.release_at.is_some());
    if read.epoch != overview.gate.epoch {
        for process in &mut overview.processes {
            process.acknowledged = process.gate_epoch == Some(read.epoch);
        }
    }
    overview.gate = Gate { clock_problem, ..read };
    overview
}

/// Returns the body of the request, without the fields that were left empty.
fn wanted(state: &str, form: &Values) -> Value {
    let reason = form.given("reason").map(str::to_owned);
    let release_at = form.given("release_at").filter(|_| state == "held").map(rfc_3339);
    let members = [("state", Some(state.to_owned())), ("reason", reason), ("release_at", release_at)];
    let given =
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?))));
    Value::Object(given.collect::<Map<String, Value>>())
}
