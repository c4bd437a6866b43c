//! Tests of the overview with and without problems.

use postonce_schemas::json::OverviewProcess;

use super::sample::{held, process, silent, well};
use super::*;
use crate::console::viewer::tests::viewer;

fn status_of(overview: &Overview) -> String {
    status::status(overview, &viewer(Scope::ALL)).into_string()
}

#[test]
fn a_bank_that_is_well_says_so() {
    let page = body(&well(), &viewer(Scope::ALL)).into_string();
    assert!(page.contains("Everything that was accepted is being posted."), "{page}");
    assert!(!page.contains(r#"data-tone="warning""#) && !page.contains(r#"data-tone="bad""#), "{page}");
    for region in ["status", "figures", "ways", "processes"] {
        assert!(page.contains(&format!(r#"sse-swap="{region}""#)), "{region}");
    }
    for text in ["12\u{202f}345.4", "$1.0305", "of 32", "Transactions per second", "Ways of posting"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.contains(">1 h<"), "the processes have run for an hour: {page}");
}

#[test]
fn what_is_not_known_is_not_called_well() {
    let overview = Overview { oldest_open_age_s: None, dead_letters_open: None, ..well() };
    let status = status_of(&overview);
    assert!(status.contains("is being posted") && status.contains("age of the oldest message is not known"));
    assert!(status.contains("Dead letters are not counted yet"));
    let figures = figures::figures(&overview, &viewer(Scope::ALL)).into_string();
    assert_eq!(figures.matches("Not known").count(), 2);
}

#[test]
fn a_held_gate_is_said_first_with_what_waits() {
    let status = status_of(&held());
    assert!(status.contains("The gate is held: nothing new is posted"), "{status}");
    assert!(status.contains("12\u{202f}345 messages in the queues. It stays held"), "{status}");
    assert!(status.contains("nightly &lt;script&gt;close&lt;/script&gt;") && !status.contains("<script>"));
    assert!(!status.contains("Accepted work waits"), "nothing is late while the gate is held");
}

#[test]
fn faults_are_said_the_worst_first() {
    let mut overview = well();
    overview.processes = vec![
        silent("c3"),
        OverviewProcess { not_ready: vec!["queue".to_owned()], ..process("a1", "web") },
        OverviewProcess { gate_epoch: Some(6), acknowledged: false, ..process("d4", "worker") },
    ];
    overview.activity.storage_errors = vec![3, 1];
    overview.activity.request_errors = vec![0, 1];
    overview.oldest_open_age_s = Some(252);
    overview.scale.workers_wanted = 3;
    overview.dead_letters_open = Some(2);
    overview.gate.clock_problem = Some("its clock is 5 s ahead".to_owned());
    let status = status_of(&overview);
    let expected = [
        "1 process does not answer",
        "The scheduled release is in doubt",
        "1 process is not ready",
        "1 process does not apply epoch 7 of the gate",
        "1 request was answered with a status of 5xx in the last minute",
        "4 storage operations failed in the last minute",
        "Accepted work waits for 4 min 12 s; the target is 10 s",
        "3 workers are wanted, 1 runs",
        "2 dead letters wait for a decision",
    ];
    let positions: Vec<Option<usize>> = expected.iter().map(|text| status.find(text)).collect();
    assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{positions:?}: {status}");
    assert!(status.contains(r#"<a href="/console/dead-letters">"#));
    assert!(!status.contains("is being posted"));
    let without_links = status::status(&overview, &viewer(&[])).into_string();
    assert!(!without_links.contains("<a "), "no links to pages that the key may not read");
}

#[test]
fn processes_that_need_attention_come_first_and_are_escaped() {
    let mut overview = well();
    let address = "http://<script>".to_owned();
    overview.processes.push(OverviewProcess { address, ..silent("c3") });
    overview.processes.push(OverviewProcess { version: Some("0.2.0".to_owned()), ..process("d4", "worker") });
    let table = processes::processes(&overview).into_string();
    assert!(table.find("c3") < table.find("a1"));
    assert!(table.contains("Does not answer") && table.contains("http://&lt;script&gt;"));
    assert!(table.contains("2 different builds run"));
    assert!(table.contains("up to 36 minutes"));
    let none = Overview { processes: Vec::new(), ..well() };
    assert!(processes::processes(&none).into_string().contains("No process has registered"));
}

#[test]
fn events_replace_the_regions_and_append_to_the_plots() {
    let events = events(&well(), &viewer(Scope::ALL));
    assert_eq!(events[0], Event::region("status", status::status(&well(), &viewer(Scope::ALL))));
    let points = plots::newest(&well().activity);
    let values: Vec<Event> = points.iter().map(|point| Event::value("plot", point)).collect();
    assert_eq!((events[4..].len(), &events[4..]), (3, &values[..]));
}

#[test]
fn a_key_without_pages_learns_which_scopes_open_them() {
    let page = no_pages().into_string();
    assert!(page.contains("<td>Overview</td><td><code>metrics</code></td>"), "{page}");
    assert!(page.contains("<td>Batches</td><td><code>batch</code> or <code>operate</code></td>"), "{page}");
}
