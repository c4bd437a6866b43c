//! The requests of a load: the same for every arm.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use postonce_shared::domain::ids::AccountKey;
use postonce_tests::client::path_of;
use uuid::Uuid;

/// The addresses of an arm and its API key.
#[derive(Debug, Clone)]
pub struct Target {
    /// Host and port of each process that serves the API. Each client uses them in turns.
    pub addresses: Vec<String>,
    /// The API key.
    pub key: String,
}

impl Target {
    /// The target at addresses such as `http://127.0.0.1:40123`.
    pub fn of<'a>(addresses: impl IntoIterator<Item = &'a str>, key: &str) -> Self {
        let bare = |address: &str| address.trim_start_matches("http://").to_owned();
        Self { addresses: addresses.into_iter().map(bare).collect(), key: key.to_owned() }
    }
}

/// How a client learns that its deposit is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The request waits (`Prefer: wait`), and its answer contains the posted transaction. After an answer without
    /// it, the client reads the transaction until it is posted.
    Waiting,
    /// The request is answered when the deposit is accepted. The counts of the processes show how many are posted.
    Queued,
}

impl Way {
    /// Both, in the order of the arms.
    pub const ALL: [Self; 2] = [Self::Waiting, Self::Queued];

    /// The name of the arm of the bank whose clients use it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Queued => "queued",
        }
    }
}

/// Requests to some accounts in turn.
#[derive(Debug, Clone)]
pub struct Traffic {
    pub(super) addresses: Vec<String>,
    method: Method,
    paths: Vec<Uri>,
    action: &'static str,
    body: Bytes,
    authorization: HeaderValue,
    has_id: bool,
    /// Consecutive requests to an account before the next account.
    run: u64,
    way: Way,
}

impl Traffic {
    /// Opens accounts in euro.
    pub fn openings(target: &Target, accounts: &[AccountKey]) -> Self {
        Self::of(target, Method::PUT, accounts, "", r#"{"currency":"EUR"}"#)
    }

    /// Deposits of one euro, each with a new id.
    pub fn deposits(target: &Target, accounts: &[AccountKey], way: Way) -> Self {
        let body = r#"{"amount":"1.00","currency":"EUR"}"#;
        Self { has_id: true, way, ..Self::of(target, Method::POST, accounts, "/deposits", body) }
    }

    /// Reads of as much of a statement as one page can contain.
    pub fn statements(target: &Target, accounts: &[AccountKey]) -> Self {
        Self::of(target, Method::GET, accounts, "/transactions?limit=1000", "")
    }

    /// How the clients learn that a deposit is posted.
    pub const fn way(&self) -> Way {
        self.way
    }

    /// The same, with that many consecutive requests to each account.
    #[must_use]
    pub fn in_runs_of(self, run: u64) -> Self {
        Self { run, ..self }
    }

    fn of(
        target: &Target,
        method: Method,
        accounts: &[AccountKey],
        action: &'static str,
        body: &'static str,
    ) -> Self {
        let Target { addresses, key } = target;
        let path =
            |account: &AccountKey| format!("{}{action}", path_of(*account)).parse().expect("a valid path");
        let header = |text: String| HeaderValue::try_from(text).expect("a valid header value");
        Self {
            addresses: addresses.clone(),
            method,
            paths: accounts.iter().map(path).collect(),
            action,
            body: Bytes::from_static(body.as_bytes()),
            authorization: header(format!("Bearer {key}")),
            has_id: false,
            run: 1,
            way: Way::Queued,
        }
    }

    /// The request with that number, with that message id.
    pub(super) fn request(&self, number: u64, id: Uuid) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(self.path(number).clone())
            .header(AUTHORIZATION, self.authorization.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.has_id {
            request = request.header("idempotency-key", quoted(id));
        }
        if self.way == Way::Waiting {
            request = request.header("prefer", HeaderValue::from_static("wait=30"));
        }
        request.body(Full::new(self.body.clone())).expect("valid parts")
    }

    /// The request that reads the transaction of the request with that number and message id.
    pub(super) fn status_request(&self, number: u64, id: Uuid) -> Request<Full<Bytes>> {
        let path = self.path(number).path();
        let account = path.strip_suffix(self.action).unwrap_or(path);
        Request::get(format!("{account}/transactions/{}", id.hyphenated()))
            .header(AUTHORIZATION, self.authorization.clone())
            .body(Full::default())
            .expect("valid parts")
    }

    fn path(&self, number: u64) -> &Uri {
        let count = u64::try_from(self.paths.len()).unwrap_or(u64::MAX);
        let turn = number.checked_div(self.run).unwrap_or(number);
        let index = turn.checked_rem(count).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.paths.get(index)).expect("there are accounts")
    }
}

fn quoted(id: Uuid) -> HeaderValue {
    HeaderValue::try_from(format!("\"{}\"", id.hyphenated())).expect("a valid header value")
}
