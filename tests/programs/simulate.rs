//! Runs the bank in simulated worlds with many seeds, and reports the failures.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use postonce_shared::testing::prelude::*;
use postonce_tests::simulation::batches::counts;
use postonce_tests::simulation::event_counts::EventCounts;
use postonce_tests::simulation::faults::{Fault, FaultCounts};
use postonce_tests::simulation::immediate_counts::{EVENTS, ImmediateCounts};
use postonce_tests::simulation::mutations::Mutation;
use postonce_tests::simulation::run::{Report, RunPlan, WorldStore, run as run_world};

/// Maximum number of failures that are printed.
const FAILURES_PRINTED_MAX: usize = 5;

/// Runs the bank in a simulated world. One seed decides the schedule, the clocks and every fault
#[derive(Debug, Args)]
pub struct Options {
    /// Number of seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Run only this seed, and print every event.
    #[arg(long, value_name = "SEED")]
    replay: Option<u64>,
    /// With --replay: stop after that many steps.
    #[arg(long, value_name = "STEPS")]
    until: Option<u64>,
    /// With --replay: remove the faults, transactions and batches that the failure does not need, and print
    /// the rest.
    #[arg(long)]
    shorten: bool,
    /// Number of transactions of each run.
    #[arg(long, default_value_t = 24)]
    transactions: u32,
    /// Number of batches of each run.
    #[arg(long, default_value_t = 2)]
    batches: u32,
    /// Faults that never occur.
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    without: Vec<Fault>,
    /// Make this mistake, to check that it is found.
    #[arg(long, value_name = "MISTAKE", value_parser = mutation)]
    mutation: Option<Mutation>,
    /// Run the adapter for Azure over simulated tables, instead of the memory adapter. Mistakes of that adapter do so
    /// anyway.
    #[arg(long)]
    azure: bool,
    /// Make each mistake in turn, until it is found or --seeds seeds were run.
    #[arg(long)]
    mutations: bool,
    /// Number of threads; by default the number of cores.
    #[arg(long)]
    threads: Option<usize>,
}

fn fault(name: &str) -> Result<Fault, String> {
    let known = Fault::ALL.map(Fault::name).join(", ");
    Fault::from_name(name).ok_or(format!("is none of {known}"))
}

fn mutation(name: &str) -> Result<Mutation, String> {
    let known = Mutation::ALL.map(Mutation::name).join(", ");
    Mutation::from_name(name).ok_or(format!("is none of {known}"))
}

/// Runs many seeds, or replays one.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if let Some(seed) = options.replay {
        return replay(options, seed);
    }
    if options.mutations {
        return try_mutations(options);
    }
    simulate(options)
}

impl Options {
    fn plan(&self, seed: u64) -> RunPlan {
        RunPlan {
            transactions: self.transactions,
            batches: self.batches,
            without: self.without.clone(),
            mutation: self.mutation,
            store: self.store(self.mutation),
            ..RunPlan::of(seed)
        }
    }

    fn store(&self, mutation: Option<Mutation>) -> WorldStore {
        if self.azure { WorldStore::Azure } else { mutation.map_or(WorldStore::Memory, Mutation::store) }
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        self.threads.unwrap_or_else(cores).max(1)
    }

    /// The command that reproduces a run.
    fn command(&self, seed: u64) -> String {
        let (transactions, batches) = (self.transactions, self.batches);
        let mut command = format!(
            "postonce-tests simulate --replay {seed} --transactions {transactions} --batches {batches}"
        );
        for fault in &self.without {
            command.push_str(&format!(" --without {fault}"));
        }
        if self.azure {
            command.push_str(" --azure");
        }
        if let Some(mutation) = self.mutation {
            command.push_str(&format!(" --mutation {}", mutation.name()));
        }
        command
    }
}

#[derive(Default)]
struct Totals {
    runs: u64,
    steps: u64,
    posted: u64,
    rejected: u64,
    faults: FaultCounts,
    immediate: ImmediateCounts,
    batches: EventCounts,
    failures: Vec<Report>,
}

impl Totals {
    fn add(&mut self, report: Report) {
        self.runs = self.runs.saturating_add(1);
        self.steps = self.steps.saturating_add(report.steps);
        self.posted = self.posted.saturating_add(report.posted);
        self.rejected = self.rejected.saturating_add(report.rejected);
        self.faults.merge(&report.faults);
        self.immediate.merge(&report.immediate);
        self.batches.merge(&report.batches);
        if report.finding.is_some() {
            self.failures.push(report);
        }
    }
}

