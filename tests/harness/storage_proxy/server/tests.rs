//! Each fault has the described effect: whether the request is executed, how often, and what is returned.

use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::storage_proxy::storage_fault::{FaultInjector, RequestTraits};
use hyper::header::IF_MATCH;

const BODY: &str = "the answer";

/// Status and body of a complete response; `None` for any other result.
type Received = Option<(u16, String)>;

/// Starts a service that counts requests and responds with 200, with one request per connection.
async fn service(arrived: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(runtime().spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            // Reads the whole body, so that nothing is unread when the connection closes.
            let mut request = Vec::new();
            while !request.ends_with(b"{}") {
                assert!(client.read_buf(&mut request).await.unwrap() > 0, "a whole request");
            }
            arrived.fetch_add(1, Ordering::SeqCst);
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", BODY.len());
            client.write_all(format!("{head}{BODY}").as_bytes()).await.unwrap();
        }
    }));
    port
}

/// Checks the number of requests that arrive at the service, and the response of the proxy.
async fn check(fault: Option<StorageFault>, arrives: usize, expected: Received) {
    let arrived: Arc<AtomicUsize> = Arc::default();
    let faults = Arc::new(FaultInjector::new(1));
    let port = service(Arc::clone(&arrived)).await;
    let state = ProxyState::new(Service::Table, port, &Arc::new(Shared::new(&faults, false)));
    let target = PathAndQuery::from_static("/account/ledger");
    let request =
        ProxiedRequest { method: Method::PUT, target, headers: HeaderMap::new(), body: Bytes::from("{}") };
    let received = match state.apply(&request, fault).await {
        Err(ConnectionCut) => None,
        Ok(response) => {
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.ok();
            body.map(|body| (status, String::from_utf8(body.to_bytes().to_vec()).unwrap()))
        }
    };
    assert_eq!(arrived.load(Ordering::SeqCst), arrives, "arrived with {fault:?}");
    let status = |received: &Received| received.as_ref().map(|(status, _)| *status);
    assert_eq!(status(&received), status(&expected), "{fault:?}: {received:?}");
    if status(&expected) == Some(200) {
        assert_eq!(received, expected, "{fault:?}");
    }
    assert_eq!(faults.counts().into_keys().collect::<Vec<_>>(), Vec::from_iter(fault), "counted");
}

#[tokio::test]
async fn each_storage_fault_does_what_it_says() {
    let answer = || Some((200, BODY.to_owned()));
    let error = |status| Some((status, String::new()));
    check(None, 1, answer()).await;
    check(Some(StorageFault::Delayed), 1, answer()).await;
    check(Some(StorageFault::Late), 1, answer()).await;
    check(Some(StorageFault::Repeated), 2, answer()).await;
    check(Some(StorageFault::CutBefore), 0, None).await;
    check(Some(StorageFault::AnswerLost), 1, None).await;
    check(Some(StorageFault::CutWithin), 1, None).await;
    check(Some(StorageFault::Failed), 0, error(500)).await;
    check(Some(StorageFault::FailedAfter), 1, error(500)).await;
    check(Some(StorageFault::Busy), 0, error(503)).await;
    check(Some(StorageFault::BusyAfter), 1, error(503)).await;
    check(Some(StorageFault::Refused), 0, error(412)).await;
}

#[test]
fn conditional_writes_are_recognized() {
    let request = |method: Method, path: &str, condition: Option<&'static str>, body: &str| {
        let mut headers = HeaderMap::new();
        headers.extend(condition.map(|condition| (IF_MATCH, HeaderValue::from_static(condition))));
        let target = path.parse().unwrap();
        let request = ProxiedRequest { method, target, headers, body: Bytes::from(body.to_owned()) };
        let RequestTraits { writes, conditional } = request.traits();
        (writes, conditional)
    };
    assert_eq!(request(Method::GET, "/a/ledger()", None, ""), (false, false));
    assert_eq!(request(Method::PUT, "/a/ledger(x)", Some("W/\"1\""), "{}"), (true, true));
    assert_eq!(request(Method::DELETE, "/a/ledger(x)", Some("*"), ""), (true, false));
    assert_eq!(request(Method::POST, "/a/$batch", None, "POST /a HTTP/1.1\r\n"), (true, false));
    assert_eq!(request(Method::POST, "/a/$batch", None, "MERGE /a\r\nif-match: W/\"1\"\r\n"), (true, true));
}
