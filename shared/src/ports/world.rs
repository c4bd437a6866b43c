//! Clock, random generator and task runtime. All code in `shared` (except adapters of real stores), `process` and `worker`
//! accesses them through this port, so that a seed reproduces a whole run.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::{BoxFuture, pending};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::domain::ids::Nonce;
use crate::domain::time::Timestamp;

/// The clock, the random generator and the task runtime of a process.
#[async_trait]
pub trait World: Send + Sync {
    /// Returns the wall-clock time. It may jump, and differs between processes.
    fn now(&self) -> Timestamp;

    /// Returns the monotonic time since some point before the start of the process. It includes time in which the machine
    /// is suspended.
    fn uptime(&self) -> Duration;

    /// Waits for the duration.
    async fn sleep(&self, duration: Duration);

    /// Returns a random 64-bit number.
    fn random(&self) -> u64;

    /// Spawns a task.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Spawns a task on the thread of the caller if that thread runs tasks, so that no other thread has to be woken. The
    /// task is dropped when the thread ends, which may be before the process ends.
    fn spawn_on_this_thread(&self, task: BoxFuture<'static, ()>) {
        self.spawn(task);
    }
}

/// Derived methods of [`World`].
pub trait WorldExt: World {
    /// Spawns an operation as a task, so that it can run on another core, and returns its result. It continues if the
    /// returned future is dropped. Its panics propagate to the caller.
    fn start<T: Send + 'static>(
        &self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> BoxFuture<'static, T> {
        let (sender, result) = oneshot::channel();
        let operation = AssertUnwindSafe(operation).catch_unwind();
        self.spawn(async move { drop(sender.send(operation.await)) }.boxed());
        async move {
            match result.await {
                Ok(Ok(result)) => result,
                Ok(Err(panic)) => resume_unwind(panic),
                // The tasks of the process are being dropped.
                Err(_) => pending().await,
            }
        }
        .boxed()
    }

    /// Returns a random nonce.
    fn nonce(&self) -> Nonce {
        Nonce::from_uuid(self.uuid())
    }

    /// Returns a random UUID, version 4.
    fn uuid(&self) -> Uuid {
        uuid::Builder::from_random_bytes(
            (u128::from(self.random()) << 64 | u128::from(self.random())).to_be_bytes(),
        )
        .into_uuid()
    }

    /// Returns a random duration from zero to `longest` (full jitter), so that callers that failed together do not retry
    /// together.
    fn jitter(&self, longest: Duration) -> Duration {
        let nanoseconds = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        // The modulo bias is below one in a million for all delays in use.
        let range = nanoseconds.saturating_add(1);
        Duration::from_nanos(self.random().checked_rem(range).unwrap_or(0))
    }
}

impl<W: World + ?Sized> WorldExt for W {}
