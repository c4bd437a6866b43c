//! A fake storage service below the adapter for Azure, which fails on request. It fails before or after executing a request,
//! loses responses, responds to batches without the inner responses, and executes requests late. Its rows are in
//! [`Tables`], and it has one message on a queue.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{DATE, ETAG, HeaderValue};
use parking_lot::Mutex;
use postonce_shared::adapters::azure::wire::{Wire, WireFault, WireRequest, WireResponse};
use postonce_shared::domain::time::Timestamp;

use crate::simulation::azure::tables::Tables;
use crate::simulation::azure::wire::{answered, proxied};
use crate::storage_proxy::Service;
use crate::storage_proxy::error_responses::{ProxiedResponse, StorageError, plain_headers};
use crate::storage_proxy::request::ProxiedRequest;

/// Tables of a store with the prefix `test`. They exist from the start, so a test sees only requests of the tested operation.
const TABLES: [&str; 8] =
    ["ledger", "accounts", "deadletters", "state", "apikeys", "partners", "numbers", "roster"];

const SENT: &str = "<QueueMessagesList><QueueMessage><MessageId>m</MessageId><InsertionTime>Sat, 21 Nov 2026 08:00:00 GMT</InsertionTime><ExpirationTime>Sat, 21 Nov 2026 08:00:00 GMT</ExpirationTime><PopReceipt>r</PopReceipt><TimeNextVisible>Sat, 21 Nov 2026 08:00:00 GMT</TimeNextVisible></QueueMessage></QueueMessagesList>";

const NO_MESSAGE: StorageError = StorageError {
    status: StatusCode::NOT_FOUND,
    code: "MessageNotFound",
    message: "The specified message does not exist.",
};

/// Failure of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Does not execute the request. Responds with this status and no error code.
    Refuse(u16),
    /// Executes the request. Responds with this status.
    ApplyAndAnswer(u16),
    /// Does not execute the request. Closes the connection.
    Cut,
    /// Executes the request. Loses the response.
    ApplyAndCut,
    /// Closes the connection. Executes the request right before the next write.
    CutAndApplyLate,
    /// Does not execute the batch. Responds with 202 without an inner response.
    Empty,
    /// Executes the batch. Responds with 202 without an inner response.
    ApplyAndEmpty,
}

/// How the response to a failed batch names the row that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hints {
    /// Correctly, as Azure does.
    #[default]
    True,
    /// Always the second row.
    Wrong,
    /// Not at all: the error is omitted.
    None,
}

#[derive(Default)]
struct State {
    tables: Tables,
    hints: Hints,
    has_message: bool,
    /// The next failures, each for a kind of request.
    faults: VecDeque<(&'static str, Fault)>,
    late: Option<ProxiedRequest>,
    requests: Vec<&'static str>,
    /// Addresses with queries, and bodies, of the requests.
    targets: Vec<(String, String)>,
    damages_etags: bool,
    /// The kind of requests that get no response.
    hanging: Option<&'static str>,
    /// The date in all responses, if it is set.
    date: Option<String>,
}

/// The fake storage service.
#[derive(Clone, Default)]
pub struct FakeStorage {
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for FakeStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeStorage").finish_non_exhaustive()
    }
}

impl FakeStorage {
    /// Starts a service at `http://127.0.0.1/bank`, with empty tables of the prefix `test`.
    pub fn start() -> Self {
        let fake = Self::default();
        TABLES.iter().for_each(|name| fake.state.lock().tables.add(format!("/bank/test{name}")));
        fake
    }

    /// Lets the next requests of this kind fail, one by one, in this order.
    pub fn fail(&self, kind: &'static str, faults: &[Fault]) {
        self.state.lock().faults.extend(faults.iter().map(|fault| (kind, *fault)));
    }

    /// Returns the kinds of the requests since the last call.
    pub fn requests(&self) -> Vec<&'static str> {
        assert!(self.state.lock().faults.is_empty(), "faults that no request met");
        std::mem::take(&mut self.state.lock().requests)
    }

    /// Returns the addresses and bodies of the requests since the last call.
    pub fn targets(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.state.lock().targets)
    }

    /// From now on, every ETag contains a wildcard.
    pub fn damage_etags(&self) {
        self.state.lock().damages_etags = true;
    }

    /// Sets how responses to failed batches name the row.
    pub fn hint(&self, hints: Hints) {
        self.state.lock().hints = hints;
    }

    /// Removes the rows whose names have this suffix, as an operator might. Returns their number.
    pub fn remove(&self, end: &str) -> usize {
        self.state.lock().tables.remove_ending(end)
    }

    /// Sets the date of all responses.
    pub fn set_date(&self, date: &str) {
        self.state.lock().date = Some(date.to_owned());
    }

    /// From now on, requests of this kind get no response.
    pub fn hang(&self, kind: &'static str) {
        self.state.lock().hanging = Some(kind);
    }

    /// Waits until this many requests of a kind were received.
    pub async fn until_received(&self, kind: &'static str, count: usize) {
        let received = || self.state.lock().requests.iter().filter(|one| **one == kind).count() >= count;
        let mut interval = tokio::time::interval(Duration::from_millis(5));
        while !received() {
            interval.tick().await;
        }
    }

    /// Adds a message, which can be deleted once.
    pub fn put_message(&self) {
        self.state.lock().has_message = true;
    }
}

