//! Obtains tokens from the Azure CLI, for the developer who ran `az login`.

use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{Either, select, try_join};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::answer::{ANSWER_BYTES_MAX, one_line, token};
use super::{RESOURCE, Token, TokenFault, TokenSource};
use crate::ports::world::World;

/// Timeout for the CLI, which starts a Python interpreter and sends requests.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A token source that runs the Azure CLI.
#[derive(Debug)]
pub(super) struct AzureCli;

/// The output of `az account get-access-token`.
#[derive(Deserialize)]
struct Printed {
    #[serde(rename = "accessToken")]
    access_token: String,
    /// Expiry in seconds since 1970. Older versions print only `expiresOn`, which is in local time.
    expires_on: Option<i64>,
}

#[async_trait]
impl TokenSource for AzureCli {
    async fn request(&self, world: &dyn World) -> Result<Token, TokenFault> {
        let printed = match select(Box::pin(print_token()), world.sleep(TIMEOUT)).await {
            Either::Left((printed, _)) => printed.map_err(TokenFault::Cli)?,
            Either::Right(_) => return Err(TokenFault::Cli(format!("it did not end within {TIMEOUT:?}"))),
        };
        let Printed { access_token, expires_on } = printed;
        let found = match expires_on {
            Some(_) => token(access_token, None, expires_on, world.now()),
            None => Err("it does not print expires_on: Azure CLI 2.54.0 or newer is needed"),
        };
        found.map_err(|reason| TokenFault::Cli(reason.to_owned()))
    }
}

/// Runs the CLI. Dropping this future kills the process. Returns the reason if it fails.
async fn print_token() -> Result<Printed, String> {
    let scope = format!("{RESOURCE}/.default");
    let mut command = Command::new("az");
    command.args(["account", "get-access-token", "--output", "json", "--scope", &scope]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let failed = |error: std::io::Error| error.to_string();
    let mut az = command.spawn().map_err(|error| {
        let is_missing = error.kind() == ErrorKind::NotFound;
        if is_missing { "the program az is not installed".to_owned() } else { failed(error) }
    })?;
    let streams = az.stdout.take().zip(az.stderr.take());
    let (output, errors) = streams.ok_or("its output cannot be read")?;
    let (output, errors) = try_join(bounded(output), bounded(errors)).await.map_err(failed)?;
    let status = az.wait().await.map_err(failed)?;
    if !status.success() {
        return Err(format!("it ended with {status}: {}", one_line(&String::from_utf8_lossy(&errors))));
    }
    serde_json::from_slice(&output).map_err(|_| "it does not print JSON with an accessToken".to_owned())
}

/// Reads a stream to its end, or up to [`ANSWER_BYTES_MAX`].
async fn bounded(stream: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut read = Vec::new();
    let bytes_max = u64::try_from(ANSWER_BYTES_MAX).unwrap_or(u64::MAX);
    stream.take(bytes_max).read_to_end(&mut read).await?;
    Ok(read)
}
