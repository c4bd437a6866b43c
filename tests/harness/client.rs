//! A client of the HTTP API as a partner would write it: connections are reused, and every request can be repeated with the
//! same id.

use std::fmt;
use std::time::Duration;

use postonce_shared::testing::prelude::*;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::certificates::{Certified, trusting};
use crate::contracts::{self, OpenApi, ReceivedAnswer};
use crate::wait;

/// Maximum time of one request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);

/// A deposit or a withdrawal to submit.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// Deposit or withdrawal.
    pub kind: TransactionKind,
    /// The body of the request.
    pub body: Value,
}

impl Submission {
    /// Creates a deposit in euro.
    pub fn deposit(amount: &str) -> Self {
        Self::of(TransactionKind::Deposit, amount)
    }

    /// Creates a withdrawal in euro.
    pub fn withdrawal(amount: &str) -> Self {
        Self::of(TransactionKind::Withdrawal, amount)
    }

    fn of(kind: TransactionKind, amount: &str) -> Self {
        Self { kind, body: json!({"amount": amount, "currency": "EUR"}) }
    }

    /// Sets a member of the body.
    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        let members = self.body.as_object_mut().expect("the body is an object");
        drop(members.insert(member.to_owned(), value.into()));
        self
    }
}

/// A response of the API.
#[derive(Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as text.
    pub text: String,
    /// The body as JSON, or null if it is not JSON.
    pub body: Value,
}

impl Answer {
    /// Returns the response if it has this HTTP status.
    ///
    /// # Panics
    /// When it has another status.
    #[must_use]
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert!(self.status == status, "expected {status}, got {self:?}");
        self
    }

    /// Returns the string at a JSON pointer of the body; empty if it is missing.
    pub fn text_at(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the number at a JSON pointer of the body.
    #[track_caller]
    pub fn number_at(&self, pointer: &str) -> u64 {
        let found = self.body.pointer(pointer).and_then(Value::as_u64);
        found.unwrap_or_else(|| panic!("no number at {pointer} in {self:?}"))
    }

    /// Returns the status of the transaction in the body.
    pub fn transaction_status(&self) -> &str {
        self.text_at("/status")
    }

    /// Returns the code of a problem.
    pub fn code(&self) -> &str {
        self.text_at("/code")
    }

    /// Returns the value of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns whether the transaction in the body is final.
    pub fn is_final(&self) -> bool {
        ["posted", "rejected"].contains(&self.transaction_status())
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, headers, text, body: _ } = self;
        write!(f, "{status} {headers:?} {text}")
    }
}

/// A client of one web process with one API key.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    address: String,
    key: String,
    trust: Option<Trust>,
}

/// The authority that a TLS client trusts, and the client's own certificate.
#[derive(Debug, Clone)]
struct Trust {
    authority: String,
    own: Option<String>,
}

impl Trust {
    fn client(&self) -> reqwest::Client {
        let builder = trusting(builder(), &self.authority);
        let own =
            self.own.as_ref().map(|pem| reqwest::Identity::from_pem(pem.as_bytes()).expect("a certificate"));
        let builder = match own {
            Some(own) => builder.identity(own),
            None => builder,
        };
        builder.build().expect("a client over TLS")
    }
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder().timeout(REQUEST_TIME_MAX).tcp_nodelay(true).no_proxy()
}

fn plain() -> reqwest::Client {
    builder().build().expect("a client with default settings")
}

impl Client {
    /// Creates a client for the process at this address.
    pub fn new(address: &str, key: &str) -> Self {
        Self { http: plain(), address: address.to_owned(), key: key.to_owned(), trust: None }
    }

    /// Creates a TLS client that trusts a single authority, and may have its own certificate.
    pub fn trusting(address: &str, key: &str, authority: &str, own: Option<&Certified>) -> Self {
        let trust = Trust {
            authority: authority.to_owned(),
            own: own.map(|own| format!("{}\n{}", own.certificate, own.key)),
        };
        Self { http: trust.client(), address: address.to_owned(), key: key.to_owned(), trust: Some(trust) }
    }

    /// Returns a client with separate connections.
    #[must_use]
    pub fn on_own_connections(&self) -> Self {
        let http = self.trust.as_ref().map_or_else(plain, Trust::client);
        Self { http, ..self.clone() }
    }

    /// Returns a client of another process, over the same connections.
    #[must_use]
    pub fn at(&self, address: &str) -> Self {
        Self { address: address.to_owned(), ..self.clone() }
    }

