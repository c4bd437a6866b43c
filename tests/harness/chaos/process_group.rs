//! The processes of a run. Each process has a slot, is killed many times, and is restarted.
//!
//! A process that ends without a signal, or that panics, is a finding.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::phase::CurrentPhase;
use super::results::{ProcessKind, RunResults};
use crate::faults::DELETES_EARLY;
use crate::prelude::*;
use crate::process::{Launch, Process, Signal};
use crate::service::{self, DRAIN_TIME_MAX, Settings};

/// Interval at which the processes are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time until a killed process is restarted, in milliseconds.
const DOWN_MS_MAX: u64 = 1_000;
/// Number of last log lines to include in a finding.
const LINES_REPORTED: usize = 15;
/// Part of the log line of a panic, from the panic hook or from the worker.
const PANIC: &str = " panicked";

/// The program of a slot.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// The kind of process.
    pub kind: ProcessKind,
    /// The executable.
    pub binary: Binary,
    /// Its arguments.
    pub arguments: Vec<&'static str>,
}

impl ProcessSpec {
    /// Returns a web process that hosts no worker.
    pub fn web() -> Self {
        Self { kind: ProcessKind::Web, binary: Binary::Web, arguments: vec!["--no-worker"] }
    }

    /// Returns a web process that hosts a worker.
    pub fn web_with_worker() -> Self {
        Self { arguments: vec!["--with-worker"], ..Self::web() }
    }

    /// Returns a faulty worker, which deletes messages before their work is committed.
    pub fn early_deleting_worker() -> Self {
        Self { kind: ProcessKind::Worker, binary: Binary::CrashingWorker, arguments: vec![DELETES_EARLY] }
    }

    /// Returns a worker process.
    pub const fn worker() -> Self {
        Self { kind: ProcessKind::Worker, binary: Binary::Worker, arguments: Vec::new() }
    }
}

#[derive(Debug)]
struct ProcessSlot {
    name: String,
    spec: ProcessSpec,
    launch: Launch,
    process: Option<Process>,
    /// The address at which it listens, once it is known.
    address: Option<String>,
    state: SlotState,
}

/// What the test did to the process of a slot.
#[derive(Debug)]
enum SlotState {
    /// Nothing. The process must be running.
    Running,
    /// Suspended it.
    Suspended,
    /// Sent it SIGTERM, at the start of the stopwatch.
    Draining(Stopwatch),
    /// Sent it SIGKILL.
    Killed,
}

/// All processes of a run.
#[derive(Debug)]
pub struct ProcessGroup {
    slots: Vec<RefCell<ProcessSlot>>,
    results: RunResults,
}

impl ProcessGroup {
    /// Creates slots for these processes, without starting them.
    pub fn new(specs: &[ProcessSpec], settings: &Settings, directory: &Path, results: &RunResults) -> Self {
        let slot = |(number, spec): (usize, &ProcessSpec)| {
            let name = format!("{} {}", spec.binary.name(), number.saturating_add(1));
            let mut launch = service::launch(spec.binary, settings, &spec.arguments, directory);
            launch.name.clone_from(&name);
            let slot = ProcessSlot {
                name,
                spec: spec.clone(),
                launch,
                process: None,
                address: None,
                state: SlotState::Running,
            };
            RefCell::new(slot)
        };
        let slots = specs.iter().enumerate().map(slot).collect();
        Self { slots, results: results.clone() }
    }

    /// Starts every process that does not run, until the run ends.
    pub async fn supervise(&self, phase: &CurrentPhase, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let seeds: Vec<u64> = self.slots.iter().map(|_| rng.random()).collect();
        let supervisors =
            self.slots.iter().zip(seeds).map(|(slot, seed)| self.supervise_one(slot, phase, seed));
        join_all(supervisors).await;
    }

    async fn supervise_one(&self, slot: &RefCell<ProcessSlot>, phase: &CurrentPhase, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut starts = 0_u64;
        while !phase.has_ended() {
            slot.borrow_mut().start();
            if starts > 0 {
                self.results.restarted();
            }
            starts = starts.saturating_add(1);
            while !slot.borrow_mut().poll(&self.results) {
                if phase.has_ended() {
                    return;
                }
                wait::pass(POLL_INTERVAL).await;
            }
            let down = if phase.has_faults() { rng.random_range(0..DOWN_MS_MAX) } else { 0 };
            wait::pass(Duration::from_millis(down)).await;
        }
    }

    /// Returns the slots with a running, undisturbed process of one kind, or of any kind.
    pub fn running(&self, kind: Option<ProcessKind>) -> Vec<usize> {
        let runs = |slot: &RefCell<ProcessSlot>| {
            let slot = slot.borrow();
            kind.is_none_or(|kind| kind == slot.spec.kind)
                && slot.process.is_some()
                && matches!(slot.state, SlotState::Running)
        };
        self.slots.iter().enumerate().filter(|(_, slot)| runs(slot)).map(|(number, _)| number).collect()
    }

