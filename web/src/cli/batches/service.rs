//! Requests to the service. They are repeated while the service cannot be reached.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use postonce_schemas::json::Batch;
use postonce_shared::backoff::{Backoff, CLIENT_REQUEST};
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use postonce_shared::printable::Printable;
use reqwest::header::RETRY_AFTER;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::SubmitError;
use super::progress::Progress;
use super::results::ResultsFile;
use crate::error::is_temporary;

/// Time limit for establishing a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit for the next byte of a response, in addition to a requested wait.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Interval of TCP keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum size of a result, in bytes.
const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// Client of the service.
pub struct Service<'a> {
    client: Client,
    url: &'a Url,
    key: &'a SecretString,
    give_up_after: Duration,
    world: &'a Arc<dyn World>,
    progress: &'a Progress,
}

/// Consecutive failures since the last success.
struct Failures {
    backoff: Backoff,
    since: Option<Duration>,
}

impl Failures {
    const fn none() -> Self {
        Self { backoff: CLIENT_REQUEST.start(), since: None }
    }
}

impl<'a> Service<'a> {
    /// Creates the client without connecting.
    ///
    /// # Errors
    /// When the HTTP client cannot be created.
    pub fn new(
        url: &'a Url,
        key: &'a SecretString,
        give_up_after: Duration,
        world: &'a Arc<dyn World>,
        progress: &'a Progress,
    ) -> anyhow::Result<Self> {
        let client = Client::builder()
            .connect_timeout(CONNECT_TIME_MAX)
            .tcp_keepalive(KEEPALIVE_INTERVAL)
            .redirect(Policy::none());
        let client = client.build().context("the HTTP client cannot be created")?;
        Ok(Self { client, url, key, give_up_after, world, progress })
    }

