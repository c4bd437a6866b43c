//! What a page has done: its console, its requests, its cookies, and how fast it was shown.

use serde::Deserialize;
use serde_json::{Value, json};

use super::webdriver::Fault;
use super::{Browser, done};

/// A cookie that the browser keeps.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cookie {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The host to which it is sent, or with a leading dot the domain.
    pub domain: String,
    /// The path below which it is sent.
    pub path: String,
    /// Whether scripts cannot read it.
    pub http_only: bool,
    /// Whether it is sent over TLS only.
    pub secure: bool,
    /// `Strict`, `Lax` or `None`, if the server has set it.
    pub same_site: Option<String>,
    /// Whether it lasts until the browser is closed, since it has no end of its own.
    pub session: bool,
}

impl Browser {
    /// What appeared in the console of the browser since the last call: errors of scripts, requests that failed or had a status
    /// above 399, violations of the Content-Security-Policy, and what pages have logged. Each one starts with its level and
    /// source, such as `SEVERE security:`.
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

    /// The requests of the present page that have been answered so far: its own first, with the address after redirects, then
    /// those of its parts. The number of bytes is that of the answer on the network with its headers, and 0 if the answer
    /// came from the cache or from another origin.
    pub async fn requests(&self) -> Vec<(String, u64)> {
        let script = "return ['navigation', 'resource'].flatMap(type => performance.getEntriesByType(type))
            .map(entry => [entry.name, entry.transferSize]);";
        serde_json::from_value(self.run(script).await).expect("names and numbers")
    }

    /// The time from the start of the navigation until the first text or picture of the page was shown, in milliseconds. Waits
    /// for it.
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

    /// All cookies, of whatever host and path.
    pub async fn cookies(&self) -> Vec<Cookie> {
        let mut found = done("the cookies", self.session.cdp("Storage.getCookies", json!({})).await);
        serde_json::from_value(found["cookies"].take()).expect("a list of cookies")
    }
}
