//! The requests of a load: the same for every arm.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Uri};
use postonce_shared::domain::ids::AccountKey;
use postonce_tests::client::path_of;
use uuid::Uuid;

/// The address of an arm and its API key.
#[derive(Debug, Clone)]
pub struct Target {
    /// Host and port.
    pub address: String,
    /// The API key.
    pub key: String,
}

impl Target {
    /// The target at an address such as `http://127.0.0.1:40123`.
    pub fn of(address: &str, key: &str) -> Self {
        Self { address: address.trim_start_matches("http://").to_owned(), key: key.to_owned() }
    }
}

/// Requests to some accounts in turn.
#[derive(Debug, Clone)]
pub struct Traffic {
    pub(super) address: String,
    method: Method,
    paths: Vec<Uri>,
    body: Bytes,
    authorization: HeaderValue,
    host: HeaderValue,
    has_id: bool,
    /// Consecutive requests to an account before the next account.
    run: u64,
    prefer: Option<HeaderValue>,
}

impl Traffic {
    /// Opens accounts in euro.
    pub fn openings(target: &Target, accounts: &[AccountKey]) -> Self {
        Self::of(target, Method::PUT, accounts, "", r#"{"currency":"EUR"}"#)
    }

    /// Deposits of one euro, each with a new id.
    pub fn deposits(target: &Target, accounts: &[AccountKey]) -> Self {
        let body = r#"{"amount":"1.00","currency":"EUR"}"#;
        Self { has_id: true, ..Self::of(target, Method::POST, accounts, "/deposits", body) }
    }

    /// The same, with that many consecutive requests to each account.
    #[must_use]
    pub fn in_runs_of(self, run: u64) -> Self {
        Self { run, ..self }
    }

    /// The same, with each request waiting for its final status.
    #[must_use]
    pub fn waiting(self) -> Self {
        Self { prefer: Some(HeaderValue::from_static("wait=30")), ..self }
    }

    fn of(
        target: &Target,
        method: Method,
        accounts: &[AccountKey],
        action: &str,
        body: &'static str,
    ) -> Self {
        let Target { address, key } = target;
        let path =
            |account: &AccountKey| format!("{}{action}", path_of(*account)).parse().expect("a valid path");
        let header = |text: String| HeaderValue::try_from(text).expect("a valid header value");
        Self {
            address: address.clone(),
            method,
            paths: accounts.iter().map(path).collect(),
            body: Bytes::from_static(body.as_bytes()),
            authorization: header(format!("Bearer {key}")),
            host: header(address.clone()),
            has_id: false,
            run: 1,
            prefer: None,
        }
    }

    /// The request with that number.
    pub(super) fn request(&self, number: u64) -> Request<Full<Bytes>> {
        let count = u64::try_from(self.paths.len()).unwrap_or(u64::MAX);
        let turn = number.checked_div(self.run).unwrap_or(number);
        let index = turn.checked_rem(count).and_then(|index| usize::try_from(index).ok());
        let path = index.and_then(|index| self.paths.get(index)).expect("there are accounts");
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(path.clone())
            .header(HOST, self.host.clone())
            .header(AUTHORIZATION, self.authorization.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.has_id {
            // A generator in this process: the system's costs processor time that the measured processes need.
            let id = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
            request = request.header("idempotency-key", quoted(id));
        }
        if let Some(prefer) = &self.prefer {
            request = request.header("prefer", prefer.clone());
        }
        request.body(Full::new(self.body.clone())).expect("valid parts")
    }
}

fn quoted(id: Uuid) -> HeaderValue {
    HeaderValue::try_from(format!("\"{}\"", id.hyphenated())).expect("a valid header value")
}
