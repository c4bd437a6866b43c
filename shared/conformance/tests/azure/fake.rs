//! A small storage service that fails on request: it answers 500 before or after it executes a request,
//! loses responses, answers batches with no response in them, and executes a request late. It has one table
//! with preconditions and batches, and one message on a queue.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request is not executed; this status is the response, without an error code.
    Refuse(u16),
    /// The request is executed; this status is the response.
    ApplyAndAnswer(u16),
    /// The request is not executed; the connection ends.
    Cut,
    /// The request is executed; the response is lost.
    ApplyAndCut,
    /// The connection ends; the request is executed right before the next write.
    CutAndApplyLate,
    /// The request is not executed; a batch is answered by 202 with no response in it.
    Empty,
    /// The request is executed; a batch is answered by 202 with no response in it.
    ApplyAndEmpty,
}

/// How a failed batch names the row that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hints {
    /// As Azure does.
    #[default]
    True,
    /// Always the second row.
    Wrong,
    /// No row.
    None,
}

#[derive(Default)]
struct State {
    hints: Hints,
    rows: BTreeMap<String, (u32, Map<String, Value>)>,
    etags: u32,
    has_message: bool,
    /// The kinds of requests that fail next, and how.
    faults: VecDeque<(&'static str, Fault)>,
    late: Option<Request>,
    requests: Vec<&'static str>,
    /// The addresses, with their queries, and the bodies of the requests.
    targets: Vec<(String, String)>,
    damages_etags: bool,
    /// The kind of requests that are never answered.
    hanging: Option<&'static str>,
    /// The date in all responses, if it was set.
    date: Option<String>,
}

/// The service. It ends with the runtime of its test.
#[derive(Clone)]
pub struct FakeStorage {
    state: Arc<Mutex<State>>,
    port: u16,
}

#[derive(Debug, Clone)]
struct Request {
    method: String,
    target: String,
    path: String,
    if_match: Option<String>,
    body: String,
}

struct Answer {
    status: u16,
    code: Option<&'static str>,
    etag: Option<String>,
    body: String,
}

impl Answer {
    fn new(status: u16) -> Self {
        Self { status, code: None, etag: None, body: String::new() }
    }

    fn refusal(status: u16, code: &'static str) -> Self {
        Self { code: Some(code), ..Self::new(status) }
    }

