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
use crate::process::{Launch, Process, Signal};
use crate::service::{self, Settings};
use crate::wait;

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
    /// It was sent SIGKILL.
    killed: bool,
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
                Place { name, post: post.clone(), launch, process: None, address: None, killed: false };
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

    /// Places where a process of that kind runs, or of any kind.
    pub fn running(&self, kind: Option<Kill>) -> Vec<usize> {
        let runs = |place: &RefCell<Place>| {
            let place = place.borrow();
            kind.is_none_or(|kind| kind == place.post.kind) && place.process.is_some() && !place.killed
        };
        self.places.iter().enumerate().filter(|(_, place)| runs(place)).map(|(number, _)| number).collect()
    }

    /// SIGKILL, if a process runs there. True if one did.
    pub fn kill(&self, place: usize) -> bool {
        let Some(place) = self.places.get(place) else { return false };
        let mut place = place.borrow_mut();
        if place.killed {
            return false;
        }
        let Some(process) = place.process.as_mut() else { return false };
        if process.ended().is_some() {
            return false;
        }
        process.signal(Signal::Kill);
        place.killed = true;
        place.address = None;
        self.tally.killed(place.post.kind);
        true
    }

    /// Lets a process stand still, or go on, if one runs there that was not killed. Gives its id.
    pub fn send(&self, place: usize, signal: Signal) -> Option<u32> {
        let mut place = self.places.get(place)?.borrow_mut();
        if place.killed {
            return None;
        }
        let process = place.process.as_mut()?;
        process.signal(signal);
        Some(process.pid())
    }

    /// Where the web processes listen that said so.
    pub fn addresses(&self) -> Vec<String> {
        let webs = self.places.iter().map(RefCell::borrow).filter(|place| place.post.kind == Kill::Web);
        webs.filter_map(|place| place.address.clone()).collect()
    }

    /// Where the processes listen, by name; `None` where one is not up.
    pub fn all_addresses(&self) -> Vec<(String, Option<String>)> {
        let places = self.places.iter().map(RefCell::borrow);
        places.map(|place| (place.name.clone(), place.address.clone())).collect()
    }
}

impl Place {
    fn start(&mut self) {
        self.process = Some(Process::start(&self.launch));
        self.killed = false;
        self.address = None;
    }

    /// Looks after the process. True when it has ended.
    fn look(&mut self, tally: &Tally) -> bool {
        let Some(process) = self.process.as_mut() else { return true };
        if self.address.is_none() && !self.killed {
            self.address = process.log().find(service::address_in);
        }
        let Some(status) = process.ended() else { return false };
        process.wait_for_output();
        let lines = process.log().lines();
        let told = |lines: &[String]| {
            lines.get(lines.len().saturating_sub(LINES_TOLD)..).unwrap_or_default().join("\n")
        };
        if !self.killed {
            tally.find(format!("{} ended by itself ({status}):\n{}", self.name, told(&lines)));
        }
        if let Some(bug) = lines.iter().position(|line| BUGS.iter().any(|bug| line.contains(bug))) {
            let upto = lines.get(..=bug.saturating_add(2).min(lines.len().saturating_sub(1)));
            tally.find(format!("{} fell over a bug:\n{}", self.name, told(upto.unwrap_or(&lines))));
        }
        self.address = None;
        self.process = None;
        true
    }
}
