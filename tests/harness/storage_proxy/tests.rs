//! Each rule refuses a raw request that Azurite accepts, as Azure does, and permits the largest allowed request.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use postonce_shared::ports::world::World as _;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::macros::format_description;
use tokio::net::TcpListener;

use super::*;
use crate::proxy::runtime;
use crate::raw_http::{RawAnswer, RawConnection};
use crate::wait;

const TABLE: &str = "/account/ledger";
const ROW: &str = "/account/ledger(PartitionKey='p',RowKey='r')";
const MESSAGES: &str = "/account/work-0/messages";

/// Path of a query that gets no response from the service.
const HANGING: &str = "/account/hanging";

/// Starts a service that responds to everything with 200 and counts the requests.
async fn service(arrived: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(runtime().spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let arrived = Arc::clone(&arrived);
            let answer = service_fn(move |request: Request<Incoming>| {
                let arrived = Arc::clone(&arrived);
                async move {
                    let hangs = request.uri().path() == HANGING;
                    drop(request.into_body().collect().await);
                    arrived.fetch_add(1, Ordering::SeqCst);
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("{}"))))
                }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            drop(runtime().spawn(connection.serve_connection(TokioIo::new(client), answer)));
        }
    }));
    port
}

/// Proxies in front of the service, and the number of requests that arrived at the service.
struct Fixture {
    proxies: StorageProxies,
    arrived: Arc<AtomicUsize>,
}

impl Fixture {
    async fn new(likeness: Likeness) -> Self {
        let arrived: Arc<AtomicUsize> = Arc::default();
        let port = service(Arc::clone(&arrived)).await;
        let ports = Ports { blob: port, queue: port, table: port };
        Self { proxies: StorageProxies::before(ports, likeness), arrived }
    }

    async fn send(&self, service: Service, request: &RawRequest) -> RawAnswer {
        let Ports { blob, queue, table } = self.proxies.ports();
        let port = match service {
            Service::Blob => blob,
            Service::Queue => queue,
            Service::Table => table,
        };
        let mut connection = RawConnection::open(&format!("127.0.0.1:{port}")).await;
        connection.send(request.bytes()).await;
        connection.answer(wait::TIMEOUT).await.expect("an answer")
    }

    /// Checks that the request is refused with this status and code, and that the test would fail.
    async fn refuses(&self, service: Service, request: &RawRequest, expected: (u16, &str)) {
        let answer = self.send(service, request).await;
        let (status, code) = expected;
        // The error of an operation in a batch is inside a response with 202.
        let within = answer.status == 202 && answer.text.contains(&format!("HTTP/1.1 {status} "));
        assert!(answer.status == status || within, "{expected:?}: {answer:?}");
        assert!(answer.text.contains(code) || answer.head.contains(code), "{expected:?}: {answer:?}");
        assert_eq!(self.arrived.load(Ordering::SeqCst), 0, "{expected:?}: it is not forwarded");
        let found = self.proxies.take_refused();
        let [found] = found.as_slice() else { panic!("{expected:?}: {found:?}") };
        assert!(found.starts_with("the bank sent a request that Azure refuses: "), "{found}");
        assert!(found.contains(code), "{found}");
    }

    /// Checks that the request is forwarded.
    async fn permits(&self, service: Service, request: &RawRequest) {
        let answer = self.send(service, request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(self.arrived.swap(0, Ordering::SeqCst), 1);
    }
}

/// A request with the headers of a signed request.
struct RawRequest {
    line: String,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl RawRequest {
    fn new(method: &str, path: &str, body: impl Into<String>) -> Self {
        let body = body.into();
        let length = body.len().to_string();
        let headers = vec![
            ("Host", "127.0.0.1".to_owned()),
            ("Authorization", "SharedKey account:signature".to_owned()),
            ("x-ms-date", date(Duration::ZERO, true)),
            ("x-ms-version", "2019-12-12".to_owned()),
            ("Content-Length", length),
        ];
        Self { line: format!("{method} {path} HTTP/1.1"), headers, body }
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name, value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(found, _)| *found != name);
        self
    }

