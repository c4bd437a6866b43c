//! The secret of the connection string, which can be replaced while the store is open.

use super::{AzureIdentity, Credentials, IdentityError};
use crate::adapters::azure::connection::AzureConnection;

/// Handle to the secret of an open store.
#[derive(Debug, Clone)]
pub struct AzureSecret {
    identity: AzureIdentity,
    connection: AzureConnection,
    credentials: Credentials,
}

impl AzureSecret {
    pub(in crate::adapters::azure) const fn new(
        identity: AzureIdentity,
        connection: AzureConnection,
        credentials: Credentials,
    ) -> Self {
        Self { identity, connection, credentials }
    }

    /// Replaces the secret for all later requests with the secret of another connection string for the same account.
    ///
    /// # Errors
    /// [`IdentityError`] when the endpoints differ, or the connection string does not fit the identity of the process.
    pub async fn replace(&self, connection: &AzureConnection) -> Result<(), IdentityError> {
        if !connection.is_of_account(&self.connection) {
            return Err(IdentityError::OtherAccount);
        }
        if let Some(rule) = self.identity.violated_by(connection) {
            return Err(IdentityError::Storage(rule));
        }
        match self.identity {
            AzureIdentity::Key | AzureIdentity::Sas => {
                let replaced = self.credentials.storage.replace(Credentials::of_secret(connection)?.storage);
                replaced.await.map_err(|_| IdentityError::NoSecret)
            }
            AzureIdentity::Managed | AzureIdentity::Workload | AzureIdentity::Cli => Ok(()),
        }
    }
}
