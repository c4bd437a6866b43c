//! Threads on which large answers are made: a page takes milliseconds of computing time, and those who wait for an HTTP thread would
//! wait for it. They are few, because each keeps the memory of the largest page that it has made for the next one.

use std::io;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::error::ApiError;

/// Number of the threads. A page that waits for the store uses none.
const THREADS: usize = 2;

/// The threads, which are started when the first page is made.
#[derive(Debug, Default)]
pub struct PageThreads(Mutex<Option<Runtime>>);

impl PageThreads {
    /// Makes a page. It is not made any further when the request has ended.
    ///
    /// # Errors
    /// [`ApiError`] with status 500 if it panics, or the system has no threads.
    pub async fn make<T: Send + 'static>(
        &self,
        page: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let threads = self.handle().map_err(ApiError::internal)?;
        // Ends what it contains when it is dropped.
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
    /// A runtime must not wait for its threads on a thread of another one.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}
