//! Authentication to Azure Storage: with the account key or the shared access signature of the connection string, or
//! with tokens of Microsoft Entra ID, for which the storage account needs no key.
//!
//! Each token source implements [`TokenSource`]. [`renewed`] caches the token and renews it in the background.

mod answer;
mod cli;
mod fault;
mod managed;
mod renewed;
mod secret;
mod workload;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::Url;
use azure_core::auth::{Secret, TokenCredential};
use azure_storage::StorageCredentials;
use secrecy::{ExposeSecret as _, SecretString};

pub use fault::{IdentityError, TokenFault};
pub use secret::AzureSecret;

use super::connection::{AzureConnection, Credential};
use cli::AzureCli;
use managed::ManagedIdentity;
use renewed::RenewedToken;
use workload::WorkloadIdentity;

use crate::ports::world::World;

/// The resource of the tokens, which is the same for all storage accounts.
const RESOURCE: &str = "https://storage.azure.com";

/// Timeout of a request for a token.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);

/// How a process authenticates to Azure Storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AzureIdentity {
    /// With the account key of the connection string.
    Key,
    /// With the shared access signature of the connection string.
    Sas,
    /// As the managed identity of the virtual machine, the container app or the App Service.
    Managed,
    /// As the workload identity of a pod on Kubernetes.
    Workload,
    /// As the developer who ran `az login`.
    Cli,
}

impl AzureIdentity {
    /// All kinds of identities.
    pub const ALL: [Self; 5] = [Self::Key, Self::Sas, Self::Managed, Self::Workload, Self::Cli];

    /// Returns the name used in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Sas => "sas",
            Self::Managed => "managed",
            Self::Workload => "workload",
            Self::Cli => "cli",
        }
    }

    /// Returns whether a client id selects one of several identities of this kind.
    pub const fn has_client_id(self) -> bool {
        match self {
            Self::Managed | Self::Workload => true,
            Self::Key | Self::Sas | Self::Cli => false,
        }
    }

    /// Returns the rule for this identity that the connection violates, as the end of a sentence about the connection.
    pub fn violated_by(self, connection: &AzureConnection) -> Option<&'static str> {
        match (self, connection.credential()) {
            (Self::Key, Credential::Key(_)) => None,
            (Self::Sas, Credential::Sas(_)) => {
                let rule = "must have https endpoints for azure-identity = sas, because anybody who reads the signature can use it";
                (!connection.is_private()).then_some(rule)
            }
            (Self::Key, _) => Some("needs an AccountKey for azure-identity = key"),
            (Self::Sas, _) => Some("needs a SharedAccessSignature for azure-identity = sas"),
            (Self::Managed | Self::Workload | Self::Cli, Credential::None) => {
                let rule = "must have https endpoints for this azure-identity, because anybody who reads a token can use it";
                (!connection.is_encrypted()).then_some(rule)
            }
            (Self::Managed | Self::Workload | Self::Cli, Credential::Key(_) | Credential::Sas(_)) => Some(
                "must have no AccountKey and no SharedAccessSignature for this azure-identity: remove the secret",
            ),
        }
    }
}

/// The identity of a process, with the settings of its kind.
#[derive(Debug, Clone)]
pub struct IdentityTerms {
    /// The kind of identity.
    pub kind: AzureIdentity,
    /// The client id of a user-assigned managed identity or of a workload identity. The default is the variable
    /// `AZURE_CLIENT_ID`. Without both, a managed identity is the system-assigned one.
    pub client_id: Option<String>,
}

impl IdentityTerms {
    /// Returns the settings for authentication with the key of the connection string.
    pub const fn key() -> Self {
        Self { kind: AzureIdentity::Key, client_id: None }
    }
}

/// Reads an environment variable. An empty variable counts as not set.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads an environment variable of this process.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns whether a URL has one of these schemes, and no user or password, which errors would reveal.
fn is_plain(url: &Url, schemes: &[&str]) -> bool {
    schemes.contains(&url.scheme()) && url.username().is_empty() && url.password().is_none()
}

/// A source of tokens for [`RESOURCE`].
#[async_trait]
trait TokenSource: fmt::Debug + Send + Sync {
    /// Makes one request for a token. The request has a timeout.
    async fn request(&self, world: &dyn World) -> Result<Token, TokenFault>;
}

/// A newly issued token.
#[derive(Debug)]
struct Token {
    text: SecretString,
    /// Time until it expires.
    lifetime: Duration,
}

/// Creates the credentials of a store. Tokens are renewed automatically.
///
/// # Errors
/// [`IdentityError`] when a variable of the platform is missing or invalid, or `authorities` cannot be used.
pub(super) fn credentials(
    connection: &AzureConnection,
    terms: &IdentityTerms,
    authorities: Option<&Path>,
    world: &Arc<dyn World>,
    variables: Variables<'_>,
) -> Result<Credentials, IdentityError> {
    let client_id = || terms.client_id.clone().or_else(|| variables("AZURE_CLIENT_ID"));
    let source: Arc<dyn TokenSource> = match terms.kind {
        AzureIdentity::Key | AzureIdentity::Sas => return Credentials::of_secret(connection),
        AzureIdentity::Managed => Arc::new(ManagedIdentity::new(client_id(), variables)?),
        AzureIdentity::Workload => Arc::new(WorkloadIdentity::new(client_id(), authorities, variables)?),
        AzureIdentity::Cli => Arc::new(AzureCli),
    };
    let token = Arc::new(RenewedToken::new(source, Arc::clone(world)));
    let credential: Arc<dyn TokenCredential> = Arc::<RenewedToken>::clone(&token);
    Ok(Credentials { storage: StorageCredentials::token_credential(credential), token: Some(token) })
}

#[derive(Debug, Clone)]
pub(super) struct Credentials {
    /// Used by the clients of the services.
    pub(super) storage: StorageCredentials,
    token: Option<Arc<RenewedToken>>,
}

impl Credentials {
    /// Returns the credentials for the secret of the connection string.
    pub(super) fn of_secret(connection: &AzureConnection) -> Result<Self, IdentityError> {
        let storage = match connection.credential() {
            Credential::Key(key) => {
                let key = Secret::new(key.expose_secret().to_owned());
                StorageCredentials::access_key(connection.account(), key)
            }
            Credential::Sas(signature) => StorageCredentials::sas_token(signature.expose_secret())
                .map_err(|_| IdentityError::Signature)?,
            Credential::None => return Err(IdentityError::NoSecret),
        };
        Ok(Self { storage, token: None })
    }

    /// Returns whether roles grant the rights, and not an account key or a shared access signature.
    pub(super) const fn have_roles(&self) -> bool {
        self.token.is_some()
    }

    /// Records that the storage refused the token, so that the next request renews it.
    pub(super) fn note_unauthorized(&self) {
        if let Some(token) = &self.token {
            token.note_unauthorized();
        }
    }
}
