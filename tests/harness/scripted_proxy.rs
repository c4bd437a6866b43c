//! A proxy in front of a web process that handles each connection according to a script. It tests clients that retry, by
//! simulating the network and gateways. A connection carries one request, and every request is recorded.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_web::error::{ApiError, Code, PROBLEM_JSON};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::proxy::{listen, runtime};
use crate::wait::Stopwatch;

/// Maximum size of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// How one connection is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Closes it before a request is read.
    Break,
    /// Forwards the request, and closes the connection instead of returning the response.
    LoseAnswer,
    /// Forwards the request, and closes the connection before the last bytes of the response.
    CutAnswer,
    /// Forwards the request, and never sends the last bytes of the response, so that the client must give up.
    StallAnswer,
    /// Responds without the bank, with an error of the bank, and `Retry-After` in seconds.
    Refuse(Code, Option<u64>),
    /// Responds as a gateway in front of the bank, with an error page of the gateway.
    Gateway(u16),
    /// Forwards the request, and returns the response.
    Forward,
}

/// A request as the proxy received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRequest {
    /// Time since the start of the proxy when its connection was accepted.
    pub at: Duration,
    /// The HTTP method.
    pub method: String,
    /// The request line and the header lines.
    head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl SentRequest {
    /// Returns the value of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut values =
            lines.filter(|(sent, _)| sent.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
        values.next_back().unwrap_or_default()
    }
}

/// A running proxy. It stops when it is dropped.
#[derive(Debug)]
pub struct ScriptedProxy {
    port: u16,
    script: Arc<Script>,
    listener: JoinHandle<()>,
}

/// State that the connections share.
#[derive(Debug)]
struct Script {
    target: SocketAddr,
    steps: Mutex<VecDeque<Step>>,
    /// The step of all later connections.
    then: Step,
    requests: Mutex<Vec<SentRequest>>,
    clock: Stopwatch,
}

impl ScriptedProxy {
    /// Starts a proxy in front of a web process, such as `http://127.0.0.1:40123`. Each connection takes one step. Connections
    /// after the last step take `then`.
    pub fn before(address: &str, steps: impl IntoIterator<Item = Step>, then: Step) -> Self {
        let target = address.trim_start_matches("http://").parse().expect("an address on loopback");
        let (listener, address) = listen();
        let steps = Mutex::new(steps.into_iter().collect());
        let (requests, clock) = (Mutex::default(), Stopwatch::start());
        let script = Arc::new(Script { target, steps, then, requests, clock });
        let listener = runtime().spawn(serve(listener, Arc::clone(&script)));
        Self { port: address.port(), script, listener }
    }

    /// Returns the address for the client.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the requests so far, in the order of their arrival.
    pub fn requests(&self) -> Vec<SentRequest> {
        self.script.requests.lock().clone()
    }
}

impl Drop for ScriptedProxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn serve(listener: TcpListener, script: Arc<Script>) {
    // A loopback listener fails only when the process has no file descriptors left, which makes the test fail.
    while let Ok((client, _)) = listener.accept().await {
        let script = Arc::clone(&script);
        drop(runtime().spawn(async move { script.handle(client).await }));
    }
}

impl Script {
    /// Handles a connection. An error means that the client or the bank has closed its side, which is not an error of the proxy.
    async fn handle(&self, mut client: TcpStream) -> std::io::Result<()> {
        let at = self.clock.elapsed();
        if self.steps.lock().pop_front_if(|step| *step == Step::Break).is_some() {
            return Ok(());
        }
        let Some((head, body)) = read_request(&mut client).await? else { return Ok(()) };
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        // Other banks may ring at addresses of ended processes, and this port may be one of them.
        if !path.starts_with("/v1/users/") {
            return Ok(());
        }
        let step = self.steps.lock().pop_front().unwrap_or(self.then);
        let request = SentRequest { at, method: method.to_owned(), head: head.clone(), body: body.clone() };
        self.requests.lock().push(request);
        let answer = match step {
            Step::Refuse(code, retry_after_s) => refusal(code, retry_after_s),
            Step::Gateway(status) => answer(status, "", "text/html", "<html>not from the bank</html>"),
            Step::Break | Step::LoseAnswer | Step::CutAnswer | Step::StallAnswer | Step::Forward => {
                self.forward(&head, &body).await?
            }
        };
        let all_but_last = answer.len().saturating_sub(20);
        let returned: &[u8] = match step {
            Step::CutAnswer | Step::StallAnswer => answer.get(..all_but_last).unwrap_or_default(),
            Step::LoseAnswer => &[],
            Step::Forward | Step::Break | Step::Refuse(..) | Step::Gateway(_) => &answer,
        };
        client.write_all(returned).await?;
        if step == Step::StallAnswer {
            // Returns when the client closes its side.
            tokio::io::copy(&mut client, &mut tokio::io::sink()).await?;
        }
        Ok(())
    }

    /// Sends a request to the bank on a new connection. Returns the whole response.
    async fn forward(&self, head: &str, body: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut bank = TcpStream::connect(self.target).await?;
        let is_kept = |line: &&str| !line.to_ascii_lowercase().starts_with("connection:");
        let mut lines: Vec<&str> = head.lines().filter(is_kept).collect();
        lines.insert(1, "Connection: close");
        bank.write_all(lines.join("\r\n").as_bytes()).await?;
        bank.write_all(b"\r\n\r\n").await?;
        bank.write_all(body).await?;
        let mut answer = Vec::new();
        bank.read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

/// Reads a request: its head without the empty line, and its body. Returns `None` if the client closes the connection first.
async fn read_request(client: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut received = Vec::new();
    loop {
        if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            let (head, rest) = received.split_at(end);
            let (head, body) = (String::from_utf8_lossy(head), rest.get(4..).unwrap_or_default());
            let length = head.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                return Ok(Some((head.into_owned(), body.to_vec())));
            }
        }
        let mut some = vec![0; 4096];
        let count = client.read(&mut some).await?;
        received.extend_from_slice(some.get(..count).unwrap_or_default());
        if count == 0 || received.len() > REQUEST_BYTES_MAX {
            return Ok(None);
        }
    }
}

/// Returns a response with an error of the bank.
fn refusal(code: Code, retry_after_s: Option<u64>) -> Vec<u8> {
    let problem = ApiError::new(code, "Scripted.").problem();
    let body = serde_json::to_string(&problem).expect("a problem is JSON");
    let retry_after = retry_after_s.map(|seconds| format!("Retry-After: {seconds}\r\n")).unwrap_or_default();
    answer(problem.status, &retry_after, PROBLEM_JSON, &body)
}

fn answer(status: u16, header: &str, media_type: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} Scripted\r\n{header}Content-Type: {media_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
