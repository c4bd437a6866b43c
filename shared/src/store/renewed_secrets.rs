//! Reloads secrets when their files change, so that a rotation needs no restart, and immediately on request.
//!
//! The first API key is not reloaded: it is only used at the first start, on an empty store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use tracing::{info, warn};

use crate::adapters::azure::{AzureConnection, AzureSecret};
use crate::adapters::otlp::ExportHeaders;
use crate::cluster::doorbell_secret::{DoorbellKeys, DoorbellSecret};
use crate::config::{Config, SecretFile, digest_of, read_secret, reload};
use crate::domain::anchor::signed::AnchorKey;
use crate::oversight::anchors::RenewableKey;
use crate::ports::fault::chain;
use crate::ports::world::World;

const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Number of consecutive read failures after which a warning is logged. A single failure can occur while the file is
/// replaced.
const FAILURES_TOLD: u32 = 2;

/// A secret in use that can be replaced.
#[async_trait]
pub(super) trait Renewable: Send + Sync {
    /// Replaces the secret. If the new secret is not usable, returns the reason, which reveals nothing of it.
    async fn renew(&self, secret: &SecretString) -> Result<(), String>;
}

#[async_trait]
impl Renewable for DoorbellSecret {
    async fn renew(&self, secret: &SecretString) -> Result<(), String> {
        let keys = DoorbellKeys::parse(secret.expose_secret()).map_err(|invalid| invalid.to_string())?;
        self.replace(keys);
        Ok(())
    }
}

#[async_trait]
impl Renewable for AzureSecret {
    async fn renew(&self, secret: &SecretString) -> Result<(), String> {
        let connection = secret.expose_secret().strip_prefix("azure:").ok_or("does not begin with azure:")?;
        let connection =
            AzureConnection::parse(connection).map_err(|invalid| format!("cannot be used: {invalid}"))?;
        let replaced = self.replace(&connection).await;
        replaced.map_err(|invalid| format!("cannot be used: {}", chain(&invalid)))
    }
}

#[async_trait]
impl Renewable for RenewableKey {
    async fn renew(&self, secret: &SecretString) -> Result<(), String> {
        let key = AnchorKey::parse(secret.expose_secret()).ok_or("is not base64 of 32 bytes")?;
        self.replace(key);
        Ok(())
    }
}

#[async_trait]
impl Renewable for ExportHeaders {
    async fn renew(&self, secret: &SecretString) -> Result<(), String> {
        let headers =
            Self::parse(secret.expose_secret()).map_err(|rule| format!("cannot be used: it {rule}"))?;
        self.replace(&headers);
        Ok(())
    }
}

/// Replaces a secret whenever the file of the setting changes, until the process ends. Does nothing if the value does not
/// come from a file.
pub(super) fn keep_renewed(
    config: &Config,
    setting: &'static str,
    secret: Arc<dyn Renewable>,
    world: &Arc<dyn World>,
) {
    let Some(file) = config.secret_files.of(setting) else { return };
    let mut watched = Watched { setting, file: file.clone(), secret, candidate: file.digest, failures: 0 };
    let sleeping = Arc::clone(world);
    let mut requests = reload::requests();
    let watching = async move {
        loop {
            let is_requested = requests.within(CHECK_INTERVAL, &*sleeping).await;
            watched.check(is_requested).await;
        }
    };
    world.spawn(watching.boxed());
}

struct Watched {
    setting: &'static str,
    /// Its digest is the digest of the content that was last tried.
    file: SecretFile,
    secret: Arc<dyn Renewable>,
    /// The digest at the previous check. Content is used only after two equal checks, because a file may be partially
    /// written.
    candidate: [u8; 32],
    failures: u32,
}

impl Watched {
    /// Reads the file, and uses new content. On request, the content is assumed to be complete.
    async fn check(&mut self, is_requested: bool) {
        let path = self.file.path.clone();
        let read = tokio::task::spawn_blocking(move || read_secret(&path)).await;
        let (setting, path) = (self.setting, self.file.path.display());
        let secret = match read {
            Ok(Ok(secret)) => secret,
            Ok(Err(error)) => {
                self.failures = self.failures.saturating_add(1);
                if is_requested || self.failures == FAILURES_TOLD {
                    warn!("The present {setting} stays in use, because {path} cannot be read: {error}");
                }
                return;
            }
            // The process is ending.
            Err(_) => return,
        };
        self.failures = 0;
        let digest = digest_of(&secret);
        let is_settled = std::mem::replace(&mut self.candidate, digest) == digest;
        if !(is_settled || is_requested) || digest == self.file.digest {
            return;
        }
        self.file.digest = digest;
        match self.secret.renew(&secret).await {
            Ok(()) => info!("Read {setting} again from {path}, which changed"),
            Err(reason) => warn!("The present {setting} stays in use, because {path} {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct InUse(Mutex<Vec<String>>);

    #[async_trait]
    impl Renewable for InUse {
        async fn renew(&self, secret: &SecretString) -> Result<(), String> {
            self.0.lock().push(secret.expose_secret().to_owned());
            Ok(())
        }
    }

    #[tokio::test]
    async fn new_content_is_used_at_once_if_that_is_requested_and_otherwise_at_the_second_check() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "first").unwrap();
        let digest = digest_of(&SecretString::from("first"));
        let in_use = Arc::new(InUse::default());
        let mut watched = Watched {
            setting: "ring-secret",
            file: SecretFile { path: path.clone(), digest },
            secret: Arc::<InUse>::clone(&in_use),
            candidate: digest,
            failures: 0,
        };
        watched.check(true).await;
        assert!(in_use.0.lock().is_empty(), "nothing changed");
        std::fs::write(&path, "second").unwrap();
        watched.check(false).await;
        assert!(in_use.0.lock().is_empty(), "it may be half written");
        watched.check(false).await;
        std::fs::write(&path, "third").unwrap();
        watched.check(true).await;
        assert_eq!(*in_use.0.lock(), ["second", "third"]);
    }
}
