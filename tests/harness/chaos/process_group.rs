//! The processes of a run: each has a place, is killed again and again, and comes back.
//!
//! A process that ends without having been killed is a finding, and so is one that fell over a bug.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::tally::{Kill, Tally};
use super::watch::Watch;
use crate::binaries::Binary;
use crate::faults::DELETES_EARLY;
use crate::process::{Launch, Process, Signal};
use crate::service::{self, DRAIN_TIME_MAX, Settings};
use crate::wait::{self, Stopwatch};

/// How often the processes are looked at.
const LOOK_DELAY: Duration = Duration::from_millis(20);
/// Longest time that a killed process stays away, in milliseconds.
const AWAY_MS_MAX: u64 = 1_000;
/// Last lines of a log that go with a finding.
const LINES_TOLD: usize = 15;
/// What a process writes when it fell over a bug.
const BUGS: [&str; 2] = ["panicked at", "fell over a bug"];

/// What stands at a place.
#[derive(Debug, Clone)]
pub struct Post {
    /// In the words of the summary.
    pub kind: Kill,
    /// The program.
    pub binary: Binary,
    /// Its arguments.
    pub arguments: Vec<&'static str>,
}

impl Post {
    /// A web process that hosts no worker.
    pub fn web() -> Self {
        Self { kind: Kill::Web, binary: Binary::Web, arguments: vec!["--no-worker"] }
    }

    /// A web process with a worker inside.
    pub fn web_with_worker() -> Self {
        Self { arguments: vec!["--with-worker"], ..Self::web() }
    }

    /// A worker that is wrong: it deletes messages before their work is committed.
    pub fn hasty_worker() -> Self {
        Self { kind: Kill::Worker, binary: Binary::DyingWorker, arguments: vec![DELETES_EARLY] }
    }

    /// A worker process.
    pub const fn worker() -> Self {
        Self { kind: Kill::Worker, binary: Binary::Worker, arguments: Vec::new() }
    }
}

/// One place.
#[derive(Debug)]
struct Place {
    name: String,
    post: Post,
    launch: Launch,
    process: Option<Process>,
    /// Where it listens, once it said so.
    address: Option<String>,
    fate: Fate,
}

/// What was done to the process at a place.
#[derive(Debug)]
enum Fate {
    /// Nothing: it has to run.
    Runs,
    /// It stands still.
    Sleeps,
    /// It was asked to end, that long ago.
    Drains(Stopwatch),
    /// It was sent SIGKILL.
    Killed,
}

/// All places.
#[derive(Debug)]
pub struct Fleet {
    places: Vec<RefCell<Place>>,
    tally: Tally,
}

impl Fleet {
    /// Places for those; nobody is started yet.
    pub fn new(posts: &[Post], settings: &Settings, directory: &Path, tally: &Tally) -> Self {
        let place = |(number, post): (usize, &Post)| {
            let name = format!("{} {}", post.binary.name(), number.saturating_add(1));
            let mut launch = service::launch(post.binary, settings, &post.arguments, directory);
            launch.name.clone_from(&name);
            let place =
                Place { name, post: post.clone(), launch, process: None, address: None, fate: Fate::Runs };
            RefCell::new(place)
        };
        let places = posts.iter().enumerate().map(place).collect();
        Self { places, tally: tally.clone() }
    }

    /// Starts who is not there, until the watch ends.
    pub async fn keep(&self, watch: &Watch, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let seeds: Vec<u64> = self.places.iter().map(|_| rng.random()).collect();
        let keepers = self.places.iter().zip(seeds).map(|(place, seed)| self.keep_one(place, watch, seed));
        join_all(keepers).await;
    }

    async fn keep_one(&self, place: &RefCell<Place>, watch: &Watch, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut starts = 0_u64;
        while !watch.is_over() {
            place.borrow_mut().start();
            if starts > 0 {
                self.tally.restarted();
            }
            starts = starts.saturating_add(1);
            while !place.borrow_mut().look(&self.tally) {
                if watch.is_over() {
                    return;
                }
                wait::pass(LOOK_DELAY).await;
            }
            let away = if watch.is_rough() { rng.random_range(0..AWAY_MS_MAX) } else { 0 };
            wait::pass(Duration::from_millis(away)).await;
        }
    }

    /// Places where a process of that kind, or of any, runs undisturbed.
    pub fn running(&self, kind: Option<Kill>) -> Vec<usize> {
        let runs = |place: &RefCell<Place>| {
            let place = place.borrow();
            kind.is_none_or(|kind| kind == place.post.kind)
                && place.process.is_some()
                && matches!(place.fate, Fate::Runs)
        };
        self.places.iter().enumerate().filter(|(_, place)| runs(place)).map(|(number, _)| number).collect()
    }

