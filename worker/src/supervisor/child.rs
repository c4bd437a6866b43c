//! One worker process, as its supervisor sees it.
//!
//! A line connects the two: a socket that is the worker's standard input. The worker tells over it how much it
//! receives. Its end means "drain", and it ends as well when the supervisor dies, however that happens: the
//! system closes what a dead process held. So one mechanism drains a worker and keeps it from living on alone;
//! it is the same on every Unix, and needs no signal to a process id that may belong to somebody else by now.

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
use crate::supervisor::supervised::SUPERVISED;

/// What a supervisor hears about its processes.
#[derive(Debug)]
pub enum Event {
    /// A worker received so many messages.
    Received(u64),
    /// A process is gone.
    Ended {
        /// Which one.
        number: u32,
        /// How, in words.
        how: String,
    },
}

/// A worker process that was started and whose end was not noted yet.
#[derive(Debug)]
pub struct Child {
    number: u32,
    pid: u32,
    started_at: Duration,
    /// Dropped to drain it.
    line: Option<OwnedWriteHalf>,
    draining_since: Option<Duration>,
    kill: Option<oneshot::Sender<()>>,
}

impl Child {
    /// Starts a process. What happens to it is told to `tell`; its log goes where ours goes.
    ///
    /// # Errors
    /// When the system cannot start it.
    pub fn start(
        program: &Program,
        number: u32,
        tell: &mpsc::Sender<Event>,
        world: &Arc<dyn World>,
    ) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (hear, line) = UnixStream::from_std(ours)?.into_split();
        let mut command = Command::new(&program.executable);
        command.args(&program.arguments).arg(format!("--{SUPERVISED}"));
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        // A Ctrl-C in the terminal is for the supervisor; it tells the workers.
        command.process_group(0);
        let mut process = command.spawn()?;
        // Our copy of their end goes with it: the line has to end when they do.
        drop(command);
        let pid = process.id().unwrap_or_default();
        let (kill, killed) = oneshot::channel();
        world.spawn(listen(hear, tell.clone()).boxed());
        let tell = tell.clone();
        let watch = async move {
            let ended = until_ended(&mut process, killed).await;
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            // Without a supervisor there is nobody to tell.
            drop(tell.send(Event::Ended { number, how }).await);
        };
        world.spawn(watch.boxed());
        let started_at = world.uptime();
        Ok(Self { number, pid, started_at, line: Some(line), draining_since: None, kill: Some(kill) })
    }

    /// Its process id.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its name in the log.
    pub fn name(&self) -> String {
        format!("{} (pid {})", self.number, self.pid)
    }

    /// How long ago it was started.
    pub const fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.started_at)
    }

    /// Tells it to finish what it has in hand, and to end.
    pub fn drain(&mut self, now: Duration) {
        self.draining_since.get_or_insert(now);
        self.line = None;
    }

    /// Whether it was told to.
    pub const fn is_draining(&self) -> bool {
        self.draining_since.is_some()
    }

    /// How long ago it was told to, if it was.
    pub fn draining_for(&self, now: Duration) -> Option<Duration> {
        self.draining_since.map(|since| now.saturating_sub(since))
    }

    /// Ends it at once. False when that was done before.
    pub fn kill(&mut self) -> bool {
        self.kill.take().is_some_and(|kill| kill.send(()).is_ok())
    }
}

/// Passes on what the worker tells, until it is gone.
async fn listen(hear: OwnedReadHalf, tell: mpsc::Sender<Event>) {
    let mut lines = BufReader::new(hear).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A word that a newer worker may say.
        let Ok(messages) = line.parse() else { continue };
        if tell.send(Event::Received(messages)).await.is_err() {
            return;
        }
    }
}

async fn until_ended(
    process: &mut tokio::process::Child,
    killed: oneshot::Receiver<()>,
) -> io::Result<ExitStatus> {
    let must_die = match select(std::pin::pin!(process.wait()), killed).await {
        Either::Left((ended, _)) => return ended,
        Either::Right((told, _)) => told.is_ok(),
    };
    if must_die {
        process.start_kill()?;
    }
    process.wait().await
}