fn simulate(options: &Options) -> anyhow::Result<()> {
    let world = SystemWorld::new();
    let start = world.uptime();
    let bar = ProgressBar::new(options.seeds);
    bar.set_style(
        ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} seeds, {per_sec}, {eta} left {msg}")
            .context("the style of the progress bar")?,
    );
    let next = AtomicU64::new(0);
    let sum = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..options.threads() {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= options.seeds {
                        return;
                    }
                    let report = run_world(&options.plan(options.first.saturating_add(index)));
                    let mut sum = sum.lock();
                    sum.add(report);
                    bar.inc(1);
                    if !sum.failures.is_empty() {
                        bar.set_message(format!("{} failed", sum.failures.len()));
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let sum = sum.into_inner();
    print_totals(&sum, world.uptime().saturating_sub(start));
    print_failures(options, sum.failures)
}

fn print_totals(sum: &Totals, took: Duration) {
    let per_second = u128::from(sum.runs).saturating_mul(1000).checked_div(took.as_millis()).unwrap_or(0);
    println!(
        "{} seeds in {} s ({per_second} a second), {} steps",
        HumanCount(sum.runs),
        took.as_secs(),
        HumanCount(sum.steps)
    );
    println!("{} transactions posted, {} rejected", HumanCount(sum.posted), HumanCount(sum.rejected));
    println!("requests that waited for their outcome:");
    for event in EVENTS {
        println!("  {event:<40}{:>14}", HumanCount(sum.immediate.of(event)).to_string());
    }
    println!("batches:");
    for event in counts::EVENTS {
        println!("  {event:<45}{:>9}", HumanCount(sum.batches.of(event)).to_string());
    }
    println!("{} faults:", HumanCount(sum.faults.total()));
    for fault in Fault::ALL {
        println!("  {:<16}{:>14}", fault.name(), HumanCount(sum.faults.of(fault)).to_string());
    }
}

fn print_failures(options: &Options, mut failures: Vec<Report>) -> anyhow::Result<()> {
    if failures.is_empty() {
        println!("No finding.");
        return Ok(());
    }
    failures.sort_by_key(|report| report.seed);
    for report in failures.iter().take(FAILURES_PRINTED_MAX) {
        let finding = report.finding.as_deref().unwrap_or_default();
        println!("\nseed {} after {} steps: {finding}", report.seed, report.steps);
        println!("  to reproduce: {}", options.command(report.seed));
    }
    bail!("{} of {} seeds failed", failures.len(), options.seeds)
}

/// Prints every event of a run; of a failing run that is shortened, only the necessary ones.
fn replay(options: &Options, seed: u64) -> anyhow::Result<()> {
    let mut plan = options.plan(seed);
    if options.shorten {
        plan = shorten(plan)?;
    }
    let report = run_world(&RunPlan { print: true, steps_max: options.until, ..plan });
    println!("\n{} steps, trace {:016x}", report.steps, report.trace_sum);
    match report.finding {
        Some(finding) => bail!("seed {seed}: {finding}"),
        None => Ok(()),
    }
}

/// The same failure with as few transactions, batches and kinds of faults as possible.
fn shorten(plan: RunPlan) -> anyhow::Result<RunPlan> {
    if run_world(&plan).finding.is_none() {
        bail!("seed {} does not fail: there is nothing to shorten", plan.seed);
    }
    let fails = |plan: &RunPlan| run_world(plan).finding.is_some();
    let mut shortest = plan;
    for fault in Fault::ALL {
        let without: BTreeSet<Fault> = shortest.without.iter().copied().chain([fault]).collect();
        let shorter = RunPlan { without: without.into_iter().collect(), ..shortest.clone() };
        if fails(&shorter) {
            shortest = shorter;
        }
    }
    for transactions in 1..shortest.transactions {
        let shorter = RunPlan { transactions, ..shortest.clone() };
        if fails(&shorter) {
            shortest = shorter;
            break;
        }
    }
    for batches in 0..shortest.batches {
        let shorter = RunPlan { batches, ..shortest.clone() };
        if fails(&shorter) {
            shortest = shorter;
            break;
        }
    }
    println!(
        "The failure needs {} transactions and {} batches, and none of: {}\n",
        shortest.transactions,
        shortest.batches,
        shortest.without.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(", ")
    );
    Ok(shortest)
}

/// Makes each mistake, and counts the seeds until it is found.
fn try_mutations(options: &Options) -> anyhow::Result<()> {
    let mut missed = Vec::new();
    for mutation in Mutation::ALL {
        let store = options.store(Some(mutation));
        let plan = |seed| RunPlan { mutation: Some(mutation), store, ..options.plan(seed) };
        let seeds = options.first..options.first.saturating_add(options.seeds);
        let found = seeds.map(|seed| run_world(&plan(seed))).find(|report| report.finding.is_some());
        match found {
            Some(report) => {
                let seeds = report.seed.saturating_sub(options.first).saturating_add(1);
                println!(
                    "{:<34} {seeds:>4} seed(s): {}",
                    mutation.name(),
                    report.finding.unwrap_or_default()
                );
            }
            None => {
                println!("{:<34} not found in {} seeds", mutation.name(), options.seeds);
                missed.push(mutation.name());
            }
        }
    }
    if missed.is_empty() { Ok(()) } else { bail!("not found: {}", missed.join(", ")) }
}