    /// SIGKILL, if a process runs there. True if one did.
    pub fn kill(&self, place: usize) -> bool {
        let struck = self.strike(place, Signal::Kill, Fate::Killed);
        if let Some(kind) = struck {
            self.tally.killed(kind);
        }
        struck.is_some()
    }

    /// SIGTERM, if a process runs there that said that it listens. It has to drain and to exit with 0.
    pub fn ask_to_end(&self, place: usize) {
        let listens = self.places.get(place).is_some_and(|place| place.borrow().address.is_some());
        if listens {
            self.strike(place, Signal::Terminate, Fate::Drains(Stopwatch::start()));
        }
    }

    /// Lets the process stand still for that long. True if it did, and went on.
    pub async fn let_sleep(&self, place: usize, duration: Duration) -> bool {
        if self.strike(place, Signal::Stop, Fate::Sleeps).is_none() {
            return false;
        }
        wait::pass(duration).await;
        let Some(place) = self.places.get(place) else { return false };
        let mut place = place.borrow_mut();
        let Some(process) = place.process.as_mut() else { return false };
        process.signal(Signal::Continue);
        place.fate = Fate::Runs;
        true
    }

    /// Sends a signal to a process that runs undisturbed; gives its kind.
    fn strike(&self, place: usize, signal: Signal, fate: Fate) -> Option<Kill> {
        let mut place = self.places.get(place)?.borrow_mut();
        if !matches!(place.fate, Fate::Runs) {
            return None;
        }
        let process = place.process.as_mut()?;
        if process.ended().is_some() {
            return None;
        }
        process.signal(signal);
        match fate {
            // Clients find out by themselves that nobody answers.
            Fate::Sleeps | Fate::Runs => {}
            Fate::Drains(_) | Fate::Killed => place.address = None,
        }
        place.fate = fate;
        Some(place.post.kind)
    }

    /// Where the web processes listen that said so.
    pub fn addresses(&self) -> Vec<String> {
        let webs = self.places.iter().map(RefCell::borrow).filter(|place| place.post.kind == Kill::Web);
        webs.filter_map(|place| place.address.clone()).collect()
    }

    /// Where the processes listen that do so, by name; `None` where one is not up.
    pub fn all_addresses(&self) -> Vec<(String, Option<String>)> {
        let places = self.places.iter().map(RefCell::borrow).filter(|place| place.post.binary.serves());
        places.map(|place| (place.name.clone(), place.address.clone())).collect()
    }
}

impl Place {
    fn start(&mut self) {
        self.process = Some(Process::start(&self.launch));
        self.fate = Fate::Runs;
        self.address = None;
    }

    /// Looks after the process. True when it has ended.
    fn look(&mut self, tally: &Tally) -> bool {
        let Some(process) = self.process.as_mut() else { return true };
        if self.address.is_none() && matches!(self.fate, Fate::Runs) {
            self.address = process.log().find(service::address_in);
        }
        let Some(status) = process.ended() else {
            if let Fate::Drains(since) = &self.fate
                && since.elapsed() > DRAIN_TIME_MAX
            {
                tally.find(format!("{} did not drain within {DRAIN_TIME_MAX:?}", self.name));
                process.signal(Signal::Kill);
                self.fate = Fate::Killed;
            }
            return false;
        };
        process.wait_for_output();
        let lines = process.log().lines();
        match &self.fate {
            Fate::Killed => {}
            Fate::Drains(_) if status.success() => tally.drained(),
            Fate::Drains(_) => {
                tally.find(format!("{} drained and ended with {status}:\n{}", self.name, last(&lines)));
            }
            Fate::Runs | Fate::Sleeps => {
                tally.find(format!("{} ended by itself ({status}):\n{}", self.name, last(&lines)));
            }
        }
        if let Some(bug) = lines.iter().position(|line| BUGS.iter().any(|bug| line.contains(bug))) {
            let through = lines.get(..lines.len().min(bug.saturating_add(3))).unwrap_or(&lines);
            tally.find(format!("{} fell over a bug:\n{}", self.name, last(through)));
        }
        self.address = None;
        self.process = None;
        true
    }
}

/// The last lines of a log.
fn last(lines: &[String]) -> String {
    lines.get(lines.len().saturating_sub(LINES_TOLD)..).unwrap_or_default().join("\n")
}
