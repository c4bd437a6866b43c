//! Observations of a page: console messages, requests, cookies, and paint times.

use serde::Deserialize;
use serde_json::{Value, json};

use super::webdriver::Fault;
use super::{Browser, done};

/// A cookie in the browser.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cookie {
    /// Name of the cookie.
    pub name: String,
    /// Value of the cookie.
    pub value: String,
    /// Host to which it is sent, or the domain if it starts with a dot.
    pub domain: String,
    /// Path below which it is sent.
    pub path: String,
    /// Whether it is hidden from scripts.
    pub http_only: bool,
    /// Whether it is sent over TLS only.
    pub secure: bool,
    /// `Strict`, `Lax` or `None`, if the server set it.
    pub same_site: Option<String>,
    /// Whether it is a session cookie, without an expiry.
    pub session: bool,
}

impl Browser {
    /// Returns the console messages since the last call: errors of scripts, requests that failed or had a status above 399,
    /// violations of the Content-Security-Policy, and log messages of pages. Each starts with its level and source, such as
    /// `SEVERE security:`.
    pub async fn messages(&self) -> Vec<String> {
        done("the console", self.new_messages().await)
    }

    pub(super) async fn new_messages(&self) -> Result<Vec<String>, Fault> {
        let entries = self.session.post("/se/log", json!({"type": "browser"})).await?;
        let entries = entries.as_array().expect("a log is a list");
        let member = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let line = |entry: &Value| {
            format!("{} {}: {}", member(entry, "level"), member(entry, "source"), member(entry, "message"))
        };
        Ok(entries.iter().map(line).collect())
    }

    /// Returns the completed requests of the current page: first the page, with its address after redirects, then its resources.
    /// The number is the size of the response with its headers in bytes; 0 if it came from the cache or from another origin.
    pub async fn requests(&self) -> Vec<(String, u64)> {
        let script = "return ['navigation', 'resource'].flatMap(type => performance.getEntriesByType(type))
            .map(entry => [entry.name, entry.transferSize]);";
        serde_json::from_value(self.run(script).await).expect("names and numbers")
    }

    /// Waits for the first contentful paint of the page, and returns its time since the start of the navigation in
    /// milliseconds.
    #[expect(clippy::disallowed_types, reason = "a time that the browser has measured, and not money")]
    pub async fn first_contentful_paint_ms(&self) -> f64 {
        let script =
            "return performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)[0];";
        let check = async || {
            let found = self.session.execute(script, json!([])).await?;
            found.as_f64().ok_or_else(|| "nothing is shown".to_owned())
        };
        self.until("the first contentful paint", check).await
    }

    /// Returns all cookies, of every host and path.
    pub async fn cookies(&self) -> Vec<Cookie> {
        let mut found = done("the cookies", self.session.cdp("Storage.getCookies", json!({})).await);
        serde_json::from_value(found["cookies"].take()).expect("a list of cookies")
    }
}
