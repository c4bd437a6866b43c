//! Progress of a step: a bar on a terminal, otherwise a periodic line.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use postonce_shared::command_output::tell;
use postonce_shared::ports::world::World;

/// Interval of progress lines without a progress bar.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Step {
    name: &'static str,
    total: u64,
    printed_at: Duration,
}

/// Prints progress and notes to stderr.
pub struct Progress {
    bar: Option<ProgressBar>,
    step: Mutex<Step>,
    world: Arc<dyn World>,
}

impl Progress {
    /// Creates the progress, before the first step.
    pub fn new(world: &Arc<dyn World>) -> Arc<Self> {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] {pos}/{len} {msg}, {eta} left");
            ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Arc::new(Self { bar, step: Mutex::default(), world: Arc::clone(world) })
    }

    /// Starts a step. `name` completes the phrase "3 of 7 …", and `total` is the number at its end.
    pub fn start(&self, name: &'static str, total: u64) {
        *self.step.lock() = Step { name, total, printed_at: self.world.uptime() };
        if let Some(bar) = &self.bar {
            bar.reset();
            bar.set_length(total);
            bar.set_message(name);
        }
    }

    /// Sets the completed number of the step.
    pub fn set(&self, done: u64) {
        if let Some(bar) = &self.bar {
            return bar.set_position(done);
        }
        let mut step = self.step.lock();
        let now = self.world.uptime();
        if now.saturating_sub(step.printed_at) >= LINE_INTERVAL {
            step.printed_at = now;
            tell(format_args!("{done} of {} {}", step.total, step.name));
        }
    }

    /// Prints a line without disturbing the progress bar.
    pub fn note(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell(line)),
            None => tell(line),
        }
    }

    /// Returns the maximum time between two updates.
    pub const fn interval(&self) -> Duration {
        if self.bar.is_some() { Duration::from_secs(1) } else { LINE_INTERVAL }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
