//! The signals that a service handles. Those that would end it without a drain, and that people and programs send for other
//! reasons, do not.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::select_all;
use postonce_shared::config::reload;
use postonce_shared::ports::world::World;
use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// Signals without a meaning here, which would end the process by default. That of a file that becomes too large is among them: the
/// write fails, as on a full disk. The signal of a closed pipe is ignored by the standard library.
const IGNORED: [Number; 6] =
    [Number::USR1, Number::USR2, Number::ALARM, Number::VTALARM, Number::PROF, Number::XFSZ];

/// The signals that a service handles from now on:
///
/// | signal | effect |
/// | --- | --- |
/// | SIGTERM, SIGINT | the process drains; until [`Signals::until_stop`] is called, they end it at once |
/// | SIGHUP | files with secrets and certificates are read again; if the terminal of the process was closed, it drains |
/// | SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXFSZ, SIGPIPE | none |
/// | SIGQUIT | it is not handled: the process ends at once, with a core if the system writes one |
#[derive(Debug, Clone, Copy)]
pub struct Signals {
    terminal: Option<Terminal>,
}

/// A standard stream that was a terminal at the start.
#[derive(Debug, Clone, Copy)]
enum Terminal {
    Input,
    Output,
    Error,
}

impl Terminal {
    fn of_process() -> Option<Self> {
        [Self::Input, Self::Output, Self::Error].into_iter().find(|terminal| terminal.is_open())
    }

    /// Returns whether it is a terminal, which it is not any more after it was closed.
    fn is_open(self) -> bool {
        match self {
            Self::Input => io::stdin().is_terminal(),
            Self::Output => io::stdout().is_terminal(),
            Self::Error => io::stderr().is_terminal(),
        }
    }
}

impl Signals {
    /// Starts to handle the signals.
    ///
    /// # Errors
    /// When the system allows no handler.
    pub fn handle(world: &Arc<dyn World>) -> io::Result<Self> {
        for number in IGNORED {
            // The handler stays when the receiver is dropped.
            drop(signal(SignalKind::from_raw(number.as_raw()))?);
        }
        let signals = Self { terminal: Terminal::of_process() };
        let mut hangups = signal(SignalKind::hangup())?;
        let reloading = async move {
            while hangups.recv().await.is_some() {
                if !signals.is_terminal_closed() {
                    info!("SIGHUP: reading the files with secrets and certificates again");
                    reload::request();
                }
            }
        };
        world.spawn(reloading.boxed());
        Ok(signals)
    }

    /// Handles the signals that stop the process from now on. The future is ready when the process has to drain, which is at once
    /// if its terminal was closed before.
    pub fn until_stop(self) -> impl Future<Output = ()> {
        let handler = |kind| signal(kind).expect("a handler for a signal can be installed");
        let (terminate, interrupt) = (handler(SignalKind::terminate()), handler(SignalKind::interrupt()));
        let mut hangups = handler(SignalKind::hangup());
        let hung_up = async move { while !self.is_terminal_closed() && hangups.recv().await.is_some() {} };
        let received = |mut signal: Signal| async move {
            signal.recv().await;
        };
        select_all([received(terminate).boxed(), received(interrupt).boxed(), hung_up.boxed()]).map(drop)
    }

    fn is_terminal_closed(self) -> bool {
        self.terminal.is_some_and(|terminal| !terminal.is_open())
    }
}
