//! The models of `postonce_tests::model` within the small bounds. The command `postonce-tests model-check` has larger ones.

use std::collections::BTreeSet;
use std::io::Write as _;

use postonce_tests::model::explore::{Bounds, Explored, Run, unreached};
use postonce_tests::model::{mutations, runs};

/// Checks all runs, and prints how much they visited.
fn check(name: &str, runs: &[Run]) -> BTreeSet<&'static str> {
    let explore = |run: &Run| {
        let explored = run.check().unwrap_or_else(|finding| panic!("{}: {finding}", run.description));
        println!("{}: {} states", run.description, explored.states);
        explored
    };
    let all: Vec<Explored> = runs.iter().map(explore).collect();
    let total: usize = all.iter().map(|explored| explored.states).sum();
    // Written to stderr directly, so that the size of the proof is visible without `--nocapture`.
    writeln!(std::io::stderr(), "{name}, {} runs: {total} states", runs.len()).expect("stderr is writable");
    unreached(&all)
}

#[test]
fn every_property_holds_and_every_goal_is_reached_within_the_small_bounds() {
    assert_eq!(check("model check", &runs(Bounds::Small)), BTreeSet::new());
}

#[test]
fn every_omitted_rule_is_detected() {
    check("mutations of the models", &mutations());
}
