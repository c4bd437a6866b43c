//! Settings for authentication with Azure Storage.

use std::path::PathBuf;

use clap::Args;

use super::StorageConfig;
use super::group::InvalidSetting;
use crate::adapters::azure::{AzureIdentity, IdentityTerms};

/// How a process authenticates at Azure Storage, and which certificates it accepts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Storage")]
pub struct AzureTerms {
    /// How the process authenticates at Azure Storage: key or sas, with the AccountKey or the SharedAccessSignature of
    /// storage; managed, as the managed identity of the virtual machine or container app; workload, with Azure Workload
    /// Identity on Kubernetes; cli, as the developer who ran az login
    #[arg(long, value_name = "IDENTITY", default_value = "key", value_parser = identity)]
    azure_identity: AzureIdentity,
    /// Client id of a user-assigned managed identity, or of the application of a workload identity; by default the
    /// variable AZURE_CLIENT_ID, and without both the system-assigned managed identity
    #[arg(long, value_name = "ID", value_parser = client_id)]
    azure_client_id: Option<String>,
    /// PEM file with the authorities that the certificates of Azure Storage and of the authority for workload identities
    /// are checked against, read at the start; by default the public ones
    #[arg(long, value_name = "FILE")]
    pub azure_ca: Option<PathBuf>,
}

impl AzureTerms {
    /// Returns the identity of the process.
    pub fn identity(&self) -> IdentityTerms {
        IdentityTerms { kind: self.azure_identity, client_id: self.azure_client_id.clone() }
    }

    pub(super) fn check(&self, storage: &StorageConfig) -> Vec<InvalidSetting> {
        let mut invalid = Vec::new();
        let mut refuse = |setting, allowed| invalid.push(InvalidSetting::new(setting, OTHERS, allowed));
        match storage {
            StorageConfig::Sqlite { .. } => {
                let allowed = "needs a storage that begins with azure:";
                if self.azure_identity != AzureIdentity::Key {
                    refuse("azure-identity", allowed);
                }
                if self.azure_client_id.is_some() {
                    refuse("azure-client-id", allowed);
                }
                if self.azure_ca.is_some() {
                    refuse("azure-ca", allowed);
                }
            }
            StorageConfig::Azure { connection } => {
                if let Some(rule) = self.azure_identity.violated_by(connection) {
                    refuse("storage", rule);
                }
                if self.azure_client_id.is_some() && !self.azure_identity.has_client_id() {
                    refuse("azure-client-id", "needs azure-identity = managed or workload");
                }
                if self.azure_ca.is_some() && !connection.is_encrypted() {
                    refuse("azure-ca", "needs a storage with https endpoints");
                }
            }
        }
        invalid
    }
}

/// The settings of this group, all of which its rules depend on.
const OTHERS: &[&str] = &["storage", "azure-identity", "azure-client-id", "azure-ca"];

fn identity(text: &str) -> Result<AzureIdentity, String> {
    let identity = AzureIdentity::ALL.into_iter().find(|identity| identity.name() == text);
    identity.ok_or_else(|| {
        let names = AzureIdentity::ALL.map(AzureIdentity::name);
        format!("must be one of {}", names.join(", "))
    })
}

fn client_id(text: &str) -> Result<String, String> {
    let id = uuid::Uuid::try_parse(text).map(|id| id.to_string());
    id.map_err(|_| "must be a UUID, such as 00000000-0000-0000-0000-000000000000".to_owned())
}
