//! Tests of the page in each state of the gate, and of the requests that its forms make.

use postonce_schemas::json::{GateListener, OverviewProcess, Problem, Violation};
use serde_json::json;

use super::*;
use crate::access::scopes::Scope;
use crate::console::html::format::THIN_SPACE;
use crate::console::pages::overview::sample::{held, process, silent, well};
use crate::console::viewer::Viewer;
use crate::console::viewer::tests::viewer;

const NOTHING: Entered<'_> = Entered { reason: "", release_at: "", refusal: None };

fn view<'a>(overview: &'a Overview, viewer: &'a Viewer) -> View<'a> {
    View { overview, is_read: true, step: None, done: None, entered: &NOTHING, viewer }
}

fn operator() -> Viewer {
    viewer(&[Scope::Operate])
}

fn shown(view: &View<'_>) -> String {
    body(view).into_string().replace(THIN_SPACE, " ")
}

fn gate(epoch: u64, state: &'static str) -> Gate {
    let (release_at, since, by, reason) = (None, None, Some("partner=ops key=9f86".to_owned()), None);
    Gate { state: state.into(), epoch, release_at, since, by, reason, clock_problem: None }
}

fn listener(acknowledged: bool) -> GateListener {
    let json = json!({
        "listener": "a1", "address": "http://10.0.0.7:8081", "seen_at": "2026-11-23T06:00:00.000Z",
        "acknowledged": acknowledged, "epoch": null,
    });
    serde_json::from_value(json).unwrap()
}

