//! A writer that records what is written, such as log lines.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tracing::Dispatch;

/// An additional subscriber besides the one of the test. With a single subscriber, the first thread that reaches an event
/// decides whether it is enabled. If that is the thread of another test without a subscriber, no test gets the event.
static OTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// The recorded output.
#[derive(Debug, Clone)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Default for Written {
    /// Creates an empty record. Call it before creating the subscriber that writes to it.
    fn default() -> Self {
        LazyLock::force(&OTHER);
        Self(Arc::default())
    }
}

impl Written {
    /// Returns the recorded lines. Panics if they are not UTF-8.
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