    /// Returns a client with another key.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    /// Builds a request with the API key, which the caller can extend.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.address)).bearer_auth(&self.key)
    }

    /// Sends a request, and checks the response against the OpenAPI document.
    ///
    /// # Errors
    /// When there is no complete response, because the process does not run or was killed.
    ///
    /// # Panics
    /// When the response violates the OpenAPI document.
    pub async fn try_send(&self, request: RequestBuilder) -> Result<Answer, reqwest::Error> {
        let request = request.build()?;
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let response = self.http.execute(request).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await?;
        let given =
            ReceivedAnswer { method: method.as_str(), path: &path, status, headers: &headers, body: &bytes };
        let held = contracts::check(OpenApi::published(), &given);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        let answer = Answer { status, headers, text, body };
        if let Err(violations) = held {
            let violations = violations.join("\n- ");
            panic!("the answer to {method} {path} violates its contract:\n- {violations}\n{answer:?}");
        }
        Ok(answer)
    }

    /// Sends a request to a process that must respond.
    pub async fn send(&self, request: RequestBuilder) -> Answer {
        self.try_send(request).await.unwrap_or_else(|error| panic!("no answer: {error:?}"))
    }

    /// Sends a `GET` request.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// Sends a `GET` request, and repeats it while the storage is unavailable. Any status other than 200 fails the test.
    async fn read(&self, request: RequestBuilder) -> Answer {
        let (answer, _) = Self::until_available("the storage answers", async || {
            self.send(request.try_clone().expect("a request without a body can be repeated")).await
        })
        .await;
        answer.expect(200)
    }

    /// Repeats a request while its status is 503. Returns the last response, and whether the request was repeated: a request that
    /// got 503 may have been executed, so its repetition may find it done.
    async fn until_available(what: &str, mut send: impl AsyncFnMut() -> Answer) -> (Answer, bool) {
        let mut repeated = false;
        let answer = wait::until(what, wait::TIMEOUT, async || {
            let answer = send().await;
            if answer.status == 503 {
                repeated = true;
                return Err(format!("{answer:?}"));
            }
            Ok(answer)
        })
        .await;
        (answer, repeated)
    }

    /// Sends a request with a JSON body.
    pub async fn call(&self, method: Method, path: &str, body: &Value) -> Answer {
        self.send(self.request(method, path).json(body)).await
    }

    /// Opens an account in euro without an overdraft limit.
    pub async fn open(&self, account: AccountKey) {
        self.open_with(account, "EUR", "0.00").await;
    }

    /// Opens an account, and repeats the request while its status is 503, as a partner does.
    pub async fn open_with(&self, account: AccountKey, currency: &str, overdraft_limit: &str) {
        let terms = json!({"currency": currency, "overdraft_limit": overdraft_limit});
        let (answer, repeated) = Self::until_available("it is opened", async || {
            self.call(Method::PUT, &path_of(account), &terms).await
        })
        .await;
        assert!(answer.status == 201 || repeated && answer.status == 200, "{answer:?}");
    }

    /// Reads an account.
    pub async fn account(&self, account: AccountKey) -> Answer {
        self.read(self.request(Method::GET, &path_of(account))).await
    }

    /// Reads the balance of an account.
    pub async fn balance(&self, account: AccountKey) -> String {
        self.account(account).await.text_at("/balance").to_owned()
    }

    /// Builds the request that submits a deposit or a withdrawal.
    pub fn submission(&self, account: AccountKey, id: MessageId, sent: &Submission) -> RequestBuilder {
        let path = format!("{}/{}s", path_of(account), sent.kind.code());
        self.request(Method::POST, &path).header("Idempotency-Key", quoted(id)).json(&sent.body)
    }

    /// Submits a deposit or a withdrawal.
    pub async fn submit(&self, account: AccountKey, id: MessageId, submission: &Submission) -> Answer {
        self.send(self.submission(account, id, submission)).await
    }

    /// Submits, and repeats the request while its status is 503, as a partner does: on a busy machine, a request to the storage
    /// may time out.
    pub async fn submit_until_accepted(
        &self,
        account: AccountKey,
        id: MessageId,
        sent: &Submission,
    ) -> Answer {
        let (answer, repeated) = self.submit_until_available(account, id, sent).await;
        assert!(answer.status == 202 || repeated && answer.status == 200, "{answer:?}");
        answer
    }

    /// Like [`Self::submit_until_accepted`], with any last response. Also returns whether the request was repeated.
    pub async fn submit_until_available(
        &self,
        account: AccountKey,
        id: MessageId,
        sent: &Submission,
    ) -> (Answer, bool) {
        Self::until_available("it is accepted", async || self.submit(account, id, sent).await).await
    }

    /// Submits, and waits up to 30 s for the outcome.
    pub async fn submit_and_wait(&self, account: AccountKey, id: MessageId, sent: &Submission) -> Answer {
        self.send(self.submission(account, id, sent).header("Prefer", "wait=30")).await
    }

    /// Submits, and waits until the transaction is posted.
    pub async fn post(&self, account: AccountKey, id: MessageId, submission: &Submission) -> Answer {
        let answer = self.submit_and_wait(account, id, submission).await;
        let answer = if answer.status == 202 { self.until_final(account, id).await } else { answer };
        assert!(answer.transaction_status() == "posted", "expected it posted, got {answer:?}");
        answer
    }

    /// Reads a transaction.
    pub async fn transaction(&self, account: AccountKey, id: MessageId) -> Answer {
        self.get(&format!("{}/transactions/{id}", path_of(account))).await
    }

    /// Waits until a transaction is final.
    pub async fn until_final(&self, account: AccountKey, id: MessageId) -> Answer {
        self.until_final_within(account, id, wait::TIMEOUT).await
    }

    /// Like [`Self::until_final`], with another timeout.
    pub async fn until_final_within(&self, account: AccountKey, id: MessageId, within: Duration) -> Answer {
        let what = format!("transaction {id} becomes final");
        wait::until(&what, within, async || {
            let answer = self.transaction(account, id).await;
            if answer.is_final() { Ok(answer) } else { Err(format!("{answer:?}")) }
        })
        .await
    }

    /// Returns the whole statement, or all transactions with a status, page by page.
    pub async fn listing(&self, account: AccountKey, status: Option<&str>, limit: u32) -> Vec<Value> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(status.map(|status| ("status", status.to_owned())));
        self.items(&format!("{}/transactions", path_of(account)), "transactions", &query).await
    }

    /// Returns all items of a listing, page by page.
    async fn items(&self, path: &str, member: &str, query: &[(&str, String)]) -> Vec<Value> {
        let mut found = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let cursor_query: Vec<_> = cursor.take().map(|cursor| ("cursor", cursor)).into_iter().collect();
            let page = self.read(self.request(Method::GET, path).query(query).query(&cursor_query)).await;
            let items = page.body.get(member).and_then(Value::as_array);
            found.extend(items.unwrap_or_else(|| panic!("no {member} in {page:?}")).iter().cloned());
            match page.body.pointer("/next_cursor") {
                Some(Value::String(next)) => cursor = Some(next.clone()),
                Some(Value::Null) => return found,
                _ => panic!("no next_cursor in {page:?}"),
            }
        }
    }

    /// Reads the readiness of the process.
    pub async fn ready(&self) -> Answer {
        self.get("/readyz").await
    }

    /// Waits until a `GET` request for this path gets this status.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn until_status(&self, path: &str, status: u16) {
        wait::until(&format!("{path} is answered with {status}"), wait::TIMEOUT, async || {
            let answer = self.get(path).await;
            if answer.status == status { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    }

    /// Waits until the process is ready.
    pub async fn until_ready(&self) {
        self.until_status("/readyz", 200).await;
    }

    /// Returns the open dead letters.
    pub async fn dead_letters(&self) -> Vec<Value> {
        self.items("/v1/admin/dead-letters", "dead_letters", &[]).await
    }

    /// Returns the sum of a member, such as `depth`, over all queues.
    pub async fn over_queues(&self, count: &str) -> u64 {
        let answer = self.read(self.request(Method::GET, "/v1/admin/queues")).await;
        let queues = answer.body.pointer("/queues").and_then(Value::as_array);
        let queues = queues.unwrap_or_else(|| panic!("no queues in {answer:?}"));
        queues.iter().filter_map(|queue| queue.get(count).and_then(Value::as_u64)).sum()
    }

    /// Waits until all queues are empty.
    pub async fn until_drained(&self, within: Duration) {
        wait::until("all queues are empty", within, async || match self.over_queues("depth").await {
            0 => Ok(()),
            depth => Err(format!("{depth} messages")),
        })
        .await;
    }
}

/// Returns the path of an account.
pub fn path_of(account: AccountKey) -> String {
    format!("/v1/users/{}/accounts/{}", account.user, account.account)
}

/// Returns the id as a header value.
fn quoted(id: MessageId) -> HeaderValue {
    HeaderValue::try_from(format!("\"{id}\"")).expect("a UUID is a valid header value")
}