    /// Sends SIGKILL to a running process. Returns whether a process was running.
    pub fn kill(&self, slot: usize) -> bool {
        let killed = self.signal(slot, Signal::Kill, SlotState::Killed);
        if let Some(kind) = killed {
            self.results.killed(kind);
        }
        killed.is_some()
    }

    /// Sends SIGTERM to a running process that listens. It must drain and exit with 0.
    pub fn drain(&self, slot: usize) {
        let listens = self.slots.get(slot).is_some_and(|slot| slot.borrow().address.is_some());
        if listens {
            self.signal(slot, Signal::Terminate, SlotState::Draining(Stopwatch::start()));
        }
    }

    /// Suspends a running process. Returns whether it was suspended and then resumed.
    pub async fn suspend(&self, slot: usize, duration: Duration) -> bool {
        if self.signal(slot, Signal::Stop, SlotState::Suspended).is_none() {
            return false;
        }
        wait::pass(duration).await;
        let Some(slot) = self.slots.get(slot) else { return false };
        let mut slot = slot.borrow_mut();
        let Some(process) = slot.process.as_mut() else { return false };
        process.signal(Signal::Continue);
        slot.state = SlotState::Running;
        true
    }

    /// Sends a signal to a running, undisturbed process. Returns the kind of the process.
    fn signal(&self, slot: usize, signal: Signal, state: SlotState) -> Option<ProcessKind> {
        let mut slot = self.slots.get(slot)?.borrow_mut();
        if !matches!(slot.state, SlotState::Running) {
            return None;
        }
        let process = slot.process.as_mut()?;
        if process.ended().is_some() {
            return None;
        }
        process.signal(signal);
        match state {
            // Clients detect that the process does not respond.
            SlotState::Suspended | SlotState::Running => {}
            SlotState::Draining(_) | SlotState::Killed => slot.address = None,
        }
        slot.state = state;
        Some(slot.spec.kind)
    }

    /// Returns the addresses of the web processes that listen.
    pub fn addresses(&self) -> Vec<String> {
        let webs = self.slots.iter().map(RefCell::borrow).filter(|slot| slot.spec.kind == ProcessKind::Web);
        webs.filter_map(|slot| slot.address.clone()).collect()
    }

    /// Returns the names and addresses of all serving processes; `None` for a process that does not listen yet.
    pub fn all_addresses(&self) -> Vec<(String, Option<String>)> {
        let slots = self.slots.iter().map(RefCell::borrow).filter(|slot| slot.spec.binary.serves());
        slots.map(|slot| (slot.name.clone(), slot.address.clone())).collect()
    }
}

impl ProcessSlot {
    fn start(&mut self) {
        self.process = Some(Process::start(&self.launch));
        self.state = SlotState::Running;
        self.address = None;
    }

    /// Updates the state of the process. Returns whether it has ended.
    fn poll(&mut self, results: &RunResults) -> bool {
        let Some(process) = self.process.as_mut() else { return true };
        if self.address.is_none() && matches!(self.state, SlotState::Running) {
            self.address = process.log().find(service::address_in);
        }
        let Some(status) = process.ended() else {
            if let SlotState::Draining(since) = &self.state
                && since.elapsed() > DRAIN_TIME_MAX
            {
                results.report(format!("{} did not drain within {DRAIN_TIME_MAX:?}", self.name));
                process.signal(Signal::Kill);
                self.state = SlotState::Killed;
            }
            return false;
        };
        process.wait_for_output();
        let lines = process.log().lines();
        match &self.state {
            SlotState::Killed => {}
            SlotState::Draining(_) if status.success() => results.drained(),
            SlotState::Draining(_) => {
                results.report(format!("{} drained and ended with {status}:\n{}", self.name, last(&lines)));
            }
            SlotState::Running | SlotState::Suspended => {
                results.report(format!("{} ended by itself ({status}):\n{}", self.name, last(&lines)));
            }
        }
        if let Some(panic) = lines.iter().position(|line| line.contains(PANIC)) {
            let through = lines.get(..lines.len().min(panic.saturating_add(3))).unwrap_or(&lines);
            results.report(format!("{} panicked:\n{}", self.name, last(through)));
        }
        self.address = None;
        self.process = None;
        true
    }
}

/// Returns the last lines of a log.
fn last(lines: &[String]) -> String {
    lines.get(lines.len().saturating_sub(LINES_REPORTED)..).unwrap_or_default().join("\n")
}
