//! Time, randomness and tasks. Nothing else in `shared` (adapters of real stores aside) and in
//! `worker` asks for them, so that one seed can repeat a whole run.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use uuid::Uuid;

use crate::domain::ids::Nonce;
use crate::domain::time::Timestamp;

/// The world that a process lives in.
#[async_trait]
pub trait World: Send + Sync {
    /// What the clock on the wall says. May jump, and differs between processes.
    fn now(&self) -> Timestamp;

    /// Time since some point before the start of the process. Never jumps back.
    fn uptime(&self) -> Duration;

    /// Returns after that time.
    async fn sleep(&self, duration: Duration);

    /// A random number, all 64 bits of it.
    fn random(&self) -> u64;

    /// Starts a task.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// What can be made of a world.
pub trait WorldExt: World {
    /// A random nonce.
    fn nonce(&self) -> Nonce {
        Nonce::from_uuid(self.uuid())
    }

    /// A random UUID, version 4.
    fn uuid(&self) -> Uuid {
        uuid::Builder::from_random_bytes(
            (u128::from(self.random()) << 64 | u128::from(self.random())).to_be_bytes(),
        )
        .into_uuid()
    }

    /// A random duration from zero to `longest`: full jitter, so that many who failed together do
    /// not come back together.
    fn jitter(&self, longest: Duration) -> Duration {
        let nanoseconds = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        // The remainder is biased by less than one in a million for any wait that we use.
        let range = nanoseconds.saturating_add(1);
        Duration::from_nanos(self.random().checked_rem(range).unwrap_or(0))
    }
}

impl<W: World + ?Sized> WorldExt for W {}
