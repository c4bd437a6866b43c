//! Each mishap does to a request what its description says: whether it arrives, how often, and what
//! comes back.

use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// What the service answers.
const BODY: &str = "the answer";

/// What came back: a status and a whole body, or nothing whole.
type Seen = Option<(u16, String)>;

/// Counts requests and answers each with 200, one request a connection.
async fn service(arrived: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(runtime().spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            // To the end of its body, so that nothing is unread when the connection closes.
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

/// What arrives at the service, and what comes back from the proxy.
async fn check(mishap: Option<Mishap>, arrives: usize, comes_back: Seen) {
    let arrived: Arc<AtomicUsize> = Arc::default();
    let dice = Arc::new(Dice::new(1));
    let desk = Desk {
        service: Service::Table,
        target: SocketAddr::from(([127, 0, 0, 1], service(Arc::clone(&arrived)).await)),
        http: reqwest::Client::builder().no_proxy().build().unwrap(),
        dice: Arc::clone(&dice),
        underway: Arc::default(),
    };
    let path = "/account/ledger".to_owned();
    let asked = Asked { method: Method::PUT, path, headers: HeaderMap::new(), body: Bytes::from("{}") };
    let seen = match desk.befall(&asked, mishap).await {
        Err(Cut) => None,
        Ok(response) => {
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.ok();
            body.map(|body| (status, String::from_utf8(body.to_bytes().to_vec()).unwrap()))
        }
    };
    assert_eq!(arrived.load(Ordering::SeqCst), arrives, "arrived with {mishap:?}");
    let status = |seen: &Seen| seen.as_ref().map(|(status, _)| *status);
    assert_eq!(status(&seen), status(&comes_back), "{mishap:?}: {seen:?}");
    if status(&comes_back) == Some(200) {
        assert_eq!(seen, comes_back, "{mishap:?}");
    }
    assert_eq!(dice.counts().into_keys().collect::<Vec<_>>(), Vec::from_iter(mishap), "noted");
}

#[tokio::test]
async fn each_mishap_does_what_it_says() {
    let answer = || Some((200, BODY.to_owned()));
    let error = |status| Some((status, String::new()));
    check(None, 1, answer()).await;
    check(Some(Mishap::Delayed), 1, answer()).await;
    check(Some(Mishap::Late), 1, answer()).await;
    check(Some(Mishap::Repeated), 2, answer()).await;
    check(Some(Mishap::CutBefore), 0, None).await;
    check(Some(Mishap::AnswerLost), 1, None).await;
    check(Some(Mishap::CutWithin), 1, None).await;
    check(Some(Mishap::Failed), 0, error(500)).await;
    check(Some(Mishap::FailedAfter), 1, error(500)).await;
    check(Some(Mishap::Busy), 0, error(503)).await;
    check(Some(Mishap::BusyAfter), 1, error(503)).await;
    check(Some(Mishap::Refused), 0, error(412)).await;
}

#[test]
fn writes_under_a_condition_are_told_from_others() {
    let asked = |method: Method, path: &str, condition: Option<&'static str>, body: &str| {
        let mut headers = HeaderMap::new();
        headers.extend(condition.map(|condition| (IF_MATCH, HeaderValue::from_static(condition))));
        let asked = Asked { method, path: path.to_owned(), headers, body: Bytes::from(body.to_owned()) };
        let Traits { writes, conditional } = asked.traits();
        (writes, conditional)
    };
    assert_eq!(asked(Method::GET, "/a/ledger()", None, ""), (false, false));
    assert_eq!(asked(Method::PUT, "/a/ledger(x)", Some("W/\"1\""), "{}"), (true, true));
    assert_eq!(asked(Method::DELETE, "/a/ledger(x)", Some("*"), ""), (true, false));
    assert_eq!(asked(Method::POST, "/a/$batch", None, "POST /a HTTP/1.1\r\n"), (true, false));
    assert_eq!(asked(Method::POST, "/a/$batch", None, "MERGE /a\r\nif-match: W/\"1\"\r\n"), (true, true));
}
