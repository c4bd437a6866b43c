//! Progress of a backup or a restore: a bar on a terminal, otherwise a periodic line if rows are copied.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use postonce_shared::adapters::sqlite::backup::Progress;
use postonce_shared::command_output::tell;
use postonce_shared::oversight::copy::{CopyTotals, CopyWatcher};
use postonce_shared::oversight::verify::Totals;
use postonce_shared::ports::world::World;

/// Interval of progress lines without a progress bar.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
const BAR_INTERVAL: Duration = Duration::from_millis(200);

/// Shows the progress on stderr.
pub(super) struct CopyBar {
    bar: Option<ProgressBar>,
    world: Arc<dyn World>,
    printed_at: Mutex<Duration>,
}

impl CopyBar {
    pub(super) fn new(world: &Arc<dyn World>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            let template = "{elapsed_precise} [{wide_bar}] {percent}%, {msg}, {eta} left";
            bar.set_style(ProgressStyle::with_template(template).expect("a template"));
            bar.enable_steady_tick(BAR_INTERVAL);
            bar
        });
        Self { bar, world: Arc::clone(world), printed_at: Mutex::new(world.uptime()) }
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Prints a line unless another was printed within [`LINE_INTERVAL`].
    fn print_sometimes(&self, line: impl FnOnce() -> String) {
        let now = self.world.uptime();
        let mut printed_at = self.printed_at.lock();
        if now.saturating_sub(*printed_at) >= LINE_INTERVAL {
            *printed_at = now;
            print(&line());
        }
    }
}

/// Prints a line. A failed output must not stop the copy.
fn print(line: &str) {
    tell(line);
}

impl CopyWatcher for CopyBar {
    fn progressed(&self, totals: &CopyTotals) {
        let CopyTotals { accounts, transactions, permille, operations, .. } = *totals;
        let counts = format!("{accounts} accounts, {transactions} transactions, {operations} operations");
        match &self.bar {
            Some(bar) => {
                bar.set_length(1000);
                bar.set_position(permille);
                bar.set_message(counts);
            }
            None => self.print_sometimes(|| format!("copied {}% so far: {counts}", permille.div_euclid(10))),
        }
    }

    fn audited(&self, totals: &Totals) {
        let Totals { accounts, transactions, findings, .. } = *totals;
        let counts = format!("audited {accounts} accounts, {transactions} transactions, {findings} findings");
        match &self.bar {
            Some(bar) => bar.set_message(counts),
            None => self.print_sometimes(|| counts),
        }
    }

    fn noticed(&self, notice: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| print(notice)),
            None => print(notice),
        }
    }
}

/// Progress bar, shown only on a terminal.
pub(super) struct Bar(Option<ProgressBar>);

impl Bar {
    pub(super) fn new() -> Self {
        Self(std::io::stderr().is_terminal().then(ProgressBar::no_length))
    }

    pub(super) fn show(&self, progress: Progress) {
        let Some(bar) = &self.0 else { return };
        match progress {
            Progress::Checking => {
                bar.set_style(
                    ProgressStyle::with_template("{spinner} checking {elapsed}").expect("a template"),
                );
                bar.enable_steady_tick(Duration::from_millis(100));
            }
            Progress::Copying { done, all } => {
                let template = "{wide_bar} {bytes} of {total_bytes}, {eta} left";
                bar.set_style(ProgressStyle::with_template(template).expect("a template"));
                bar.set_length(all);
                bar.set_position(done);
            }
        }
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
