//! Draining: take no more, finish what is in hand.

use tokio::sync::watch;

/// Starts a drain. Dropping it starts the drain as well.
#[derive(Debug)]
pub struct DrainStarter(watch::Sender<bool>);

/// Tells whether to drain.
#[derive(Debug, Clone)]
pub struct Drain(watch::Receiver<bool>);

/// A drain that was not started.
pub fn drain() -> (DrainStarter, Drain) {
    let (sender, receiver) = watch::channel(false);
    (DrainStarter(sender), Drain(receiver))
}

impl DrainStarter {
    /// From now on no more is taken.
    pub fn start(&self) {
        self.0.send_replace(true);
    }
}

impl Drain {
    /// Whether the drain was started.
    pub fn is_started(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Returns when the drain is started.
    pub async fn started(&self) {
        // An error says that the starter is gone, which counts.
        drop(self.0.clone().wait_for(|started| *started).await);
    }
}

/// Returns when the process is asked to stop: SIGTERM, or Ctrl-C.
pub async fn until_asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).expect("a process can listen for SIGTERM");
    let mut interrupt = signal(SignalKind::interrupt()).expect("a process can listen for SIGINT");
    let (terminated, interrupted) = (std::pin::pin!(terminate.recv()), std::pin::pin!(interrupt.recv()));
    futures::future::select(terminated, interrupted).await;
}
