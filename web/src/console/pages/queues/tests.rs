//! Tests of the page of the work queues.

use super::super::overview::sample::{held, queue, well};
use super::*;
use crate::access::scopes::Scope;
use crate::console::html::format::THIN_SPACE;
use crate::console::viewer::tests::viewer;

fn shown(overview: &Overview) -> String {
    body(overview, &viewer(Scope::ALL)).into_string().replace(THIN_SPACE, " ")
}

#[test]
fn the_longest_queue_comes_first() {
    let mut overview = well();
    overview.queues = vec![queue("work-0", 5), queue("work-1", 12_345), queue("batch<script>", 0)];
    let page = shown(&overview);
    assert!(page.find("work-1") < page.find("work-0"), "{page}");
    assert!(page.contains("12 350 messages, as of <time"));
    let row = r#"<td class="number">12 345</td><td class="number">9</td><td class="number"><span class="age">2 s</span></td>"#;
    assert!(page.contains(row), "{page}");
    assert!(
        page.contains(r#"<td class="number">3 of 16</td><td><span class="muted">all workers</span></td>"#)
    );
    assert!(page.contains("batch&lt;script&gt;") && !page.contains("<script>"));
    assert!(page.contains(r#"<span class="muted">none</span>"#));
    assert!(!page.contains("Not known:") && !page.contains("The gate is held"));
    for region in ["gate", "queues", "scaling", "processes"] {
        assert!(page.contains(&format!(r#"sse-swap="{region}""#)), "{region}");
    }
}

#[test]
fn a_process_that_does_not_answer_may_have_a_queue() {
    let mut overview = well();
    overview.queues = vec![queue("work-0", 5)];
    overview.processes[0].answers = false;
    let page = shown(&overview);
    assert!(page.contains(r#"3 of 16</td><td><span class="muted">not known</span>"#), "{page}");
    overview.queues[0].assigned_to = vec!["0b1c".to_owned()];
    assert!(shown(&overview).contains(r#"3 of 16</td><td><code class="id">0b1c</code>"#));
}

#[test]
fn an_age_that_is_not_known_is_explained() {
    let mut overview = well();
    overview.queues = vec![OverviewQueue { oldest_age_known: false, oldest_age_s: 0, ..queue("work-0", 5) }];
    let page = shown(&overview);
    assert!(page.contains(r#"<span class="muted">not known</span>"#), "{page}");
    assert!(page.contains("Not known: workers have received all messages of the queue"));
}

#[test]
fn a_held_gate_explains_why_all_waits() {
    let page = shown(&held());
    assert!(page.contains("The gate is held: nothing new is posted"), "{page}");
    assert!(page.contains(r#"<a href="/console/gate">"#));
}

#[test]
fn without_queues_the_page_says_what_to_do() {
    let overview = Overview { queues: Vec::new(), ..well() };
    let page = shown(&overview);
    assert!(page.contains("No queues") && page.contains("Processes create the queues"), "{page}");
    assert!(page.contains("0 messages, as of"));
}
