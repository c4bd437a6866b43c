//! The console for operators: its sessions over HTTP, and its pages in Chromium.

mod accounts;
mod batch_operations;
mod cost;
mod discarded;
mod expired;
mod findings;
mod hidden;
mod http_visit;
mod moving;
mod pages;
mod partners;
mod records;
mod released;
mod resolved;
mod schedule;
mod session;
mod shown;
mod streams;
mod tls;
mod vendored;
mod visit;

/// A text as part of a query.
fn encoded(text: &str) -> String {
    let url =
        reqwest::Url::parse_with_params("http://form", [("text", text)]).expect("a text can be encoded");
    url.query().and_then(|query| query.split_once('=')).map(|(_, text)| text.to_owned()).unwrap_or_default()
}