    /// The table service writes its code into the body.
    fn table_refusal(status: u16, code: &str) -> Self {
        Self { body: format!(r#"{{"odata.error":{{"code":"{code}"}}}}"#), ..Self::new(status) }
    }
}

impl FakeStorage {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let fake = Self { state: Arc::default(), port };
        let server = fake.clone();
        drop(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(tokio::spawn(server.clone().serve(stream)));
            }
        }));
        fake
    }

    pub fn connection_string(&self) -> String {
        let url = format!("http://127.0.0.1:{}/bank", self.port);
        format!(
            "AccountName=bank;AccountKey=a2V5;BlobEndpoint={url};QueueEndpoint={url};TableEndpoint={url}/"
        )
    }

    /// Lets the next requests of that kind fail, one by one, in this order.
    pub fn fail(&self, kind: &'static str, faults: &[Fault]) {
        self.state.lock().faults.extend(faults.iter().map(|fault| (kind, *fault)));
    }

    /// The kinds of the requests since the last call.
    pub fn requests(&self) -> Vec<&'static str> {
        assert!(self.state.lock().faults.is_empty(), "faults that no request met");
        std::mem::take(&mut self.state.lock().requests)
    }

    /// The addresses and bodies of the requests since the last call.
    pub fn targets(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.state.lock().targets)
    }

    /// From now on every ETag contains a wildcard.
    pub fn damage_etags(&self) {
        self.state.lock().damages_etags = true;
    }

    /// Sets how failed batches are answered.
    pub fn hint(&self, hints: Hints) {
        self.state.lock().hints = hints;
    }

    /// Removes the rows whose names end like this, as an operator might. Returns their number.
    pub fn remove(&self, end: &str) -> usize {
        let mut state = self.state.lock();
        let before = state.rows.len();
        state.rows.retain(|name, _| !name.ends_with(end));
        before.saturating_sub(state.rows.len())
    }

    /// Sets the date of all responses.
    pub fn set_date(&self, date: &str) {
        self.state.lock().date = Some(date.to_owned());
    }

    /// From now on requests of that kind are not answered.
    pub fn hang(&self, kind: &'static str) {
        self.state.lock().hanging = Some(kind);
    }

    /// Waits until this many requests of a kind were received.
    pub async fn until_received(&self, kind: &'static str, count: usize) {
        let received = || self.state.lock().requests.iter().filter(|one| **one == kind).count() >= count;
        let mut interval = tokio::time::interval(std::time::Duration::from_millis(5));
        while !received() {
            interval.tick().await;
        }
    }

    pub fn put_message(&self) {
        self.state.lock().has_message = true;
    }

    async fn serve(self, mut stream: TcpStream) {
        while let Some(request) = read(&mut stream).await {
            if self.state.lock().hangs(&request) {
                std::future::pending::<()>().await;
            }
            let Some(mut answer) = self.state.lock().answer(&request) else { return };
            if self.state.lock().damages_etags {
                let damaged = |text: &str| text.replace("datetime'", "datetime'*");
                answer.etag = answer.etag.as_deref().map(damaged);
                answer.body = damaged(&answer.body);
            }
            let date = self.state.lock().date.clone();
            let date = date.as_deref().unwrap_or("Sat, 21 Nov 2026 08:00:00 GMT");
            if stream.write_all(write(&answer, date).as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

impl State {
    fn hangs(&mut self, request: &Request) -> bool {
        let kind = kind(request);
        let hangs = self.hanging == Some(kind);
        if hangs {
            self.requests.push(kind);
        }
        hangs
    }

    /// `None` cuts the connection.
    fn answer(&mut self, request: &Request) -> Option<Answer> {
        let kind = kind(request);
        self.requests.push(kind);
        self.targets.push((request.target.clone(), request.body.clone()));
        if kind != "get"
            && let Some(late) = self.late.take()
        {
            self.execute(&late);
        }
        let failing = self.faults.iter().position(|(failing, _)| *failing == kind);
        let Some((_, fault)) = failing.and_then(|position| self.faults.remove(position)) else {
            return Some(self.execute(request));
        };
        match fault {
            Fault::Refuse(status) => Some(Answer::new(status)),
            Fault::Cut => None,
            Fault::Empty => Some(Answer::new(202)),
            Fault::CutAndApplyLate => {
                self.late = Some(request.clone());
                None
            }
            Fault::ApplyAndAnswer(status) => {
                self.execute(request);
                Some(Answer::new(status))
            }
            Fault::ApplyAndCut => {
                self.execute(request);
                None
            }
            Fault::ApplyAndEmpty => {
                self.execute(request);
                Some(Answer::new(202))
            }
        }
    }

    fn execute(&mut self, request: &Request) -> Answer {
        match kind(request) {
            "batch" => self.execute_batch(&request.body),
            "send" => Answer {
                body: "<QueueMessagesList><QueueMessage><MessageId>m</MessageId><InsertionTime>Sat, 21 Nov 2026 08:00:00 GMT</InsertionTime><ExpirationTime>Sat, 21 Nov 2026 08:00:00 GMT</ExpirationTime><PopReceipt>r</PopReceipt><TimeNextVisible>Sat, 21 Nov 2026 08:00:00 GMT</TimeNextVisible></QueueMessage></QueueMessagesList>".to_owned(),
                ..Answer::new(201)
            },
            "receive" => Answer { body: "<QueueMessagesList></QueueMessagesList>".to_owned(), ..Answer::new(200) },
            "delete" if std::mem::take(&mut self.has_message) => Answer::new(204),
            "delete" => Answer::refusal(404, "MessageNotFound"),
            // This response is never read: the only test of it loses it.
            "update" => Answer::new(204),
            "query" => self.all_pages(),
            _ => self.execute_on_row(request),
        }
    }

    /// All journal pages: no test has two accounts.
    fn all_pages(&self) -> Answer {
        let pages = self.rows.iter().filter(|(name, _)| name.contains("/jrnl-"));
        let pages = pages.map(|(_, (etag, row))| {
            let mut row = row.clone();
            row.insert("odata.etag".to_owned(), Value::from(etag_of(*etag)));
            Value::Object(row)
        });
        let body = serde_json::json!({ "odata.metadata": "m", "value": pages.collect::<Vec<_>>() });
        Answer { body: body.to_string(), ..Answer::new(200) }
    }

    fn execute_on_row(&mut self, request: &Request) -> Answer {
        let body: Map<String, Value> = serde_json::from_str(&request.body).unwrap_or_default();
        let name = match request.path.split_once("(PartitionKey='") {
            Some((_, keys)) => keys.trim_end_matches("')").replace("',RowKey='", "/"),
            None => {
                format!("{}/{}", body["PartitionKey"].as_str().unwrap(), body["RowKey"].as_str().unwrap())
            }
        };
        self.etags = self.etags.checked_add(1).unwrap();
        let etag = self.etags;
        match (request.method.as_str(), self.rows.get_mut(&name)) {
            ("POST", Some(_)) => Answer::table_refusal(409, "EntityAlreadyExists"),
            ("POST", None) => {
                self.rows.insert(name, (etag, body));
                Answer { etag: Some(etag_of(etag)), ..Answer::new(204) }
            }
            (_, None) => Answer::table_refusal(404, "ResourceNotFound"),
            ("MERGE", Some((current, row))) => {
                if request.if_match != Some(etag_of(*current)) {
                    return Answer::table_refusal(412, "UpdateConditionNotSatisfied");
                }
                *current = etag;
                row.extend(body);
                Answer { etag: Some(etag_of(etag)), ..Answer::new(204) }
            }
            (_, Some((current, row))) => {
                let mut found = row.clone();
                found.insert("odata.metadata".to_owned(), Value::from("m"));
                let body = Value::Object(found).to_string();
                Answer { etag: Some(etag_of(*current)), body, ..Answer::new(200) }
            }
        }
    }

    /// Executes all operations or none; a failed one is the only response, as in Azure.
    fn execute_batch(&mut self, body: &str) -> Answer {
        // As Azurite, which takes them for ends of lines.
        if body.contains(['\u{2028}', '\u{2029}']) {
            return Answer::new(500);
        }
        let before = self.rows.clone();
        let mut responses = String::new();
        let parts = body.split("--changeset_").filter(|part| part.contains(" HTTP/1.1\n"));
        for (row, part) in parts.enumerate() {
            let request = parse_part(part);
            let answer = self.execute_on_row(&request);
            let etag = answer.etag.map(|etag| format!("ETag: {etag}\r\n")).unwrap_or_default();
            let response =
                format!("\n--changesetresponse_1\r\n\r\nHTTP/1.1 {} X\r\n{etag}\r\n", answer.status);
            if answer.status >= 400 {
                self.rows = before;
                let hint = match self.hints {
                    Hints::True => row.to_string(),
                    Hints::Wrong => "1".to_owned(),
                    Hints::None => return Answer { body: response, ..Answer::new(202) },
                };
                let text = format!(r#"{hint}:The specified entity already exists.\nRequestId:0\nTime:1"#);
                let error = format!(
                    r#"{{"odata.error":{{"code":"X","message":{{"lang":"en-US","value":"{text}"}}}}}}"#
                );
                return Answer { body: format!("{response}{error}\r\n"), ..Answer::new(202) };
            }
            responses.push_str(&response);
        }
        Answer { body: responses, ..Answer::new(202) }
    }
}

fn etag_of(number: u32) -> String {
    format!("W/\"datetime'{number}'\"")
}

fn kind(request: &Request) -> &'static str {
    let of_messages = request.path.contains("/messages");
    match request.method.as_str() {
        "POST" if of_messages => "send",
        "GET" if of_messages => "receive",
        "PUT" if of_messages => "update",
        "POST" if request.path.ends_with("$batch") => "batch",
        "POST" => "insert",
        "GET" if request.path.ends_with("()") => "query",
        "GET" => "get",
        "MERGE" => "merge",
        _ => "delete",
    }
}

fn parse_part(part: &str) -> Request {
    let (head, body) = part.split_once(" HTTP/1.1\n").unwrap();
    let (method, url) = head.rsplit('\n').next().unwrap().split_once(' ').unwrap();
    let (headers, body) = body.split_once("\n\n").unwrap();
    let if_match = headers.lines().find_map(|line| line.strip_prefix("if-match: "));
    Request {
        method: method.to_owned(),
        target: url.to_owned(),
        path: url.to_owned(),
        if_match: if_match.map(str::to_owned),
        body: body.trim().to_owned(),
    }
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = vec![0; 64 * 1024];
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(buffer.get(..count)?);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let header = |name: &str| {
            head.lines().find_map(|line| {
                let (found, value) = line.split_once(": ")?;
                found.eq_ignore_ascii_case(name).then(|| value.to_owned())
            })
        };
        let length = header("content-length").map_or(0, |length| length.parse().unwrap());
        if body.len() < length {
            continue;
        }
        assert_eq!(body.len(), length, "the length of the body is that of its header");
        let mut text = head.split(' ');
        let (method, target) = (text.next()?.to_owned(), text.next()?.to_owned());
        return Some(Request {
            method,
            path: target.split('?').next()?.to_owned(),
            target,
            if_match: header("if-match"),
            body: body.to_owned(),
        });
    }
}

fn write(answer: &Answer, date: &str) -> String {
    let Answer { status, code, etag, body } = answer;
    let code = code.map(|code| format!("x-ms-error-code: {code}\r\n")).unwrap_or_default();
    let etag = etag.as_ref().map(|etag| format!("etag: {etag}\r\n")).unwrap_or_default();
    format!(
        "HTTP/1.1 {status} X\r\nserver: fake\r\nx-ms-version: 2022-11-02\r\n\
         x-ms-request-id: 00000000-0000-0000-0000-000000000000\r\n\
         date: {date}\r\npreference-applied: return-no-content\r\n\
         {code}{etag}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}
