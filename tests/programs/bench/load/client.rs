//! A client: it sends one request at a time, to the processes of its arm in turns.

use std::time::Duration;

use bytes::Bytes;
use postonce_tests::wait::{self, Stopwatch};
use serde::Deserialize;

use super::connection::Connection;
use super::{Traffic, Way};

/// Pause before a transaction that is not final is read again.
const STATUS_INTERVAL: Duration = Duration::from_millis(10);
/// Longest time from an answer without a final status to the final status.
const FINAL_TIME_MAX: Duration = Duration::from_secs(120);

/// A client with a connection to each process that serves the API.
pub(super) struct Client {
    connections: Vec<Connection>,
    /// The index of the connection of the next request.
    next: usize,
}

/// The part of a transaction that a client reads.
#[derive(Deserialize)]
struct Transaction<'a> {
    status: &'a str,
}

impl Client {
    /// Connects. Clients with consecutive numbers start with different processes.
    ///
    /// # Panics
    /// If the arm does not listen: then there is nothing to measure.
    pub(super) async fn connect(addresses: &[String], number: usize) -> Self {
        let mut connections = Vec::new();
        for address in addresses {
            connections.push(Connection::open(address).await);
        }
        Self { next: number.checked_rem(connections.len()).unwrap_or(0), connections }
    }

    /// Sends the request with that number. Returns the HTTP status of the answer; if the request waits, the answer
    /// that shows the posting.
    ///
    /// # Errors
    /// There is no answer, the transaction was not posted, or it was not final in time.
    pub(super) async fn submit(&mut self, traffic: &Traffic, number: u64) -> Result<u16, String> {
        // A generator in this process: the system's costs processor time that the measured processes need.
        let id = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        let count = self.connections.len();
        let connection = self.connections.get_mut(self.next).expect("an arm has an address");
        self.next = self.next.saturating_add(1).checked_rem(count).unwrap_or(0);
        let (mut status, mut body) = connection.send(traffic.request(number, id)).await?;
        if traffic.way() == Way::Queued {
            return Ok(status);
        }
        let watch = Stopwatch::start();
        while [200, 202].contains(&status) {
            if is_posted(&body)? {
                return Ok(200);
            }
            if watch.elapsed() > FINAL_TIME_MAX {
                return Err(format!("transaction {id} is not final"));
            }
            wait::pass(STATUS_INTERVAL).await;
            (status, body) = connection.send(traffic.status_request(number, id)).await?;
        }
        Ok(status)
    }
}

/// Whether the transaction in a body is posted; false if it is not final. A rejected deposit is an error, because
/// nothing was posted.
fn is_posted(body: &Bytes) -> Result<bool, String> {
    match serde_json::from_slice(body) {
        Ok(Transaction { status: "posted" }) => Ok(true),
        Ok(Transaction { status: "accepted" }) => Ok(false),
        Ok(Transaction { status }) => Err(format!("a deposit is {status}")),
        Err(error) => Err(format!("an answer without a transaction: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use postonce_tests::scenario::fresh_account;

    use crate::bench::load::{Outcome, Target, Until, closed};

    use super::*;

    const ACCEPTED: &str = r#"{"status":"accepted","amount":"1.00"}"#;
    const POSTED: &str = r#"{"status":"posted","amount":"1.00"}"#;
    const REJECTED: &str = r#"{"status":"rejected","amount":"1.00"}"#;

    /// Serves one connection with these answers. Returns the address, and the method, the last part of the path and
    /// the preference of each request.
    fn serve(answers: &'static [(u16, &str)]) -> (String, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut requests = Vec::new();
            for (status, answer) in answers {
                let mut lines = reader.by_ref().lines().map(Result::unwrap);
                let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
                let header = |name: &str| head.iter().find_map(|line| line.strip_prefix(name));
                let length = header("content-length: ").map_or(0, |length| length.parse().unwrap());
                reader.by_ref().take(length).read_to_end(&mut Vec::new()).unwrap();
                let line: Vec<&str> = head[0].split(' ').collect();
                let id = header("idempotency-key: ").unwrap_or_default().trim_matches('"').to_owned();
                let path = line[1].rsplit_once("/accounts/").unwrap().1.split_once('/').unwrap().1;
                requests.push(format!("{} {path} {id} {}", line[0], header("prefer: ").unwrap_or_default()));
                let length = answer.len();
                write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{answer}").unwrap();
            }
            requests
        });
        (address, served)
    }

    async fn deposits(addresses: &[&str], way: Way, count: u64) -> Outcome {
        let target = Target::of(addresses.iter().copied(), "key");
        closed(Traffic::deposits(&target, &[fresh_account()], way), 1, Until::Sent(count)).await
    }

    #[tokio::test]
    async fn a_waiting_client_reads_the_transaction_until_it_is_posted() {
        let (address, served) = serve(&[(200, POSTED), (202, ACCEPTED), (200, ACCEPTED), (200, POSTED)]);
        let outcome = deposits(&[&address], Way::Waiting, 2).await.all(&[200]);
        assert_eq!(outcome.answered(), 2);
        let requests = served.join().unwrap();
        for request in &requests[..2] {
            assert!(request.starts_with("POST deposits ") && request.ends_with(" wait=30"), "{request}");
        }
        let id = requests[1].split(' ').nth(2).unwrap();
        assert_eq!(requests[2], format!("GET transactions/{id}  "));
        assert_eq!(requests[3], requests[2]);
    }

    #[tokio::test]
    async fn a_rejected_deposit_is_not_counted() {
        let (address, served) = serve(&[(200, REJECTED)]);
        let outcome = deposits(&[&address], Way::Waiting, 1).await;
        assert_eq!((outcome.answered(), outcome.broken.0), (0, 1));
        assert_eq!(served.join().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_client_uses_the_processes_in_turns() {
        let (one, two) = (serve(&[(202, ACCEPTED), (202, ACCEPTED)]), serve(&[(202, ACCEPTED)]));
        let outcome = deposits(&[&one.0, &two.0], Way::Queued, 3).await.all(&[202]);
        assert_eq!(outcome.answered(), 3);
        let requests = [one.1.join().unwrap(), two.1.join().unwrap()];
        assert_eq!(requests.each_ref().map(Vec::len), [2, 1]);
        // A client whose requests do not wait does not ask to wait, and reads no transaction.
        assert!(
            requests.iter().flatten().all(|it| it.starts_with("POST") && it.ends_with(' ')),
            "{requests:?}"
        );
    }
}
