//! Tokens of the developer who ran `az login`, from the Azure CLI.

use std::time::Duration;

use async_trait::async_trait;
use azure_core::auth::TokenCredential as _;
use azure_identity::AzureCliCredential;
use futures::future::{Either, select};
use secrecy::SecretString;

use super::answer::lifetime;
use super::{RESOURCE, Token, TokenFault, TokenSource};
use crate::ports::fault::chain;
use crate::ports::world::World;

/// Maximum time of the CLI, which starts a Python interpreter and sends requests.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A source of tokens of the developer.
#[derive(Debug)]
pub(super) struct AzureCli;

#[async_trait]
impl TokenSource for AzureCli {
    async fn request(&self, world: &dyn World) -> Result<Token, TokenFault> {
        // A new one for each request, because it would keep its token until 20 seconds before the expiry.
        let credential = AzureCliCredential::new();
        let scope = format!("{RESOURCE}/.default");
        let scopes = [scope.as_str()];
        let token = match select(credential.get_token(&scopes), world.sleep(TIMEOUT)).await {
            Either::Left((token, _)) => token.map_err(|error| TokenFault::Cli(chain(&error)))?,
            Either::Right(_) => return Err(TokenFault::Cli(format!("it did not end within {TIMEOUT:?}"))),
        };
        let lifetime = lifetime(None, Some(token.expires_on.unix_timestamp()), world.now());
        let lifetime = lifetime.map_err(|reason| TokenFault::Cli(reason.to_owned()))?;
        Ok(Token { text: SecretString::from(token.token.secret()), lifetime })
    }
}
