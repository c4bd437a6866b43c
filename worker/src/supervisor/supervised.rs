//! A worker process under a supervisor: it tells how much it receives, and drains when its line ends.
//!
//! The line is the socket that the supervisor made its standard input (see `supervisor::child`).

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use postonce_shared::ports::world::World;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::meter::Meter;

/// The flag that tells a worker process of its supervisor.
pub const SUPERVISED: &str = "supervised";

/// How often it is told what was received, if something was.
const TELLING_INTERVAL: Duration = Duration::from_secs(1);

/// The line to the supervisor.
#[derive(Debug)]
pub struct Line {
    hear: OwnedReadHalf,
    tell: OwnedWriteHalf,
}

impl Line {
    /// The line that standard input is.
    ///
    /// # Errors
    /// When standard input is something else.
    pub fn on_standard_input() -> io::Result<Self> {
        let line = std::os::unix::net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        // Only a socket has an address.
        line.local_addr()?;
        line.set_nonblocking(true)?;
        let (hear, tell) = UnixStream::from_std(line)?.into_split();
        Ok(Self { hear, tell })
    }

    /// Tells the supervisor what is received, until the line ends: the supervisor wants this worker drained,
    /// or is dead.
    pub async fn until_it_ends(self, meter: Arc<Meter>, world: Arc<dyn World>) {
        let Self { mut hear, tell } = self;
        let ended = async {
            let mut byte = [0];
            // Nothing is ever said to a worker; should it be, the line still stands.
            while matches!(hear.read(&mut byte).await, Ok(1..)) {}
        };
        let telling = std::pin::pin!(keep_telling(tell, &meter, &*world));
        futures::future::select(std::pin::pin!(ended), telling).await;
    }
}

/// Ends when nobody listens any more.
async fn keep_telling(mut tell: OwnedWriteHalf, meter: &Meter, world: &dyn World) {
    let mut told = 0_u64;
    loop {
        world.sleep(TELLING_INTERVAL).await;
        let received = meter.received.get();
        let news = received.saturating_sub(told);
        if news > 0 && tell.write_all(format!("{news}\n").as_bytes()).await.is_err() {
            return;
        }
        told = received;
    }
}
