//! The secret that the processes of one bank share: configured, or made on first use and kept in the
//! store, where all of them find it.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::ports::fault::{StoreFault, chain};
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::{World, WorldExt as _};

/// Shortest secret, in characters.
pub const RING_SECRET_CHARS_MIN: usize = 16;
/// The name of the value in the store.
const SECRET_VALUE: &str = "ring-secret";
/// First wait after the store could not be asked.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(200);
/// Longest such wait.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

/// The secret, as soon as it is known.
#[derive(Debug)]
pub struct RingSecret(watch::Sender<Option<SecretString>>);

impl RingSecret {
    /// The configured secret; without one it has to be established.
    pub fn new(configured: Option<&SecretString>) -> Self {
        Self(watch::Sender::new(configured.cloned()))
    }

    /// The secret, if it is known by now.
    pub fn known(&self) -> Option<SecretString> {
        self.0.borrow().clone()
    }

    /// The secret. Waits until it is known.
    pub async fn get(&self) -> SecretString {
        let mut known = self.0.subscribe();
        let secret = known.wait_for(Option::is_some).await.ok().and_then(|secret| secret.clone());
        // The sender lives as long as `self`.
        match secret {
            Some(secret) => secret,
            None => futures::future::pending().await,
        }
    }

    /// Finds the secret in the store, or puts one there: processes that start at once agree on it.
    /// Goes on until the store can be used.
    pub async fn establish(&self, sync: &dyn SyncStore, world: &dyn World) {
        let mut longest = RETRY_DELAY_MIN;
        while self.known().is_none() {
            match agree(sync, world).await {
                Ok(secret) if secret.expose_secret().len() >= RING_SECRET_CHARS_MIN => {
                    self.0.send_replace(Some(secret));
                    return;
                }
                Ok(_) => error!(
                    "The stored value {SECRET_VALUE} is too short for a secret: nothing rings until it is \
                     removed, or ring-secret is configured"
                ),
                Err(fault) => warn!("The secret of the doorbell is not known yet: {}", chain(&fault)),
            }
            let half = longest.checked_div(2).unwrap_or_default();
            world.sleep(half.saturating_add(world.jitter(half))).await;
            longest = longest.saturating_mul(2).min(RETRY_DELAY_MAX);
        }
    }
}

/// The stored secret. Whatever becomes of the write, what is read afterwards is what all agree on.
async fn agree(sync: &dyn SyncStore, world: &dyn World) -> Result<SecretString, StoreFault> {
    if let Some(stored) = sync.get(SECRET_VALUE).await? {
        return Ok(SecretString::from(stored.value));
    }
    let made = format!("{}{}", world.uuid().simple(), world.uuid().simple());
    match sync.swap(SECRET_VALUE, None, &made).await? {
        Swapped::Done(_) => {
            info!("Made the secret of the doorbell");
            Ok(SecretString::from(made))
        }
        Swapped::Conflict => {
            let stored = sync.get(SECRET_VALUE).await?;
            Ok(stored.map_or_else(SecretString::default, |stored| SecretString::from(stored.value)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::system::SystemWorld;

    #[tokio::test]
    async fn processes_that_start_at_once_agree_on_a_secret() {
        let world: Arc<dyn World> = Arc::new(SystemWorld::new());
        let store = MemoryStore::empty(Arc::clone(&world));
        let processes: Vec<_> = (0..8).map(|_| (store.ports().sync, RingSecret::new(None))).collect();
        let establish = processes.iter().map(|(sync, secret)| async {
            secret.establish(&**sync, &*world).await;
            secret.get().await.expose_secret().to_owned()
        });
        let secrets = futures::future::join_all(establish).await;
        let first = secrets.first().unwrap();
        assert!(first.len() >= 64 && secrets.iter().all(|secret| secret == first));

        let configured = SecretString::from("0123456789abcdef");
        let with_its_own = RingSecret::new(Some(&configured));
        with_its_own.establish(&*store.ports().sync, &*world).await;
        assert_eq!(with_its_own.get().await.expose_secret(), "0123456789abcdef");
    }
}