#[test]
fn a_held_gate_shows_what_waits_and_the_button() {
    let overview = held();
    let page = shown(&view(&overview, &operator()));
    for text in ["data-state=\"held\"", "12 345", "15 min", "Release the gate", "Schedule the release"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(page.contains("nightly &lt;script&gt;close&lt;/script&gt;") && !page.contains("<script>"));
    assert!(page.contains("2 of 2 processes apply epoch 7."));
    assert!(!page.contains(r#"method="post""#), "nothing is done without a confirmation");
    for region in ["panel", "waiting", "acknowledgments"] {
        assert!(page.contains(&format!(r#"sse-swap="{region}""#)), "{region}");
    }
}

#[test]
fn a_release_says_what_starts() {
    let mut overview = held();
    overview.processes.push(silent("c3"));
    overview.scale.batch_items = 98;
    let page = shown(&View { step: Some(Step::Release), ..view(&overview, &operator()) });
    let consequence = "2 processes start at once on 12 345 waiting messages, and 98 items of batches wait.";
    assert!(page.contains(consequence), "{page}");
    assert!(page.contains("1 process does not answer; it starts after reading the gate."));
    for (name, value) in [("csrf", "token"), ("act", "release"), ("epoch", "7")] {
        assert!(page.contains(&format!(r#"name="{name}" value="{value}""#)), "{name}");
    }
    assert_eq!(page.matches(r#"method="post""#).count(), 1);
    let empty = Overview { queues: Vec::new(), ..held() };
    let page = shown(&View { step: Some(Step::Release), ..view(&empty, &operator()) });
    assert!(page.contains("2 processes start at once; no messages wait."), "{page}");
}

#[test]
fn a_hold_says_what_stops_and_can_end_by_itself() {
    let overview = well();
    let page = shown(&view(&overview, &operator()));
    assert!(page.contains(r#"href="/console/gate?confirm=hold""#) && !page.contains(r#"method="post""#));
    let page = shown(&View { step: Some(Step::Hold), ..view(&overview, &operator()) });
    assert!(
        page.contains("Nothing new is posted by 2 processes; requests are still accepted, and wait"),
        "{page}"
    );
    assert!(page.contains("12 345.4 transactions are posted per second"));
    assert!(page.contains(r#"type="datetime-local" step="1" min="2026-11-23T06:00:02" value="""#), "{page}");
    assert!(page.contains(r#"name="act" value="hold""#));
}

#[test]
fn a_schedule_is_changed_while_the_gate_is_held() {
    let mut overview = held();
    overview.gate.release_at = Some("2026-11-23T07:00:00.000Z".to_owned());
    overview.gate.clock_problem = Some("its clock is 5 s ahead".to_owned());
    let page = shown(&view(&overview, &operator()));
    assert!(page.contains("Change the schedule") && page.contains("its clock is 5 s ahead"));
    let page = shown(&View { step: Some(Step::Schedule), ..view(&overview, &operator()) });
    assert!(page.contains(r#"value="2026-11-23T07:00:00""#), "{page}");
    assert!(page.contains(r#"name="act" value="hold""#) && page.contains(r#"name="step" value="schedule""#));
}

#[test]
fn what_the_api_refuses_stands_beside_the_field() {
    let violations = vec![
        Violation { field: "release_at".to_owned(), message: "must be later than now".to_owned() },
        Violation { field: "state".to_owned(), message: "never here".to_owned() },
    ];
    let refusal = Problem {
        r#type: "urn:postonce:problem:validation_failed".to_owned(),
        title: "At least one field is not valid".into(),
        status: 422,
        detail: "One field is not valid; see violations.".to_owned(),
        code: "validation_failed".into(),
        reason: None,
        violations,
        request_id: None,
        trace_id: None,
    };
    let entered = Entered { reason: "<script>", release_at: "2020-01-01T00:00", refusal: Some(&refusal) };
    let overview = well();
    let page = shown(&View { step: Some(Step::Hold), entered: &entered, ..view(&overview, &operator()) });
    assert!(page.contains(r#"id="field-release_at-error">must be later than now"#), "{page}");
    assert!(page.contains(r#"value="2020-01-01T00:00""#) && page.contains(r#"value="&lt;script&gt;""#));
    assert_eq!(status_of(&refusal), StatusCode::UNPROCESSABLE_ENTITY);
}

#[test]
fn without_the_scope_there_are_no_buttons() {
    for overview in [held(), well()] {
        for step in [None, Some(Step::Release), Some(Step::Hold), Some(Step::Schedule)] {
            let page = shown(&View { step, ..view(&overview, &viewer(&[Scope::Metrics])) });
            assert!(page.contains("needs the scope <code>operate</code>"), "{page}");
            assert!(!page.contains("<form") && !page.contains("<a "), "{page}");
        }
    }
}

#[test]
fn processes_that_do_not_apply_the_gate_say_why() {
    let mut overview = held();
    let behind = process("d4", "worker");
    overview.processes.push(OverviewProcess { gate_epoch: Some(6), acknowledged: false, ..behind });
    overview.processes.push(silent("c3"));
    let chips = view::applied(&overview).into_string();
    assert!(chips.contains("2 of 4 processes apply epoch 7.") && chips.contains("may still post"), "{chips}");
    assert!(chips.contains("applies epoch 6") && chips.contains("does not answer"), "{chips}");
    assert_eq!(chips.matches(r#"data-acknowledged="false""#).count(), 2);
    assert!(chips.contains("worker at http://10.0.0.7:8081"));
    overview.processes.clear();
    assert!(view::applied(&overview).into_string().contains("No process posts"));
}

#[test]
fn a_result_is_a_fixed_code() {
    let changed = |state: &'static str, listeners: &[bool], registry_problem: Option<&str>| GateChanged {
        state: state.into(),
        epoch: 8,
        release_at: None,
        since: None,
        by: None,
        reason: None,
        registry_problem: registry_problem.map(str::to_owned),
        listeners: listeners.iter().map(|acknowledged| listener(*acknowledged)).collect(),
    };
    let cases = [
        (changed("released", &[true, true], None), "released"),
        (changed("released", &[true, false], None), "released-partly"),
        (changed("held", &[], None), "held"),
        (changed("held", &[true], Some("the store cannot be reached")), "held-partly"),
    ];
    for (changed, code) in cases {
        let done = Done::of_change(&changed);
        assert_eq!(done.code(), code);
        assert_eq!(Done::of_code(done.code()), Some(done));
    }
    assert_eq!(Done::of_code("<script>"), None);
    let overview = well();
    let page = shown(&View { done: Some(Done::ReleasedPartly), ..view(&overview, &operator()) });
    assert!(page.contains("not all processes acknowledged it"), "{page}");
    let page = shown(&View { step: Some(Step::Release), ..view(&overview, &operator()) });
    assert!(page.contains("There is nothing to confirm"), "{page}");
}

#[test]
fn the_newer_gate_counts() {
    let read = with_gate(well(), gate(8, "held"));
    assert_eq!((read.gate.epoch, read.gate.by.as_deref()), (8, Some("partner=ops key=9f86")));
    assert!(read.processes.iter().all(|process| !process.acknowledged), "they apply epoch 7");
    let same = with_gate(well(), gate(7, "released"));
    assert!(same.processes.iter().all(|process| process.acknowledged));
    let older = with_gate(well(), gate(6, "held"));
    assert_eq!(older.gate, well().gate);
    let mut scheduled = held();
    scheduled.gate.clock_problem = Some("its clock is 5 s ahead".to_owned());
    assert_eq!(with_gate(scheduled, gate(8, "released")).gate.clock_problem, None);
}

#[test]
fn a_request_has_only_what_was_entered() {
    let form = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
        Values::of_query(&pairs.collect::<Vec<String>>().join("&"))
    };
    assert_eq!(wanted("held", &form(&[("reason", ""), ("release_at", "")])), json!({"state": "held"}));
    let entered = form(&[("reason", "close"), ("release_at", "2026-11-23T06:00")]);
    let scheduled = json!({"state": "held", "reason": "close", "release_at": "2026-11-23T06:00:00Z"});
    assert_eq!(wanted("held", &entered), scheduled);
    assert_eq!(wanted("released", &entered), json!({"state": "released", "reason": "close"}));
}
