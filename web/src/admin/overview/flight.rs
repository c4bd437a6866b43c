//! An operation in a separate task, whose result several callers share.

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use postonce_shared::ports::world::World;
use tokio::sync::oneshot;

/// Result of the operation. Each clone of the future returns it.
pub type Flight<T> = Shared<BoxFuture<'static, T>>;

/// Starts an operation, which continues without callers. If its task ends without a result, callers get `ended()`.
pub fn start<T: Clone + Send + Sync + 'static>(
    world: &dyn World,
    operation: impl Future<Output = T> + Send + 'static,
    ended: impl FnOnce() -> T + Send + 'static,
) -> Flight<T> {
    let (sender, result) = oneshot::channel();
    // The send fails if all callers were cancelled.
    world.spawn(async move { drop(sender.send(operation.await)) }.boxed());
    async move { result.await.unwrap_or_else(|_| ended()) }.boxed().shared()
}
