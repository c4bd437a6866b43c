//! A worker process under a supervisor: reports how many messages it received, and drains when the socket is closed.
//!
//! The supervisor passes the socket as standard input (see `supervisor::child`).

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use postonce_process::meter::Meter;
use postonce_shared::config::reload;
use postonce_shared::ports::world::World;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tracing::info;

/// Command line flag that marks a worker process of a supervisor.
pub const SUPERVISED: &str = "supervised";

/// Interval at which the number of received messages is reported, if it has changed.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The socket to the supervisor.
#[derive(Debug)]
pub struct SupervisorSocket {
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
}

impl SupervisorSocket {
    /// Opens standard input as the socket.
    ///
    /// # Errors
    /// Fails if standard input is not a socket.
    pub fn from_stdin() -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        // Fails if standard input is not a socket.
        socket.local_addr()?;
        socket.set_nonblocking(true)?;
        let (reader, writer) = UnixStream::from_std(socket)?.into_split();
        Ok(Self { reader, writer })
    }

    /// Reports the received messages, and reads files with secrets again when the supervisor requests it. Returns when the
    /// socket is closed, because the supervisor drains this worker or has died.
    pub async fn until_closed(self, meter: Arc<Meter>, world: Arc<dyn World>) {
        let Self { mut reader, writer } = self;
        let closed = async {
            let mut byte = [0];
            while matches!(reader.read(&mut byte).await, Ok(1..)) {
                info!("The supervisor received SIGHUP: reading the files with secrets again");
                reload::request();
            }
        };
        let reporting = std::pin::pin!(report_received(writer, &meter, &*world));
        futures::future::select(std::pin::pin!(closed), reporting).await;
    }
}

/// Returns when the socket is closed.
async fn report_received(mut writer: OwnedWriteHalf, meter: &Meter, world: &dyn World) {
    let mut reported = 0_u64;
    loop {
        world.sleep(REPORT_INTERVAL).await;
        let received = meter.received.get();
        let new = received.saturating_sub(reported);
        if new > 0 && writer.write_all(format!("{new}\n").as_bytes()).await.is_err() {
            return;
        }
        reported = received;
    }
}
