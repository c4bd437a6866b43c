//! Tests of the harness: no process outlives a test, Azurite stops and starts, proxies cut connections.

use std::path::Path;

use postonce_tests::prelude::*;
use postonce_tests::proxy::{Mode, Proxy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Marks the test process as the helper of another one.
const HELPER: &str = "POSTONCE_TESTS_HELPER";

/// A part of the next test: starts a child process, prints its id, and waits to be killed.
#[test]
fn a_helper_starts_a_child() {
    if std::env::var_os(HELPER).is_none() {
        return;
    }
    let mut child =
        Process::start(&Launch::of("child", "sleep", &workspace::target_directory()).arguments(["900"]));
    println!("\nchild {}", child.pid());
    child.wait(wait::TIMEOUT);
}

#[test]
fn a_child_ends_when_its_test_process_is_killed() {
    let program = std::env::current_exe().unwrap();
    let mut launch = Launch::of("helper", program, &workspace::target_directory()).arguments([
        "--exact",
        "harness::a_helper_starts_a_child",
        "--nocapture",
    ]);
    launch.environment.insert(HELPER.to_owned(), "yes".to_owned());
    let mut helper = Process::start(&launch);
    let child: u32 =
        helper.wait_for_line("child", wait::TIMEOUT, |line| line.strip_prefix("child ")?.parse().ok());
    assert!(is_running(child));
    helper.kill();
    let gone = || if is_running(child) { Err("it still runs".to_owned()) } else { Ok(()) };
    wait::block_until(wait::TIMEOUT, gone).unwrap();
}

#[tokio::test]
async fn azurite_restarts_on_its_ports_with_its_data() {
    let mut azurite = Azurite::private();
    let ports = azurite.ports();
    assert!(is_listening(ports.table).await && is_listening(ports.queue).await);
    azurite.stop();
    assert!(!is_listening(ports.table).await && !is_listening(ports.blob).await);
    azurite.resume();
    assert_eq!(azurite.ports(), ports);
    assert!(is_listening(ports.table).await);
}

#[tokio::test]
async fn a_proxy_forwards_refuses_and_loses_answers() {
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = echo.local_addr().unwrap().port();
    let mut server = tokio::task::JoinSet::new();
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    server.spawn(async move {
        loop {
            let (mut stream, _) = echo.accept().await.unwrap();
            let mut word = [0; 4];
            while stream.read_exact(&mut word).await.is_ok() {
                sender.send(word).unwrap();
                drop(stream.write_all(&word).await);
            }
        }
    });
    let proxy = Proxy::before(port);

    let mut open = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
    assert_eq!(echo_of(&mut open).await, Some(*b"ping"));
    assert_eq!(received.recv().await, Some(*b"ping"));

    proxy.switch(Mode::Refuse);
    assert_eq!(echo_of(&mut open).await, None, "an open connection is cut");
    let mut refused = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
    assert_eq!(echo_of(&mut refused).await, None);

    proxy.switch(Mode::LoseAnswers);
    let mut unanswered = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
    assert_eq!(echo_of(&mut unanswered).await, None);
    assert_eq!(received.recv().await, Some(*b"ping"), "the request arrives, only its answer is lost");

    proxy.switch(Mode::Forward);
    let mut back = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
    assert_eq!(echo_of(&mut back).await, Some(*b"ping"));
}

/// Sends a word and waits for its echo; `None` if the connection closes.
async fn echo_of(stream: &mut TcpStream) -> Option<[u8; 4]> {
    let mut word = [0; 4];
    stream.write_all(b"ping").await.ok()?;
    stream.read_exact(&mut word).await.ok()?;
    Some(word)
}

async fn is_listening(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).await.is_ok()
}

/// A process that has ended, and whose parent has not waited for it yet, does not run.
fn is_running(pid: u32) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    status.is_ok_and(|stat| !stat.contains(") Z "))
}
