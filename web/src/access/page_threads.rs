//! Threads that build large answers. A page takes milliseconds of computing time, for which it would block an HTTP
//! thread. The threads are few, because each keeps the memory of its largest page for reuse.

use std::io;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::error::ApiError;

/// Number of threads. A page that waits for the store occupies none.
const THREADS: usize = 2;

/// The threads, which start with the first page.
#[derive(Debug, Default)]
pub struct PageThreads(Mutex<Option<Runtime>>);

impl PageThreads {
    /// Builds a page. Dropping the returned future stops the work.
    ///
    /// # Errors
    /// [`ApiError`] with status 500 if the page panics or the threads cannot be started.
    pub async fn make<T: Send + 'static>(
        &self,
        page: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let threads = self.handle().map_err(ApiError::internal)?;
        // Dropping the set aborts its task.
        let mut making = JoinSet::new();
        making.spawn_on(page.in_current_span(), &threads);
        let made = making.join_next().await.ok_or_else(|| ApiError::internal("a page was lost"))?;
        made.map_err(ApiError::internal)
    }

    fn handle(&self) -> io::Result<Handle> {
        let mut started = self.0.lock();
        if let Some(runtime) = &*started {
            return Ok(runtime.handle().clone());
        }
        let runtime =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("pages").enable_all().build()?;
        let handle = runtime.handle().clone();
        *started = Some(runtime);
        Ok(handle)
    }
}

impl Drop for PageThreads {
    /// Dropping a runtime waits for its threads, which is not allowed on a thread of another runtime.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}