    fn bytes(&self) -> String {
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("{}\r\n{headers}\r\n{}", self.line, self.body)
    }
}

/// Returns the date at this distance from now.
fn date(distance: Duration, is_past: bool) -> String {
    let now = SystemWorld::new().now();
    let at = if is_past { now.before(distance) } else { now.after(distance) };
    let at = OffsetDateTime::from_unix_timestamp(at.unix_ms().div_euclid(1000)).unwrap();
    let format = format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    at.format(format).unwrap()
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(count.saturating_mul(60))
}

/// Returns a batch of inserts with these keys and this property.
fn batch(keys: &[(String, String)], text: &str) -> RawRequest {
    let operations: String = keys
        .iter()
        .map(|(partition, row)| {
            let entity = json!({"PartitionKey": partition, "RowKey": row, "Text": text});
            format!(
                "--changeset_1\nContent-Type: application/http\nContent-Transfer-Encoding: binary\n\n\
                 POST http://127.0.0.1/account/ledger HTTP/1.1\naccept: application/json\n\n{entity}\n"
            )
        })
        .collect();
    let body = format!(
        "--batch_1\nContent-Type: multipart/mixed; boundary=changeset_1\n\n{operations}--changeset_1--\n--batch_1\n"
    );
    RawRequest::new("POST", "/account/$batch", body).with("Content-Type", "multipart/mixed; boundary=batch_1")
}

fn rows(count: usize) -> Vec<(String, String)> {
    (0..count).map(|row| ("p".to_owned(), format!("r{row}"))).collect()
}

fn insert(partition: &str, row: &str, properties: impl IntoIterator<Item = (String, Value)>) -> RawRequest {
    let keys = [("PartitionKey", partition), ("RowKey", row)];
    let keys = keys.map(|(name, key)| (name.to_owned(), Value::from(key)));
    let entity: Map<String, Value> = keys.into_iter().chain(properties).collect();
    RawRequest::new("POST", TABLE, Value::from(entity).to_string())
}

fn texts(count: usize, units: usize) -> Vec<(String, Value)> {
    (0..count).map(|number| (format!("Text{number}"), Value::from("x".repeat(units)))).collect()
}

fn message(text: &str) -> RawRequest {
    let body = format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>");
    RawRequest::new("POST", &format!("{MESSAGES}?messagettl=2147483647"), body)
}

#[tokio::test]
async fn a_batch_is_of_one_partition_and_has_at_most_100_rows_and_4_mib() {
    let fixture = Fixture::new(Likeness::Rules).await;
    fixture.permits(Service::Table, &batch(&rows(100), "x")).await;
    fixture.refuses(Service::Table, &batch(&rows(101), "x"), (400, "InvalidInput")).await;
    let keys = [("p".to_owned(), "r".to_owned()), ("q".to_owned(), "r".to_owned())];
    fixture
        .refuses(Service::Table, &batch(&keys, "x"), (400, "CommandsInBatchActOnDifferentPartitions"))
        .await;
    let keys = [("p".to_owned(), "r".to_owned()), ("p".to_owned(), "r".to_owned())];
    fixture.refuses(Service::Table, &batch(&keys, "x"), (400, "InvalidDuplicateRow")).await;
    fixture.refuses(Service::Table, &batch(&[], "x"), (400, "InvalidInput")).await;
    // 64 KiB in UTF-8, which is the maximum size of a property.
    let text = "ü".repeat(32 << 10);
    fixture.permits(Service::Table, &batch(&rows(63), &text)).await;
    fixture.refuses(Service::Table, &batch(&rows(64), &text), (413, "RequestBodyTooLarge")).await;
}

#[tokio::test]
async fn a_property_has_at_most_64_kib_and_a_row_1_mib() {
    let fixture = Fixture::new(Likeness::Rules).await;
    fixture.permits(Service::Table, &insert("p", "r", texts(1, 32 << 10))).await;
    let large = insert("p", "r", texts(1, (32 << 10) + 1));
    fixture.refuses(Service::Table, &large, (400, "PropertyValueTooLarge")).await;
    let in_batch = batch(&rows(2), &"ü".repeat((32 << 10) + 1));
    fixture.refuses(Service::Table, &in_batch, (400, "PropertyValueTooLarge")).await;
    fixture.permits(Service::Table, &insert("p", "r", texts(15, 32 << 10))).await;
    fixture.refuses(Service::Table, &insert("p", "r", texts(16, 32 << 10)), (400, "EntityTooLarge")).await;
    fixture.permits(Service::Table, &insert("p", "r", texts(252, 1))).await;
    fixture.refuses(Service::Table, &insert("p", "r", texts(253, 1)), (400, "TooManyProperties")).await;
    let binary = |bytes: usize| {
        let value = Value::from("A".repeat(bytes.div_ceil(3).saturating_mul(4)));
        [("B".to_owned(), value), ("B@odata.type".to_owned(), Value::from("Edm.Binary"))]
    };
    fixture.permits(Service::Table, &insert("p", "r", binary(65_535))).await;
    fixture.refuses(Service::Table, &insert("p", "r", binary(65_538)), (400, "PropertyValueTooLarge")).await;
    let named = |name: &str| insert("p", "r", [(name.to_owned(), Value::from(1))]);
    fixture.permits(Service::Table, &named(&"n".repeat(255))).await;
    fixture.refuses(Service::Table, &named(&"n".repeat(256)), (400, "PropertyNameTooLong")).await;
    fixture.refuses(Service::Table, &named("a-b"), (400, "PropertyNameInvalid")).await;
}

#[tokio::test]
async fn keys_have_no_forbidden_characters_and_at_most_1_kib() {
    let fixture = Fixture::new(Likeness::Rules).await;
    fixture.permits(Service::Table, &insert("p'-|", &"k".repeat(512), [])).await;
    fixture.refuses(Service::Table, &insert("p", &"k".repeat(513), []), (400, "KeyValueTooLarge")).await;
    for character in ['/', '\\', '#', '?', '\u{1f}', '\u{7f}', '\u{9f}', '\n'] {
        let key = format!("a{character}b");
        fixture.refuses(Service::Table, &insert(&key, "r", []), (400, "OutOfRangeInput")).await;
        fixture.refuses(Service::Table, &insert("p", &key, []), (400, "OutOfRangeInput")).await;
    }
    let get = |keys: &str| RawRequest::new("GET", &format!("{TABLE}({keys})"), "");
    fixture.permits(Service::Table, &get("PartitionKey='a''b',RowKey='r'")).await;
    let slash = get("PartitionKey='a%2Fb',RowKey='r'");
    fixture.refuses(Service::Table, &slash, (400, "OutOfRangeInput")).await;
    let quote = get("PartitionKey='a'b',RowKey='r'");
    fixture.refuses(Service::Table, &quote, (400, "InvalidInput")).await;
}

#[tokio::test]
async fn a_message_has_at_most_64_kib_after_its_encoding() {
    let fixture = Fixture::new(Likeness::Rules).await;
    fixture.permits(Service::Queue, &message(&"x".repeat(64 << 10))).await;
    fixture.permits(Service::Queue, &message(&"&lt;".repeat(64 << 10))).await;
    let large = message(&"x".repeat((64 << 10) + 1));
    fixture.refuses(Service::Queue, &large, (400, "MessageTooLarge")).await;
    let not_xml = RawRequest::new("POST", MESSAGES, "text");
    fixture.refuses(Service::Queue, &not_xml, (400, "InvalidXmlDocument")).await;
    let receive = |query: &str| RawRequest::new("GET", &format!("{MESSAGES}?{query}"), "");
    fixture.permits(Service::Queue, &receive("numofmessages=32&visibilitytimeout=604800")).await;
    for query in ["numofmessages=33", "visibilitytimeout=604801", "visibilitytimeout=0"] {
        fixture.refuses(Service::Queue, &receive(query), (400, "OutOfRangeQueryParameterValue")).await;
    }
}

#[tokio::test]
async fn a_signed_request_has_a_date_within_15_minutes_and_a_version() {
    let fixture = Fixture::new(Likeness::Rules).await;
    let get = || RawRequest::new("GET", ROW, "");
    for is_past in [true, false] {
        let distant = |distance| get().with("x-ms-date", &date(distance, is_past));
        fixture.permits(Service::Table, &distant(minutes(14))).await;
        fixture.refuses(Service::Table, &distant(minutes(16)), (403, "AuthenticationFailed")).await;
        let by_date = distant(minutes(16)).without("x-ms-date").with("Date", &date(minutes(16), is_past));
        fixture.refuses(Service::Table, &by_date, (403, "AuthenticationFailed")).await;
    }
    let undated = get().without("x-ms-date");
    fixture.refuses(Service::Blob, &undated, (403, "AuthenticationFailed")).await;
    let garbled = get().with("x-ms-date", "yesterday");
    fixture.refuses(Service::Queue, &garbled, (403, "AuthenticationFailed")).await;
    let unversioned = get().without("x-ms-version");
    fixture.refuses(Service::Table, &unversioned, (400, "MissingRequiredHeader")).await;
    // A shared access signature has its own validity times.
    let shared = RawRequest::new("GET", &format!("{MESSAGES}?sig=x"), "").without("Authorization");
    fixture.permits(Service::Queue, &shared.without("x-ms-date").without("x-ms-version")).await;
}

#[tokio::test]
async fn conditions_are_etags_and_required_headers_are_present() {
    let fixture = Fixture::new(Likeness::Rules).await;
    let merge = |tag: &str| RawRequest::new("MERGE", ROW, "{}").with("If-Match", tag);
    fixture.permits(Service::Table, &merge("W/\"datetime'2026-11-24T10%3A00%3A00.0000000Z'\"")).await;
    fixture.permits(Service::Table, &merge("*")).await;
    for tag in ["", "0x8D", "W/\"a\", W/\"b\"", "\"a"] {
        fixture.refuses(Service::Table, &merge(tag), (400, "InvalidInput")).await;
    }
    let blob = || RawRequest::new("PUT", "/account/payloads/work-1", "x").with("x-ms-blob-type", "BlockBlob");
    fixture.permits(Service::Blob, &blob()).await;
    fixture.refuses(Service::Blob, &blob().with("If-Match", "0x8D"), (400, "InvalidHeaderValue")).await;
    let untyped = blob().without("x-ms-blob-type");
    fixture.refuses(Service::Blob, &untyped, (400, "MissingRequiredHeader")).await;
    let delete = RawRequest::new("DELETE", ROW, "");
    fixture.refuses(Service::Table, &delete, (400, "MissingRequiredHeader")).await;
    fixture.permits(Service::Table, &delete.with("If-Match", "*")).await;
    let mut chunked = blob().without("Content-Length").with("Transfer-Encoding", "chunked");
    chunked.body = "1\r\nx\r\n0\r\n\r\n".to_owned();
    fixture.refuses(Service::Blob, &chunked, (411, "MissingContentLengthHeader")).await;
}

#[tokio::test]
async fn a_query_has_at_most_15_comparisons_and_asks_for_at_most_1000_rows() {
    let fixture = Fixture::new(Likeness::Rules).await;
    let query = |query: &str| RawRequest::new("GET", &format!("{TABLE}()?{query}"), "");
    let filter = |count: usize| format!("$filter={}", vec!["A%20eq%20'b'"; count].join("%20or%20"));
    let refused = (400, "InvalidInput");
    fixture.refuses(Service::Table, &query(&filter(16)), refused).await;
    fixture.refuses(Service::Table, &query("%24top=1001"), refused).await;
    fixture.refuses(Service::Table, &query("$top=0"), refused).await;
    let allowed = query(&format!("{}&$top=1000", filter(15)));
    // The response comes from the service, or is an empty page.
    assert_eq!(fixture.send(Service::Table, &allowed).await.status, 200);
}

#[tokio::test]
async fn a_query_gets_pages_of_every_kind() {
    let fixture = Fixture::new(Likeness::Rules).await;
    let query = RawRequest::new("GET", &format!("{TABLE}()?$top=100"), "");
    let mut empty: usize = 0;
    for _ in 0..100 {
        let answer = fixture.send(Service::Table, &query).await;
        let continues = answer.head.contains("x-ms-continuation-nextpartitionkey: after-an-empty-page-");
        assert_eq!(continues, answer.body["value"] == json!([]), "{answer:?}");
        empty = empty.saturating_add(usize::from(continues));
    }
    assert!((10..45).contains(&empty), "{empty}");
    assert_eq!(fixture.arrived.load(Ordering::SeqCst).saturating_add(empty), 100);
}

#[tokio::test]
async fn too_many_rows_of_a_partition_are_answered_with_503_and_are_no_finding() {
    let fixture = Fixture::new(Likeness::Rules).await;
    let request = batch(&rows(100), "x");
    for _ in 0..1000 {
        let answer = fixture.send(Service::Table, &request).await;
        if answer.status == 503 {
            assert!(
                answer.text.contains("ServerBusy") && answer.head.contains("retry-after: 1"),
                "{answer:?}"
            );
            return;
        }
    }
    panic!("100,000 rows of one partition were accepted at once");
}

#[tokio::test]
async fn an_operation_ends_after_the_timeout_of_the_server() {
    let fixture = Fixture::new(Likeness::Rules).await;
    let request = RawRequest::new("POST", &format!("{HANGING}?timeout=1"), insert("p", "r", []).body);
    let answer = fixture.send(Service::Table, &request).await;
    assert_eq!(answer.status, 500, "{answer:?}");
    assert!(answer.text.contains("OperationTimedOut"), "{answer:?}");
}

#[tokio::test]
async fn answers_have_the_latency_of_azure_only_on_request() {
    let get = RawRequest::new("GET", ROW, "");
    let fastest = async |likeness| {
        let fixture = Fixture::new(likeness).await;
        let mut fastest = Duration::MAX;
        for _ in 0..20 {
            let watch = wait::Stopwatch::start();
            fixture.permits(Service::Table, &get).await;
            fastest = fastest.min(watch.elapsed());
        }
        fastest
    };
    assert!(fastest(Likeness::RulesAndLatency).await >= Duration::from_millis(3));
    assert!(fastest(Likeness::Rules).await < Duration::from_millis(3));
}

#[tokio::test]
#[should_panic(expected = "the bank sent a request that Azure refuses: POST /account/work-0/messages")]
async fn a_test_with_a_refused_request_fails() {
    let fixture = Fixture::new(Likeness::Rules).await;
    drop(fixture.send(Service::Queue, &message(&"x".repeat(70_000))).await);
}
