//! Reads the files of secrets again when they change, so that a rotation needs no restart.
//!
//! Renewed are the secret of the storage account and the one that processes share. The others are used only at the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tracing::{info, warn};

use crate::adapters::azure::{AzureConnection, AzureSecret};
use crate::cluster::doorbell_secret::{DoorbellKeys, DoorbellSecret};
use crate::config::{Config, read_secret};
use crate::ports::fault::chain;
use crate::ports::world::World;

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// What a file contains.
enum Use {
    /// The connection string of the storage account.
    Storage(Box<AzureSecret>),
    /// The secret of the processes.
    Processes(Arc<DoorbellSecret>),
}

/// A file whose content is in use.
struct Watched {
    setting: &'static str,
    path: PathBuf,
    used: Use,
    /// A digest of the content, so that no copy of the secret is kept.
    seen: Option<[u8; 32]>,
}

/// Returns the task that renews the secrets from files; `None` if no such secret is in a file. It ends with the process.
pub(super) fn renewal(
    config: &Config,
    azure: Option<AzureSecret>,
    processes: &Arc<DoorbellSecret>,
    world: Arc<dyn World>,
) -> Option<impl Future<Output = ()> + Send + 'static> {
    let file = |setting| config.secret_files.of(setting).map(Path::to_owned);
    let storage =
        file("storage").zip(azure).map(|(path, secret)| ("storage", path, Use::Storage(Box::new(secret))));
    let secret = Use::Processes(Arc::clone(processes));
    let processes = file("ring-secret").map(|path| ("ring-secret", path, secret));
    let watched = |(setting, path, used): (_, PathBuf, _)| {
        let seen = read_secret(&path).ok().as_ref().map(digest);
        Watched { setting, path, used, seen }
    };
    let mut files: Vec<Watched> = storage.into_iter().chain(processes).map(watched).collect();
    (!files.is_empty()).then_some(async move {
        loop {
            world.sleep(CHECK_INTERVAL).await;
            for file in &mut files {
                file.check().await;
            }
        }
    })
}

impl Watched {
    /// Uses the content if it changed. While the file cannot be read, because it is being replaced, nothing happens.
    async fn check(&mut self) {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read_secret(&path)).await;
        let Ok(Ok(secret)) = read else { return };
        let digest = Some(digest(&secret));
        if digest == self.seen {
            return;
        }
        self.seen = digest;
        let (setting, path) = (self.setting, self.path.display());
        match self.used.renew(&secret).await {
            Ok(()) => info!("Read {setting} again from {path}, which changed"),
            Err(reason) => warn!("The present {setting} stays in use, because {path} {reason}"),
        }
    }
}

impl Use {
    /// Uses a secret from now on.
    async fn renew(&self, secret: &SecretString) -> Result<(), String> {
        match self {
            Self::Processes(current) => {
                let keys =
                    DoorbellKeys::parse(secret.expose_secret()).map_err(|invalid| invalid.to_string())?;
                current.replace(keys);
                Ok(())
            }
            Self::Storage(current) => {
                let connection = secret.expose_secret().strip_prefix("azure:");
                let connection = connection.ok_or("does not begin with azure:")?;
                let connection = AzureConnection::parse(connection)
                    .map_err(|invalid| format!("cannot be used: {invalid}"))?;
                let replaced = current.replace(&connection).await;
                replaced.map_err(|invalid| format!("cannot be used: {}", chain(&invalid)))
            }
        }
    }
}

fn digest(secret: &SecretString) -> [u8; 32] {
    Sha256::digest(secret.expose_secret().as_bytes()).into()
}