#[async_trait]
impl Wire for FakeStorage {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, WireFault> {
        let request = proxied(request);
        let is_hanging = self.state.lock().receive(&request);
        if is_hanging {
            std::future::pending::<()>().await;
        }
        let answer = self.state.lock().answer(&request);
        answer.map(answered).ok_or_else(|| WireFault::Unanswered("the connection ended".into()))
    }
}

impl State {
    /// Records a request. Returns whether it gets no response.
    fn receive(&mut self, request: &ProxiedRequest) -> bool {
        let kind = kind(request);
        self.requests.push(kind);
        self.targets.push((request.target.to_string(), String::from_utf8_lossy(&request.body).into_owned()));
        self.hanging == Some(kind)
    }

    /// Executes a request and returns the response. `None` closes the connection.
    fn answer(&mut self, request: &ProxiedRequest) -> Option<ProxiedResponse> {
        let kind = kind(request);
        if kind != "get"
            && let Some(late) = self.late.take()
        {
            self.execute(&late);
        }
        let failing = self.faults.iter().position(|(failing, _)| *failing == kind);
        let fault = failing.and_then(|position| self.faults.remove(position)).map(|(_, fault)| fault);
        let executed = match fault {
            None | Some(Fault::ApplyAndAnswer(_) | Fault::ApplyAndCut | Fault::ApplyAndEmpty) => {
                Some(self.execute(request))
            }
            Some(Fault::CutAndApplyLate) => {
                self.late = Some(request.clone());
                None
            }
            Some(Fault::Refuse(_) | Fault::Cut | Fault::Empty) => None,
        };
        let mut answer = match fault {
            None => executed?,
            Some(Fault::Refuse(status) | Fault::ApplyAndAnswer(status)) => plain(status, ""),
            Some(Fault::Empty | Fault::ApplyAndEmpty) => plain(202, ""),
            Some(Fault::Cut | Fault::ApplyAndCut | Fault::CutAndApplyLate) => return None,
        };
        if self.damages_etags {
            let damaged = |text: &str| text.replace("datetime'", "datetime'*");
            replace_body(&mut answer, damaged);
            if let Some(etag) = answer.headers.get_mut(ETAG) {
                *etag = header(&damaged(etag.to_str().expect("an ETag of the tables")));
            }
        }
        answer.headers.insert(DATE, header(self.date.as_deref().unwrap_or("Sat, 21 Nov 2026 08:00:00 GMT")));
        Some(answer)
    }

    fn execute(&mut self, request: &ProxiedRequest) -> ProxiedResponse {
        match kind(request) {
            "send" => plain(201, SENT),
            "receive" => plain(200, "<QueueMessagesList></QueueMessagesList>"),
            "delete" if std::mem::take(&mut self.has_message) => plain(204, ""),
            "delete" => NO_MESSAGE.response(Service::Queue),
            // The only test of this request loses the response.
            "update" => plain(204, ""),
            // Azurite also fails, because it treats these characters as line ends.
            "batch" if String::from_utf8_lossy(&request.body).contains(['\u{2028}', '\u{2029}']) => {
                plain(500, "")
            }
            _ => {
                let mut answer = self.tables.apply(request, Timestamp::from_unix_ms(0)).response;
                if request.is_batch() {
                    replace_body(&mut answer, |body| hinted(body, self.hints));
                }
                answer
            }
        }
    }
}

/// Replaces the row number at the start of the error message in the response to a failed batch.
fn hinted(body: &str, hints: Hints) -> String {
    let Some((head, error)) = body.split_once(r#"{"odata.error""#) else { return body.to_owned() };
    match hints {
        Hints::True => body.to_owned(),
        Hints::Wrong => {
            let (code, message) = error.split_once(r#""value":""#).expect("the error has a message");
            let (_, message) = message.split_once(':').expect("the message names a row");
            format!(r#"{head}{{"odata.error"{code}"value":"1:{message}"#)
        }
        Hints::None => head.to_owned(),
    }
}

fn kind(request: &ProxiedRequest) -> &'static str {
    let path = request.target.path();
    let of_messages = path.contains("/messages");
    match request.method.as_str() {
        "POST" if of_messages => "send",
        "GET" if of_messages => "receive",
        "PUT" if of_messages => "update",
        "POST" if request.is_batch() => "batch",
        "POST" => "insert",
        "GET" if path.ends_with("()") => "query",
        "GET" => "get",
        "MERGE" => "merge",
        _ => "delete",
    }
}

fn plain(status: u16, body: &'static str) -> ProxiedResponse {
    let status = StatusCode::from_u16(status).expect("a status");
    ProxiedResponse {
        status,
        headers: plain_headers("application/xml"),
        body: Bytes::from_static(body.as_bytes()),
    }
}

fn replace_body(answer: &mut ProxiedResponse, change: impl FnOnce(&str) -> String) {
    answer.body = change(&String::from_utf8_lossy(&answer.body)).into();
}

fn header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("dates and ETags are plain")
}
