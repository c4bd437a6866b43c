//! Obtains tokens for a managed identity. App Service and Container Apps publish an endpoint in environment variables.
//! Without them, the instance metadata service of a virtual machine is used.

use async_trait::async_trait;
use azure_core::Url;
use secrecy::{ExposeSecret as _, SecretString};

use super::answer::exchange;
use super::{
    AzureIdentity, IdentityError, REQUEST_TIMEOUT, RESOURCE, Token, TokenFault, TokenSource, Variables,
    is_plain,
};
use crate::ports::world::World;

/// Address of the instance metadata service, which is the same on every virtual machine.
const METADATA_SERVICE: &str = "http://169.254.169.254";

/// A token source for a managed identity.
#[derive(Debug)]
pub(super) struct ManagedIdentity {
    http: reqwest::Client,
    endpoint: Url,
    /// The secret header of App Service; `None` for the instance metadata service.
    header: Option<SecretString>,
}

impl ManagedIdentity {
    /// Creates the source from the environment variables of the platform. Sends no request.
    ///
    /// # Errors
    /// [`IdentityError`] when a variable of the platform is missing or invalid.
    pub(super) fn new(client_id: Option<String>, variables: Variables<'_>) -> Result<Self, IdentityError> {
        let (variable, address, header, version) = match variables("IDENTITY_ENDPOINT") {
            Some(endpoint) => {
                let header = variables("IDENTITY_HEADER").ok_or(IdentityError::NoVariable {
                    identity: AzureIdentity::Managed.name(),
                    variable: "IDENTITY_HEADER",
                    meaning: "which the platform sets together with IDENTITY_ENDPOINT",
                })?;
                let header = header.trim_end_matches(['\r', '\n']);
                if header.is_empty() || !header.bytes().all(|byte| byte.is_ascii_graphic()) {
                    let allowed = "must be visible ASCII characters";
                    return Err(IdentityError::Variable { variable: "IDENTITY_HEADER", allowed });
                }
                ("IDENTITY_ENDPOINT", endpoint, Some(SecretString::from(header)), "2019-08-01")
            }
            None => {
                // The Azure SDKs use this variable too, to redirect requests to another host.
                let variable = "AZURE_POD_IDENTITY_AUTHORITY_HOST";
                let host = variables(variable).unwrap_or_else(|| METADATA_SERVICE.to_owned());
                let address = format!("{}/metadata/identity/oauth2/token", host.trim_end_matches('/'));
                (variable, address, None, "2018-02-01")
            }
        };
        let allowed = "must be an address that begins with http:// or https://";
        let invalid = IdentityError::Variable { variable, allowed };
        let url = Url::parse(&address).ok().filter(|url| is_plain(url, &["http", "https"]));
        let mut endpoint = url.ok_or(invalid)?;
        endpoint.query_pairs_mut().append_pair("api-version", version).append_pair("resource", RESOURCE);
        if let Some(client_id) = client_id {
            endpoint.query_pairs_mut().append_pair("client_id", &client_id);
        }
        let http = reqwest::Client::builder()
            // The endpoint is local to the machine.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(REQUEST_TIMEOUT)
            .build()
            .map_err(IdentityError::NoClient)?;
        Ok(Self { http, endpoint, header })
    }

    /// Returns a description of the endpoint for errors.
    fn name(&self) -> String {
        let mut address = self.endpoint.clone();
        address.set_query(None);
        format!("the endpoint of the managed identity {address}")
    }
}

#[async_trait]
impl TokenSource for ManagedIdentity {
    async fn request(&self, world: &dyn World) -> Result<Token, TokenFault> {
        let request = self.http.get(self.endpoint.clone());
        let request = match &self.header {
            Some(header) => request.header("X-IDENTITY-HEADER", header.expose_secret()),
            // The metadata service requires this header as evidence that the request was not forwarded.
            None => request.header("Metadata", "true"),
        };
        exchange(request, &self.name(), world.now()).await
    }
}
