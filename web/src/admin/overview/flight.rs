//! An operation in a task of its own, for which several callers wait.

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use postonce_shared::ports::world::World;
use tokio::sync::oneshot;

/// The result of the operation. Each clone returns it.
pub type Flight<T> = Shared<BoxFuture<'static, T>>;

/// Starts an operation. It continues if no caller waits for it; if its task ends without a result, this is that of `ended`.
pub fn start<T: Clone + Send + Sync + 'static>(
    world: &dyn World,
    operation: impl Future<Output = T> + Send + 'static,
    ended: impl FnOnce() -> T + Send + 'static,
) -> Flight<T> {
    let (sender, result) = oneshot::channel();
    // All callers may have been cancelled.
    world.spawn(async move { drop(sender.send(operation.await)) }.boxed());
    async move { result.await.unwrap_or_else(|_| ended()) }.boxed().shared()
}
