//! The supervisor's side of a worker process.
//!
//! The two are connected by a socket, which is the standard input of the worker. The worker reports through it how many
//! messages it received. Any byte from the supervisor makes the worker read its files with secrets again. The worker drains
//! when the socket is closed. The operating system also closes it when the supervisor dies, so a worker never outlives its
//! supervisor. This works on every Unix, and needs no signal to a process id that may have been reused.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use postonce_shared::ports::world::World;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot};

use super::Program;
use crate::supervisor::socket::SUPERVISED;

/// Sent to make a worker read its files with secrets again. The worker ignores the content.
const RELOAD: &[u8] = b"\n";

#[derive(Debug)]
pub enum Event {
    /// A worker received this many messages.
    Received(u64),
    Ended {
        number: u32,
        /// The exit status as text.
        status: String,
    },
}

/// A started worker process whose end was not handled yet.
#[derive(Debug)]
pub struct Child {
    number: u32,
    pid: u32,
    started_at: Duration,
    /// Dropping it starts the drain of the process.
    socket: Option<OwnedWriteHalf>,
    draining_since: Option<Duration>,
    kill: Option<oneshot::Sender<()>>,
}

impl Child {
    /// Starts a process. Its events are sent to `events`, and its log goes to the output of the supervisor.
    ///
    /// # Errors
    /// Fails if the system cannot start the process.
    pub fn start(
        program: &Program,
        number: u32,
        events: &mpsc::Sender<Event>,
        world: &Arc<dyn World>,
    ) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (reader, socket) = UnixStream::from_std(ours)?.into_split();
        let mut command = Command::new(&program.executable);
        command.args(&program.arguments).arg(format!("--{SUPERVISED}"));
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        // Ctrl-C in the terminal must reach only the supervisor, which then drains the workers.
        command.process_group(0);
        let mut process = command.spawn()?;
        // Drop the supervisor's copy of the worker's end, so that the socket closes when the worker ends.
        drop(command);
        let pid = process.id().unwrap_or_default();
        let (kill, killed) = oneshot::channel();
        world.spawn(forward_counts(reader, events.clone()).boxed());
        let events = events.clone();
        let watch = async move {
            let ended = until_ended(&mut process, killed).await;
            let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            // Fails only if the supervisor has ended.
            drop(events.send(Event::Ended { number, status }).await);
        };
        world.spawn(watch.boxed());
        let started_at = world.uptime();
        Ok(Self { number, pid, started_at, socket: Some(socket), draining_since: None, kill: Some(kill) })
    }

    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the name of the process for the log.
    pub fn name(&self) -> String {
        format!("{} (pid {})", self.number, self.pid)
    }

    pub const fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.started_at)
    }

    /// Makes the process read its files with secrets again.
    pub fn reload(&self) {
        // If the socket is full, the process reads them soon anyway.
        drop(self.socket.as_ref().map(|socket| socket.try_write(RELOAD)));
    }

    /// Starts the drain of the process: it finishes work in progress and ends.
    pub fn drain(&mut self, now: Duration) {
        self.draining_since.get_or_insert(now);
        self.socket = None;
    }

    pub const fn is_draining(&self) -> bool {
        self.draining_since.is_some()
    }

    pub fn draining_for(&self, now: Duration) -> Option<Duration> {
        self.draining_since.map(|since| now.saturating_sub(since))
    }

    /// Kills the process. Returns false if it was killed before.
    pub fn kill(&mut self) -> bool {
        self.kill.take().is_some_and(|kill| kill.send(()).is_ok())
    }
}

/// Forwards the counts that the worker reports until the worker ends.
async fn forward_counts(reader: OwnedReadHalf, events: mpsc::Sender<Event>) {
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // Ignore lines that a newer worker may write.
        let Ok(messages) = line.parse() else { continue };
        if events.send(Event::Received(messages)).await.is_err() {
            return;
        }
    }
}

async fn until_ended(
    process: &mut tokio::process::Child,
    killed: oneshot::Receiver<()>,
) -> io::Result<ExitStatus> {
    let is_killed = match select(std::pin::pin!(process.wait()), killed).await {
        Either::Left((ended, _)) => return ended,
        Either::Right((killed, _)) => killed.is_ok(),
    };
    if is_killed {
        process.start_kill()?;
    }
    process.wait().await
}
