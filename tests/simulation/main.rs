//! The bank in simulated worlds. A failure prints its seed, and `cargo run --release -p postonce-tests
//! --bin simulate -- --replay SEED` reproduces it.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use postonce_tests::simulation::batches::counts;
use postonce_tests::simulation::event_counts::EventCounts;
use postonce_tests::simulation::faults::{Fault, FaultCounts};
use postonce_tests::simulation::immediate_counts::{EVENTS, ImmediateCounts};
use postonce_tests::simulation::mutations::Mutation;
use postonce_tests::simulation::run::{Report, RunPlan, run};

/// Number of seeds in every test run. The seeds are always the same, so that a failure repeats; the command
/// runs other seeds.
const SEEDS: u64 = 300;
/// Number of seeds within which a mistake must be found.
const SEEDS_PER_MISTAKE: u64 = 1_000;

/// Runs the plans of many seeds, two at a time.
fn runs(seeds: u64, plan: impl Fn(u64) -> RunPlan + Sync) -> Vec<Report> {
    let (next, reports) = (AtomicU64::new(1), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        return;
                    }
                    let report = run(&plan(seed));
                    reports.lock().push(report);
                }
            });
        }
    });
    reports.into_inner()
}

#[test]
fn the_invariants_hold_in_every_simulated_world() {
    let reports = runs(SEEDS, RunPlan::of);
    let (mut faults, mut immediate) = (FaultCounts::default(), ImmediateCounts::default());
    let mut batches = EventCounts::default();
    for report in &reports {
        assert!(
            report.finding.is_none(),
            "seed {} after {} steps: {}\n{}",
            report.seed,
            report.steps,
            report.finding.as_deref().unwrap_or_default(),
            report.trace_tail.join("\n")
        );
        faults.merge(&report.faults);
        immediate.merge(&report.immediate);
        batches.merge(&report.batches);
    }
    // A world without faults or without transactions proves nothing.
    for fault in Fault::ALL {
        assert!(faults.of(fault) > 0, "{fault} never occurred in {SEEDS} worlds");
    }
    for event in EVENTS {
        assert!(immediate.of(event) > 0, "{event:?} never occurred in {SEEDS} worlds");
    }
    for event in counts::EVENTS {
        assert!(batches.of(event) > 0, "{event:?} never occurred in {SEEDS} worlds");
    }
    let (posted, rejected) = reports
        .iter()
        .fold((0, 0), |(posted, rejected), report| (posted + report.posted, rejected + report.rejected));
    assert!(posted > 10 * SEEDS && rejected > SEEDS, "{posted} posted and {rejected} rejected");
    println!("{posted} posted, {rejected} rejected, {} faults in {SEEDS} worlds", faults.total());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut first = runs(40, RunPlan::of);
    let mut second = runs(40, RunPlan::of);
    first.sort_by_key(|report| report.seed);
    second.sort_by_key(|report| report.seed);
    for (one, other) in first.iter().zip(&second) {
        assert_eq!((one.steps, one.trace_sum), (other.steps, other.trace_sum), "seed {}", one.seed);
    }
    let sums: std::collections::BTreeSet<u64> = first.iter().map(|report| report.trace_sum).collect();
    assert_eq!(sums.len(), 40, "different seeds give different runs");
}

#[test]
fn every_deliberate_mistake_is_found() {
    for mutation in Mutation::ALL {
        let plan = |seed| RunPlan { mutation: Some(mutation), ..RunPlan::of(seed) };
        let found =
            (1..=SEEDS_PER_MISTAKE).map(|seed| run(&plan(seed))).find(|report| report.finding.is_some());
        let report = found.unwrap_or_else(|| {
            panic!("{} was not found in {SEEDS_PER_MISTAKE} seeds", mutation.name());
        });
        println!("{}: after {} seed(s): {}", mutation.name(), report.seed, report.finding.unwrap());
    }
}

#[test]
fn a_failing_run_ends_at_the_first_wrong_step() {
    // Which seeds are affected depends on every step of the bank.
    let plan = |seed| RunPlan { mutation: Some(Mutation::CommitWithoutRowGuard), ..RunPlan::of(seed) };
    let mut runs = (1..=SEEDS_PER_MISTAKE).map(plan).map(|plan| (run(&plan), plan));
    let affected =
        runs.find(|(report, _)| report.finding.as_ref().is_some_and(|it| it.contains("posted twice")));
    let (report, wrong) = affected.expect("a seed that posts twice");
    let last = report.trace_tail.last().unwrap();
    assert!(last.contains("commit"), "the last event is the wrong commit: {last}");
    let before = run(&RunPlan { steps_max: Some(report.steps - 1), ..wrong });
    assert!(before.finding.unwrap().starts_with("stopped after"), "one step earlier nothing is wrong");
}
