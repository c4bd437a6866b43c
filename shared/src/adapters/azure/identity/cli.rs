//! Tokens of the developer who ran `az login`, from the Azure CLI.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::auth::TokenCredential as _;
use azure_identity::AzureCliCredential;
use futures::future::{Either, select};
use secrecy::SecretString;

use super::managed::Clock;
use super::{RESOURCE, Token, TokenFault, TokenSource};
use crate::ports::fault::chain;
use crate::ports::world::World;

/// Maximum time of the CLI, which starts a Python interpreter and sends requests.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A source of tokens of the developer.
#[derive(Debug)]
pub(super) struct AzureCli(Clock);

impl AzureCli {
    pub(super) const fn new(world: Arc<dyn World>) -> Self {
        Self(Clock(world))
    }
}

#[async_trait]
impl TokenSource for AzureCli {
    async fn request(&self) -> Result<Token, TokenFault> {
        let Clock(world) = &self.0;
        // A new one for each request, because it would keep its token until 20 seconds before the expiry.
        let credential = AzureCliCredential::new();
        let scope = format!("{RESOURCE}/.default");
        let scopes = [scope.as_str()];
        let token = match select(credential.get_token(&scopes), world.sleep(TIMEOUT)).await {
            Either::Left((token, _)) => token.map_err(|error| TokenFault::Cli(chain(&error)))?,
            Either::Right(_) => return Err(TokenFault::Cli(format!("it did not end within {TIMEOUT:?}"))),
        };
        let remaining =
            token.expires_on.unix_timestamp().saturating_sub(world.now().unix_ms().div_euclid(1000));
        let seconds = u64::try_from(remaining).ok().filter(|seconds| *seconds > 0);
        let seconds = seconds.ok_or_else(|| TokenFault::Cli("its token has expired".to_owned()))?;
        Ok(Token { text: SecretString::from(token.token.secret()), lifetime: Duration::from_secs(seconds) })
    }
}
