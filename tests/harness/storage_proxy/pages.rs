//! Pages of table queries. Azure may end a page anywhere, even before the first row ("Query timeout and pagination"), while
//! Azurite ends it only when it is full.
//!
//! Some queries get an empty page with a continuation token of the proxy, which contains the continuation of the request, so
//! the proxy keeps no state. Others are forwarded with a smaller `$top`, so that Azurite ends the page earlier. The query is
//! not part of the signature of a table request.

use std::fmt::Write as _;

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::error_responses::{ProxiedResponse, plain_headers};

/// Percentages of queries that get an empty page, and of those that get a short one.
const EMPTY_PERCENT: u32 = 25;
const SHORT_PERCENT: u32 = 25;
/// Maximum number of rows of a short page.
const SHORT_ROWS_MAX: u32 = 5;
/// Prefix of the continuation tokens of the proxy.
const TOKEN_START: &str = "after-an-empty-page-";

const NEXT_PARTITION: &str = "NextPartitionKey";
const NEXT_ROW: &str = "NextRowKey";
const NEXT_PARTITION_HEADER: HeaderName = HeaderName::from_static("x-ms-continuation-nextpartitionkey");

/// How the response to a query is created.
#[derive(Debug)]
pub(crate) enum Page {
    /// By the proxy: no rows, and a continuation token.
    Empty(ProxiedResponse),
    /// By the service, to this request.
    Forward(PathAndQuery),
}

/// Draws how the response to a query is created.
pub(crate) fn draw(target: &PathAndQuery, rng: &mut StdRng) -> Page {
    let query = resolved(target.query().unwrap_or_default());
    let ticket = rng.random_range(0..100);
    if ticket < EMPTY_PERCENT {
        return Page::Empty(empty(&query));
    }
    let query = if ticket < EMPTY_PERCENT.saturating_add(SHORT_PERCENT) {
        shortened(&query, rng.random_range(1..=SHORT_ROWS_MAX))
    } else {
        query
    };
    let path = target.path();
    let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    Page::Forward(target.parse().expect("parts of a target are one"))
}

/// Replaces a continuation token of the proxy in a query by that of the service.
fn resolved(query: &str) -> String {
    let mut parts = Vec::new();
    for part in parts_of(query) {
        match part
            .strip_prefix(NEXT_PARTITION)
            .and_then(|rest| rest.strip_prefix("=")?.strip_prefix(TOKEN_START))
        {
            Some(token) => {
                let inner = hex::decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                parts.push(inner.expect("a token of the proxy is returned unchanged"));
            }
            None => parts.push(part.to_owned()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join("&")
}

/// Returns a page without rows, with a token from which [`resolved`] restores the query. It has no `NextRowKey`, which is
/// optional.
fn empty(query: &str) -> ProxiedResponse {
    let is_continuation = |part: &&str| part.starts_with(NEXT_PARTITION) || part.starts_with(NEXT_ROW);
    let continuation: Vec<&str> = parts_of(query).filter(is_continuation).collect();
    let token = format!("{TOKEN_START}{}", hex::encode(continuation.join("&")));
    let mut headers = plain_headers("application/json;odata=fullmetadata;streaming=true;charset=utf-8");
    headers.insert(NEXT_PARTITION_HEADER, HeaderValue::try_from(token).expect("hexadecimal digits"));
    let body = r#"{"odata.metadata":"http://127.0.0.1/$metadata","value":[]}"#;
    ProxiedResponse { status: StatusCode::OK, headers, body: body.into() }
}

/// Returns the query with at most this many rows.
fn shortened(query: &str, rows: u32) -> String {
    let is_top = |part: &&str| part.starts_with("$top=") || part.starts_with("%24top=");
    let asked = parts_of(query).find(is_top).and_then(|part| part.split_once('=')?.1.parse().ok());
    let others: Vec<&str> = parts_of(query).filter(|part| !is_top(part)).collect();
    let mut shortened = others.join("&");
    let separator = if shortened.is_empty() { "" } else { "&" };
    let top = asked.unwrap_or(rows).min(rows);
    write!(shortened, "{separator}$top={top}").expect("a text accepts everything");
    shortened
}

fn parts_of(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    /// Returns the token of an empty page.
    fn token(page: &ProxiedResponse) -> String {
        page.headers.get(NEXT_PARTITION_HEADER).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn the_request_after_an_empty_page_continues_where_the_one_before_did() {
        for query in ["$filter=a%20eq%20b", "$top=7&NextPartitionKey=1!8!p&NextRowKey=1!4!r", ""] {
            let own = format!("$filter=x&NextPartitionKey={}", token(&empty(query)));
            let continuation: Vec<&str> = parts_of(query).filter(|part| part.starts_with("Next")).collect();
            let expected = [&["$filter=x"], &continuation[..]].concat().join("&");
            assert_eq!(resolved(&own), expected, "after {query}");
            let again = format!("$filter=x&NextPartitionKey={}", token(&empty(&resolved(&own))));
            assert_eq!(resolved(&again), expected, "after two empty pages");
        }
        assert_eq!(resolved("NextPartitionKey=1!8!p"), "NextPartitionKey=1!8!p");
    }

    #[test]
    fn a_short_page_has_no_more_rows_than_were_asked_for() {
        assert_eq!(shortened("$filter=x&$top=3&b=c", 5), "$filter=x&b=c&$top=3");
        assert_eq!(shortened("%24top=1000", 5), "$top=5");
        assert_eq!(shortened("", 2), "$top=2");
    }

    #[test]
    fn every_kind_of_page_occurs() {
        let mut rng = StdRng::seed_from_u64(1);
        let target: PathAndQuery = "/account/ledger()?$top=100".parse().unwrap();
        let pages: Vec<Page> = (0..1000).map(|_| draw(&target, &mut rng)).collect();
        let count = |holds: fn(&Page) -> bool| pages.iter().filter(|page| holds(page)).count();
        let whole = count(|page| matches!(page, Page::Forward(target) if target.query() == Some("$top=100")));
        let empty = count(|page| matches!(page, Page::Empty(_)));
        assert!((400..600).contains(&whole), "{whole}");
        assert!((200..300).contains(&empty), "{empty}");
        let target: PathAndQuery = "/account/ledger()".parse().unwrap();
        assert!((0..100).any(|_| matches!(draw(&target, &mut rng), Page::Forward(same) if same == target)));
    }
}
