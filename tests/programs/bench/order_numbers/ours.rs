//! The allocator of the bank, as in its web and worker processes.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use postonce_shared::testing::prelude::*;
use tokio::runtime::Handle;

use super::Allocator;

/// Refills run as tasks of the runtime.
pub struct Ours {
    numbers: Arc<OrderNumbers>,
    runtime: Handle,
}

impl Allocator for Ours {
    fn over(sync: Arc<dyn SyncStore>) -> Self {
        let numbers = OrderNumbers::new(
            sync,
            MemoryStore::new(Arc::new(SystemWorld::new())).archive,
            Arc::new(SystemWorld::new()),
        );
        Self { numbers, runtime: Handle::current() }
    }

    fn next(&self) -> Option<u64> {
        let mut next = pin!(self.numbers.next());
        // Polled once: an available number needs no executor.
        let number = match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(number) => number,
            Poll::Pending => self.runtime.block_on(next),
        };
        number.ok().map(OrderNumber::counter)
    }
}
