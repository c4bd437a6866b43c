//! The way to the bank while its processes come and go: a request is sent to whichever web process is
//! there, again and again, until there is an answer.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use reqwest::RequestBuilder;

use super::fleet::Fleet;
use super::tally::Tally;
use crate::client::{Answer, Client};
use crate::wait::{self, Stopwatch};

/// Longest wait for one answer; a process that stands still gives none.
const ONE_ANSWER_TIME_MAX: Duration = Duration::from_secs(8);
/// Longest time until a request has an answer, through whomever.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(180);
/// Pause before a request is sent again, in milliseconds.
const AGAIN_MS: std::ops::Range<u64> = 10..250;

/// The way to the bank, with one key.
pub struct Door<'a> {
    client: Client,
    fleet: &'a Fleet,
    tally: &'a Tally,
}

impl<'a> Door<'a> {
    /// The way to the web processes of a fleet.
    pub fn new(key: &str, fleet: &'a Fleet, tally: &'a Tally) -> Self {
        Self { client: Client::new("", key), fleet, tally }
    }

    /// Sends a request, each time to any web process, until there is an answer. Any other than the
    /// expected ones is a finding, and so is none for very long.
    pub async fn insist(
        &self,
        rng: &mut StdRng,
        what: &str,
        expected: &[u16],
        make: impl Fn(&Client) -> RequestBuilder,
    ) -> Option<Answer> {
        let since = Stopwatch::start();
        let mut last = "no web process was there".to_owned();
        while since.elapsed() < ANSWER_TIME_MAX {
            let addresses = self.fleet.addresses();
            let address = addresses.get(rng.random_range(0..addresses.len().max(1)));
            if let Some(client) = address.map(|address| self.client.at(address)) {
                match client.try_send(make(&client).timeout(ONE_ANSWER_TIME_MAX)).await {
                    Ok(answer) if expected.contains(&answer.status) => return Some(answer),
                    Ok(answer) if is_unavailable(&answer) => {
                        self.tally.count(|counts| counts.unavailable = counts.unavailable.saturating_add(1));
                        last = format!("{answer:?}");
                    }
                    Ok(answer) => {
                        self.tally.find(format!("{what} was answered with {answer:?}"));
                        return None;
                    }
                    Err(error) => {
                        self.tally.count(|counts| counts.unanswered = counts.unanswered.saturating_add(1));
                        last = error.to_string();
                    }
                }
            }
            wait::pass(Duration::from_millis(rng.random_range(AGAIN_MS))).await;
        }
        self.tally.find(format!("{what}: no answer within {ANSWER_TIME_MAX:?}; last: {last}"));
        None
    }
}

/// As the contract has it: later, with the same id.
fn is_unavailable(answer: &Answer) -> bool {
    answer.status == 503 && answer.code() == "storage_unavailable" && !answer.header("retry-after").is_empty()
}
