//! Exchanges the service account token of a Kubernetes pod, which the platform replaces within the hour, for a token of
//! Microsoft Entra ID (client credentials with an assertion: RFC 7523, section 2.2).

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use azure_core::Url;
use tokio::task::spawn_blocking;

use super::answer::exchange;
use super::{
    AzureIdentity, IdentityError, REQUEST_TIMEOUT, RESOURCE, Token, TokenFault, TokenSource, Variables,
    is_plain,
};
use crate::adapters::azure::wire::trusting;
use crate::files::read_regular;
use crate::ports::world::World;
use crate::text::without_mark_of_file;

/// The authority of the public cloud.
const PUBLIC_AUTHORITY: &str = "https://login.microsoftonline.com";

/// Maximum size of the file with the service account token, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// A token source for a workload identity.
#[derive(Debug)]
pub(super) struct WorkloadIdentity {
    http: reqwest::Client,
    endpoint: Url,
    client_id: String,
    token_file: PathBuf,
}

impl WorkloadIdentity {
    /// Creates the source from the environment variables that the webhook of Azure Workload Identity sets. Sends no request.
    ///
    /// # Errors
    /// [`IdentityError`] when a variable of the platform is missing or invalid, or `authorities` cannot be used.
    pub(super) fn new(
        client_id: Option<String>,
        authorities: Option<&Path>,
        variables: Variables<'_>,
    ) -> Result<Self, IdentityError> {
        let missing = |variable, meaning| IdentityError::NoVariable {
            identity: AzureIdentity::Workload.name(),
            variable,
            meaning,
        };
        let set_by = "which Azure Workload Identity sets in pods with the label azure.workload.identity/use";
        let client_id =
            client_id.ok_or_else(|| missing("AZURE_CLIENT_ID", "or the setting azure-client-id"))?;
        let tenant = variables("AZURE_TENANT_ID").ok_or_else(|| missing("AZURE_TENANT_ID", set_by))?;
        let token_file = variables("AZURE_FEDERATED_TOKEN_FILE")
            .ok_or_else(|| missing("AZURE_FEDERATED_TOKEN_FILE", set_by))?;
        let authority = variables("AZURE_AUTHORITY_HOST").unwrap_or_else(|| PUBLIC_AUTHORITY.to_owned());
        let invalid = IdentityError::Variable {
            variable: "AZURE_AUTHORITY_HOST",
            allowed: "must be an address such as https://login.microsoftonline.com/",
        };
        let endpoint = format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/'));
        let endpoint = Url::parse(&endpoint).ok().filter(|url| is_plain(url, &["https"])).ok_or(invalid)?;
        let http =
            reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(REQUEST_TIMEOUT);
        let http = trusting(http, authorities)?.build().map_err(IdentityError::NoClient)?;
        Ok(Self { http, endpoint, client_id, token_file: PathBuf::from(token_file) })
    }
}

#[async_trait]
impl TokenSource for WorkloadIdentity {
    async fn request(&self, world: &dyn World) -> Result<Token, TokenFault> {
        // The file is read for each request, because the platform replaces it long before its token expires.
        let read = spawn_blocking({
            let file = self.token_file.clone();
            move || read_regular(&file, TOKEN_BYTES_MAX)
        });
        let unreadable =
            |reason: String| TokenFault::File { path: self.token_file.display().to_string(), reason };
        let assertion = read.await.map_err(io::Error::other).and_then(|read| read);
        let assertion = assertion.map_err(|error| unreadable(error.to_string()))?;
        let assertion = std::str::from_utf8(without_mark_of_file(&assertion))
            .map_err(|_| unreadable("it is not text in UTF-8".to_owned()))?;
        let scope = format!("{RESOURCE}/.default");
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", self.client_id.as_str()),
            ("scope", scope.as_str()),
            ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
            ("client_assertion", assertion.trim()),
        ];
        let request = self.http.post(self.endpoint.clone()).form(&form);
        exchange(request, self.endpoint.as_str(), world.now()).await
    }
}
