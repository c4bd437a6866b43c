//! The bank in simulated worlds. A failure prints its seed, and `cargo run --release --bin postonce-tests --
//! simulate --replay SEED` reproduces it.

mod contracts;

use std::collections::BTreeSet;
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
const SEEDS: u64 = 600;
/// The same for worlds with the adapter for Azure, which take longer.
const AZURE_SEEDS: u64 = 100;
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

fn assert_no_finding(report: &Report) {
    assert!(
        report.finding.is_none(),
        "seed {} after {} steps: {}\n{}",
        report.seed,
        report.steps,
        report.finding.as_deref().unwrap_or_default(),
        report.trace_tail.join("\n")
    );
}

/// Most worlds post and reject transactions.
fn assert_outcomes(reports: &[Report], seeds: u64) {
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    let (posted, rejected) = (sum(|report| report.posted), sum(|report| report.rejected));
    assert!(posted > seeds.saturating_mul(10) && rejected > seeds, "{posted} posted and {rejected} rejected");
    println!("{posted} posted, {rejected} rejected in {seeds} worlds");
}

#[test]
fn the_invariants_hold_in_every_simulated_world() {
    let reports = runs(SEEDS, RunPlan::of);
    let (mut faults, mut immediate) = (FaultCounts::default(), ImmediateCounts::default());
    let mut batches = EventCounts::default();
    for report in &reports {
        assert_no_finding(report);
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
    assert_outcomes(&reports, SEEDS);
    println!("{} faults in {SEEDS} worlds", faults.total());
}

#[test]
fn the_invariants_hold_in_every_world_with_the_azure_adapter() {
    let reports = runs(AZURE_SEEDS, RunPlan::over_azure);
    let mut faults = FaultCounts::default();
    for report in &reports {
        assert_no_finding(report);
        faults.merge(&report.faults);
    }
    for fault in Fault::ALL {
        assert!(faults.of(fault) > 0, "{fault} never occurred in {AZURE_SEEDS} worlds");
    }
    assert_outcomes(&reports, AZURE_SEEDS);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_repeatable(16, RunPlan::of);
    assert_repeatable(6, RunPlan::over_azure);
}

/// Runs each plan twice, and compares all events.
fn assert_repeatable(seeds: u64, plan: impl Fn(u64) -> RunPlan + Sync) {
    let mut first = runs(seeds, &plan);
    let mut second = runs(seeds, &plan);
    first.sort_by_key(|report| report.seed);
    second.sort_by_key(|report| report.seed);
    for (one, other) in first.iter().zip(&second) {
        assert_eq!((one.steps, one.trace_sum), (other.steps, other.trace_sum), "seed {}", one.seed);
    }
    let sums: BTreeSet<u64> = first.iter().map(|report| report.trace_sum).collect();
    assert_eq!(sums.len(), first.len(), "different seeds give different runs");
}

#[test]
fn every_deliberate_mistake_is_found() {
    let mutations = Mutex::new(Mutation::ALL.iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = mutations.lock().next();
                    let Some(mutation) = next else { return };
                    assert_found(*mutation);
                }
            });
        }
    });
}

fn assert_found(mutation: Mutation) {
    let plan = |seed| RunPlan::with(seed, mutation);
    let found = (1..=SEEDS_PER_MISTAKE).map(|seed| run(&plan(seed))).find(|report| report.finding.is_some());
    let report = found.unwrap_or_else(|| {
        panic!("{} was not found in {SEEDS_PER_MISTAKE} seeds", mutation.name());
    });
    let finding = report.finding.unwrap_or_default();
    println!("{}: after {} seed(s): {finding}", mutation.name(), report.seed);
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
