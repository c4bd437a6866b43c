//! A client for a bank whose processes come and go. It sends a request to any available web process until there is a
//! response.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use reqwest::{RequestBuilder, StatusCode};

use super::process_group::ProcessGroup;
use super::results::RunResults;
use crate::prelude::*;

/// Maximum wait for one response. A suspended process does not respond.
const ATTEMPT_TIME_MAX: Duration = Duration::from_secs(8);
/// Maximum time until a request has a response.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(180);
const RETRY_DELAY_MS: std::ops::Range<u64> = 10..250;

/// Reason why a request was not sent.
const NO_PROCESS: &str = "no web process was available";

/// A client with one API key that retries.
pub struct RetryingClient<'a> {
    client: Client,
    processes: &'a ProcessGroup,
    results: &'a RunResults,
}

impl<'a> RetryingClient<'a> {
    /// Creates a client for the web processes of a group.
    pub fn new(key: &str, processes: &'a ProcessGroup, results: &'a RunResults) -> Self {
        Self { client: Client::new("", key), processes, results }
    }

    /// Sends a request, each time to any web process, until there is a response. An unexpected response, or no response in time,
    /// is a finding.
    pub async fn send(
        &self,
        rng: &mut StdRng,
        what: &str,
        expected: &[u16],
        make: impl Fn(&Client) -> RequestBuilder,
    ) -> Option<Answer> {
        let since = Stopwatch::start();
        let mut last = NO_PROCESS.to_owned();
        while since.elapsed() < ANSWER_TIME_MAX {
            if let Some(client) = self.any(rng) {
                match client.try_send(make(&client).timeout(ATTEMPT_TIME_MAX)).await {
                    Ok(answer) if expected.contains(&answer.status) => return Some(answer),
                    Ok(answer) if is_unavailable(&answer) => {
                        self.results
                            .count(|counts| counts.unavailable = counts.unavailable.saturating_add(1));
                        last = format!("{answer:?}");
                    }
                    Ok(answer) => {
                        self.results.report(format!("{what} was answered with {answer:?}"));
                        return None;
                    }
                    Err(error) => {
                        self.results.count(|counts| counts.unanswered = counts.unanswered.saturating_add(1));
                        last = error.to_string();
                    }
                }
            }
            wait::pass(Duration::from_millis(rng.random_range(RETRY_DELAY_MS))).await;
        }
        self.results.report(format!("{what}: no answer within {ANSWER_TIME_MAX:?}; last: {last}"));
        None
    }

    /// Reads a response of lines. `make` gets the number of known lines: after an interruption, the rest is requested from any web
    /// process. A response that does not end in time is a finding.
    pub async fn lines(
        &self,
        rng: &mut StdRng,
        what: &str,
        make: impl Fn(&Client, usize) -> RequestBuilder,
    ) -> Option<Vec<String>> {
        let since = Stopwatch::start();
        let (mut last, mut lines) = (NO_PROCESS.to_owned(), Vec::new());
        while since.elapsed() < ANSWER_TIME_MAX {
            if let Some(client) = self.any(rng) {
                match read_lines(make(&client, lines.len()).timeout(ATTEMPT_TIME_MAX), &mut lines).await {
                    Ok(()) => return Some(lines),
                    Err(broken) => {
                        self.results.count(|counts| counts.unanswered = counts.unanswered.saturating_add(1));
                        last = broken;
                    }
                }
            }
            wait::pass(Duration::from_millis(rng.random_range(RETRY_DELAY_MS))).await;
        }
        self.results.report(format!("{what}: no end within {ANSWER_TIME_MAX:?}; last: {last}"));
        None
    }

    /// Returns a client for a random web process that listens.
    fn any(&self, rng: &mut StdRng) -> Option<Client> {
        let addresses = self.processes.addresses();
        let address = addresses.get(rng.random_range(0..addresses.len().max(1)));
        address.map(|address| self.client.at(address))
    }
}

/// Appends the complete lines of a response, even if the response is interrupted.
async fn read_lines(request: RequestBuilder, lines: &mut Vec<String>) -> Result<(), String> {
    let mut response = request.send().await.map_err(|error| error.to_string())?;
    if response.status() != StatusCode::OK {
        return Err(format!("{}", response.status()));
    }
    let mut rest = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
        rest.extend_from_slice(&chunk);
        let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last.saturating_add(1));
        let complete: Vec<u8> = rest.drain(..end).collect();
        lines.extend(String::from_utf8_lossy(&complete).lines().map(str::to_owned));
    }
    if rest.is_empty() { Ok(()) } else { Err("it ends within a line".to_owned()) }
}

/// Returns whether the response asks for a retry with the same id.
fn is_unavailable(answer: &Answer) -> bool {
    answer.status == 503
        && ["storage_unavailable", "rights_changed"].contains(&answer.code())
        && !answer.header("retry-after").is_empty()
}