    /// Sends a request until it succeeds, and parses the response.
    pub async fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        request: impl Fn(&Client, Url) -> anyhow::Result<RequestBuilder>,
    ) -> Result<T, SubmitError> {
        let mut failures = Failures::none();
        loop {
            let response = self.send(path, &request, &mut failures).await?;
            match response.bytes().await {
                Ok(body) => {
                    let parsed =
                        serde_json::from_slice(&body).context("the answer of the service has another form");
                    return parsed.map_err(SubmitError::Local);
                }
                Err(error) => self.pause(&mut failures, &chain(&error), None).await?,
            }
        }
    }

    /// Waits until the batch is completed or cancelled.
    pub async fn wait(&self, id: Uuid, mut batch: Batch) -> Result<Batch, SubmitError> {
        let interval = self.progress.interval();
        self.progress.start("items final", batch.items);
        let mut known = None;
        while !batch.phase.is_final() {
            self.progress.set(batch.done());
            if let Some(hindrance) =
                batch.hindrance.filter(|hindrance| known.as_ref() != Some(&hindrance.code))
            {
                self.progress.note(&format!("hindered: {}", Printable::from(&*hindrance.message)));
                known = Some(hindrance.code);
            }
            let request = |client: &Client, url: Url| {
                let request = client.get(url).timeout(interval.saturating_add(SILENCE_MAX));
                Ok(request.header("Prefer", format!("wait={}", interval.as_secs())))
            };
            batch = self.read(&format!("v1/batches/{id}"), request).await?;
        }
        Ok(batch)
    }

    /// Adds all results to the file. After an interruption, continues after the last complete line.
    pub async fn read_results(
        &self,
        id: Uuid,
        items: u64,
        results: &mut ResultsFile,
    ) -> Result<(), SubmitError> {
        self.progress.start("results", items);
        let mut failures = Failures::none();
        while results.lines < items {
            let after = results.lines;
            let request = |client: &Client, url: Url| {
                let request = client.get(url).query(&[("after", after)]);
                Ok(request.header("Accept", "application/x-ndjson, application/json;q=0.5"))
            };
            let response = self.send(&format!("v1/batches/{id}/results"), &request, &mut failures).await?;
            let ended = self.add_lines(response, results).await?;
            if results.lines > after {
                failures = Failures::none();
            }
            if results.lines < items {
                self.pause(&mut failures, &ended, None).await?;
            }
        }
        Ok(())
    }

    /// Adds the complete lines of a response. Returns why the response ended.
    async fn add_lines(
        &self,
        mut response: Response,
        results: &mut ResultsFile,
    ) -> Result<String, SubmitError> {
        let mut text = Vec::new();
        loop {
            let chunk = match tokio::time::timeout(SILENCE_MAX, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => return Ok("the results ended early".to_owned()),
                Ok(Err(error)) => return Ok(chain(&error)),
                Err(_) => return Ok(format!("nothing arrived for {SILENCE_MAX:?}")),
            };
            text.extend_from_slice(&chunk);
            let complete =
                text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end.saturating_add(1));
            let rest = text.split_off(complete);
            for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                results.add(line)?;
            }
            self.progress.set(results.lines);
            text = rest;
            if text.len() > RESULT_BYTES_MAX {
                return Err(anyhow!("a result has more than {RESULT_BYTES_MAX} bytes").into());
            }
        }
    }

    /// Sends a request until it succeeds, is refused, or the time for retries is over.
    async fn send(
        &self,
        path: &str,
        request: &impl Fn(&Client, Url) -> anyhow::Result<RequestBuilder>,
        failures: &mut Failures,
    ) -> Result<Response, SubmitError> {
        let base = format!("{}/{path}", self.url.as_str().trim_end_matches('/'));
        let url = Url::parse(&base).context("the address is not valid")?;
        let mut attempt = request(&self.client, url.clone())?;
        loop {
            let sent = attempt.bearer_auth(self.key.expose_secret()).send().await;
            let (reason, delay) = match sent {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) => {
                    let (status, delay) = (response.status(), retry_after(&response));
                    let reason = reason(status, &response.bytes().await.unwrap_or_default());
                    if !is_temporary(status.as_u16()) {
                        return Err(SubmitError::Refused(reason));
                    }
                    (reason, delay)
                }
                Err(error) if error.is_builder() => {
                    return Err(SubmitError::Usage(chain(&error.without_url())));
                }
                Err(error) => (chain(&error.without_url()), None),
            };
            // Built before the pause, so that a document that cannot be sent again ends the command at once.
            attempt = request(&self.client, url.clone())?;
            self.pause(failures, &reason, delay).await?;
        }
    }

    /// Waits before the next attempt. Fails if the time for retries would be exceeded.
    async fn pause(
        &self,
        failures: &mut Failures,
        reason: &str,
        asked: Option<Duration>,
    ) -> Result<(), SubmitError> {
        let now = self.world.uptime();
        let since = *failures.since.get_or_insert(now);
        let delay = failures.backoff.next(&**self.world).max(asked.unwrap_or_default());
        if now.saturating_sub(since).saturating_add(delay) > self.give_up_after {
            return Err(SubmitError::NotReached(reason.to_owned()));
        }
        self.progress.note(&format!("{reason}; the next attempt is in {} ms", delay.as_millis()));
        self.world.sleep(delay).await;
        Ok(())
    }
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[derive(Deserialize)]
struct Violation {
    field: Printable,
    message: Printable,
}

/// Members of a problem document that are printed. Members that a newer service adds are ignored.
#[derive(Deserialize)]
struct Refusal {
    code: Printable,
    detail: Printable,
    #[serde(default)]
    violations: Vec<Violation>,
}

/// Describes a refusal, followed by a line for each violation.
pub fn reason(status: StatusCode, body: &[u8]) -> String {
    match serde_json::from_slice::<Refusal>(body) {
        Ok(Refusal { code, detail, violations }) => {
            let mut text = format!("{code} ({}): {detail}", status.as_u16());
            for violation in violations {
                text.push_str(&format!("\n  {}: {}", violation.field, violation.message));
            }
            text
        }
        Err(_) => format!("the status is {status}"),
    }
}
