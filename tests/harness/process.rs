//! A child process of a test, with its log and its exit status.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{process_guard, wait};
use parking_lot::{Condvar, Mutex};

/// Maximum number of log lines that are kept. No test writes that many lines, but benchmarks do.
const LINES_KEPT_MAX: usize = 300_000;
/// Maximum number of log lines that are printed with a failure.
const LINES_PRINTED_MAX: usize = 150;

/// Returns whether a program can be started and ends without an error. Used to check whether it is installed.
pub fn succeeds(program: impl AsRef<OsStr>, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Runs a program that reads its whole input before it writes, and returns its output.
///
/// # Panics
/// When the program cannot be started, or does not read its input.
pub fn output_for(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program can be started");
    let mut stdin = child.stdin.take().expect("its input is a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads its input");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// A program to start.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Name of the process in failure messages.
    pub name: String,
    /// The path or the name of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables in addition to those of the test process.
    pub environment: BTreeMap<String, String>,
    /// Prefixes of variables of the test process to remove.
    pub hidden_prefixes: Vec<&'static str>,
    /// The working directory.
    pub directory: PathBuf,
}

impl Launch {
    /// Creates a launch of a program without arguments.
    pub fn of(name: impl Into<String>, program: impl Into<PathBuf>, directory: &Path) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            hidden_prefixes: Vec::new(),
            directory: directory.to_owned(),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Runs the process to completion, and returns its exit status and its output.
    ///
    /// # Panics
    /// When the process does not end within this time.
    pub fn run(&self, within: Duration) -> (ExitStatus, Vec<String>) {
        let mut process = Process::start(self);
        let status = process.wait(within);
        process.wait_for_output();
        (status, process.log().lines())
    }

    fn prepare(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            let hidden = name
                .to_str()
                .is_some_and(|name| self.hidden_prefixes.iter().any(|prefix| name.starts_with(prefix)));
            if hidden {
                command.env_remove(name);
            }
        }
        command.envs(&self.environment).current_dir(&self.directory);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
}

/// Output of a process: the lines of both streams in the order of arrival.
#[derive(Debug, Default)]
pub struct Log(Mutex<VecDeque<String>>);

impl Log {
    fn push(&self, line: String) {
        let mut lines = self.0.lock();
        if lines.len() == LINES_KEPT_MAX {
            drop(lines.pop_front());
        }
        lines.push_back(line);
    }

    /// Returns the lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }

    /// Returns the first result of `pick` over the lines.
    pub fn find<T>(&self, pick: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.0.lock().iter().find_map(|line| pick(line))
    }
}

/// Whether the output of a process is read. While it is paused, the process can write only what fits in the pipe.
#[derive(Debug, Default)]
struct Reading {
    is_paused: Mutex<bool>,
    resumed: Condvar,
}

impl Reading {
    fn set_paused(&self, is_paused: bool) {
        *self.is_paused.lock() = is_paused;
        self.resumed.notify_all();
    }

    fn wait_while_paused(&self) {
        let mut is_paused = self.is_paused.lock();
        while *is_paused {
            self.resumed.wait(&mut is_paused);
        }
    }
}

/// A running process, which is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: Arc<Log>,
    reading: Arc<Reading>,
    readers: Vec<JoinHandle<()>>,
    ended: Option<ExitStatus>,
}

/// A signal that tests can send.
#[derive(Debug, Clone, Copy)]
pub enum Signal {
    /// Kills the process.
    Kill,
    /// Asks the process to end.
    Terminate,
    /// Suspends the process.
    Stop,
    /// Resumes the process.
    Continue,
    /// Asks the process to read its secrets again.
    Hangup,
    /// Has no meaning for the process.
    User1,
    /// Has no meaning for the process.
    User2,
    /// Has no meaning for the process.
    Alarm,
}

impl Process {
    /// Starts a program and collects its output.
    pub fn start(launch: &Launch) -> Self {
        let mut child =
            process_guard::spawn(&launch.program, &launch.arguments, |command| launch.prepare(command))
                .unwrap_or_else(|error| panic!("{} cannot be started: {error}", launch.name));
        let log = Arc::new(Log::default());
        let stdout = child.stdout.take().expect("its output is a pipe");
        let stderr = child.stderr.take().expect("its errors are a pipe");
        let reading = Arc::new(Reading::default());
        let readers = vec![collect(stdout, &log, &reading), collect(stderr, &log, &reading)];
        Self { name: launch.name.clone(), child, log, reading, readers, ended: None }
    }

    /// Returns the log of the process.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Stops reading the output. One more line may be read.
    pub fn pause_reading(&self) {
        self.reading.set_paused(true);
    }

