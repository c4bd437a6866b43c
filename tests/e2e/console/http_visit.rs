//! A browser without scripts.

use postonce_tests::certificates::trusting;
use postonce_tests::scenario::Scenario;
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response};

/// A browser without scripts, for one web process: it keeps the cookie.
pub struct HttpVisit {
    pub http: Client,
    pub address: String,
    pub cookie: Option<String>,
}

impl HttpVisit {
    /// Visits a web process without a session.
    pub fn of(bank: &Scenario, web: usize) -> Self {
        let http = Client::builder().redirect(Policy::none()).no_proxy().build().expect("a client");
        Self { http, address: bank.webs[web].address().to_owned(), cookie: None }
    }

    /// Visits a web process over TLS, which has a certificate of that authority.
    pub fn over_tls(bank: &Scenario, web: usize, authority: &str) -> Self {
        let client = trusting(Client::builder().redirect(Policy::none()).no_proxy(), authority);
        let http = client.build().expect("a client");
        Self { http, ..Self::of(bank, web) }
    }

    /// Adds the cookie to a request.
    pub fn with_cookie(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.cookie {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        }
    }

    /// Reads a page.
    pub async fn get(&self, path: &str) -> Response {
        let request = self.http.get(format!("{}{path}", self.address));
        self.with_cookie(request).send().await.expect("the process answers")
    }

    /// Sends a form.
    pub async fn post(&self, path: &str, form: &[(&str, &str)]) -> Response {
        self.with_cookie(self.form(path, form)).send().await.expect("the process answers")
    }

    /// Returns the request of a form, without the cookie.
    pub fn form(&self, path: &str, form: &[(&str, &str)]) -> RequestBuilder {
        let encoded = reqwest::Url::parse_with_params("http://form", form).expect("pairs can be encoded");
        let request = self.http.post(format!("{}{path}", self.address));
        request
            .header("content-type", "application/x-www-form-urlencoded")
            .body(encoded.query().unwrap_or_default().to_owned())
    }

    /// Signs in with a key.
    pub async fn sign_in(&mut self, key: &str) {
        let answer = self.post("/console/sign-in", &[("key", key)]).await;
        assert_eq!((answer.status().as_u16(), location(&answer)), (303, "/console".to_owned()));
        let set = answer.headers()[SET_COOKIE].to_str().expect("a cookie is ASCII").to_owned();
        let mut attributes: Vec<&str> = set.split("; ").skip(1).collect();
        attributes.sort_unstable();
        let is_encrypted = self.address.starts_with("https://");
        let expected: &[&str] = match is_encrypted {
            true => &["HttpOnly", "Path=/", "SameSite=Lax", "Secure"],
            false => &["HttpOnly", "Path=/console", "SameSite=Lax"],
        };
        assert_eq!(attributes, expected, "{set}");
        assert_eq!(set.starts_with("__Host-"), is_encrypted, "{set}");
        assert!(!set.contains(key), "the cookie contains the key");
        self.cookie = Some(set.split(';').next().expect("it has a value").to_owned());
    }

    /// The hidden value of the forms.
    pub async fn token(&self) -> String {
        let page = self.get("/console/gate").await.text().await.expect("a page");
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("the page has a form");
        rest.split('"').next().expect("the value ends").to_owned()
    }
}

/// The address to which an answer leads.
pub fn location(answer: &Response) -> String {
    answer.headers().get(LOCATION).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned()
}
