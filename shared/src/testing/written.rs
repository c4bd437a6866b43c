//! A writer that keeps what is written, such as the lines of a log.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tracing::Dispatch;

/// A subscriber besides that of the test. While there is only one, an event that another test reaches first is decided by
/// the subscriber of that thread, which may have none, and then no test gets the event.
static OTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// What was written.
#[derive(Debug, Clone)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Default for Written {
    /// Nothing yet. Call it before the subscriber that writes here is created.
    fn default() -> Self {
        LazyLock::force(&OTHER);
        Self(Arc::default())
    }
}

impl Written {
    /// Returns the lines. Panics if they are no text.
    pub fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().clone()).expect("lines are text");
        text.lines().map(str::to_owned).collect()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