    /// Continues to read the output.
    pub fn resume_reading(&self) {
        self.reading.set_paused(false);
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none()
            && let Some(status) = self.child.try_wait().expect("a child can be asked")
        {
            process_guard::unregister(self.child.id());
            self.ended = Some(status);
        }
        self.ended
    }

    /// Sends a signal, if the process still runs.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_some() {
            return;
        }
        assert!(send(self.child.id(), signal), "{signal:?} could not be sent to {}", self.name);
    }

    /// Returns whether the process, and all processes that inherited its output, have closed it.
    pub fn is_output_closed(&self) -> bool {
        self.readers.iter().all(JoinHandle::is_finished)
    }

    /// Sends SIGKILL, and waits until the process has ended.
    pub fn kill(&mut self) {
        self.signal(Signal::Kill);
        self.wait(wait::TIMEOUT);
    }

    /// Sends SIGTERM, and waits until the process has ended.
    pub fn terminate(&mut self, within: Duration) -> ExitStatus {
        self.signal(Signal::Terminate);
        self.wait(within)
    }

    /// Waits until the process has ended.
    ///
    /// # Panics
    /// When the process does not end within this time.
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        let name = self.name.clone();
        wait::block_until(within, || self.ended().ok_or_else(|| "it still runs".to_owned()))
            .unwrap_or_else(|state| panic!("{name} did not end within {within:?}: {state}"))
    }

    /// Waits until the output is closed, so that the log is complete. No process that inherited the output may still run.
    pub fn wait_for_output(&mut self) {
        for reader in self.readers.drain(..) {
            reader.join().expect("a log can be read to its end");
        }
    }

    /// Waits for a log line for which `pick` returns a result.
    ///
    /// # Panics
    /// When the process ends first, or the deadline passes.
    pub fn wait_for_line<T>(&mut self, what: &str, within: Duration, pick: impl Fn(&str) -> Option<T>) -> T {
        self.wait_for_line_or_end(what, within, pick).unwrap_or_else(|status| {
            panic!("{} ended ({status}) before {what}\n{}", self.name, self.log.lines().join("\n"))
        })
    }

    /// Waits for a log line for which `pick` returns a result. Returns the exit status if the process ends first.
    ///
    /// # Panics
    /// When the deadline passes.
    pub fn wait_for_line_or_end<T>(
        &mut self,
        what: &str,
        within: Duration,
        pick: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ExitStatus> {
        let found = wait::block_until(within, || {
            // Checked before the log is read, so that all lines of an ended process are searched.
            let ended = self.ended();
            match (self.log.find(&pick), ended) {
                (Some(found), _) => Ok(Ok(found)),
                (None, Some(status)) => Ok(Err(status)),
                (None, None) => Err("nothing".to_owned()),
            }
        });
        found.unwrap_or_else(|_| {
            panic!("{}: no {what} within {within:?}\n{}", self.name, self.log.lines().join("\n"))
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            drop(self.child.kill());
            drop(self.child.wait());
            process_guard::unregister(self.child.id());
        }
        if std::thread::panicking() {
            // Omits successful responses to polls.
            let mut lines = self.log.lines();
            lines.retain(|line| !line.contains(" answered 200 "));
            let skipped = lines.len().saturating_sub(LINES_PRINTED_MAX);
            eprintln!("---- log of {} (pid {}, {skipped} lines before these)", self.name, self.child.id());
            lines.iter().skip(skipped).for_each(|line| eprintln!("{line}"));
        }
    }
}

/// Sends a signal to any process, such as the child of a child. Returns whether the process exists.
pub fn send(pid: u32, signal: Signal) -> bool {
    let name = match signal {
        Signal::Kill => "KILL",
        Signal::Terminate => "TERM",
        Signal::Stop => "STOP",
        Signal::Continue => "CONT",
        Signal::Hangup => "HUP",
        Signal::User1 => "USR1",
        Signal::User2 => "USR2",
        Signal::Alarm => "ALRM",
    };
    // The shell has a built-in `kill` on every machine.
    let sent = Command::new("sh").args(["-c", r#"kill -"$1" "$2""#, "kill", name, &pid.to_string()]).status();
    sent.is_ok_and(|status| status.success())
}

fn collect(stream: impl Read + Send + 'static, log: &Arc<Log>, reading: &Arc<Reading>) -> JoinHandle<()> {
    let (log, reading) = (Arc::clone(log), Arc::clone(reading));
    let read = move || {
        let mut lines = BufReader::new(stream).split(b'\n');
        while let Some(Ok(line)) = lines.next() {
            log.push(String::from_utf8_lossy(&line).into_owned());
            reading.wait_while_paused();
        }
    };
    std::thread::Builder::new().name("log".to_owned()).spawn(read).expect("a thread for a log")
}
