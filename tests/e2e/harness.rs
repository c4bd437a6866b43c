//! The harness keeps its word: nothing outlives a test, Azurite comes and goes, proxies cut.

use std::path::Path;

use postonce_tests::azurite::Azurite;
use postonce_tests::process::{Launch, Process};
use postonce_tests::proxy::{Mode, Proxy};
use postonce_tests::{wait, workspace};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Tells the test process that it is a helper of another one.
const HELPER: &str = "POSTONCE_TESTS_HELPER";

/// The other half of the next test: starts a child, tells its id, and waits to be killed.
#[test]
fn a_helper_starts_a_child() {
    if std::env::var_os(HELPER).is_none() {
        return;
    }
    let mut child =
        Process::start(&Launch::of("child", "sleep", &workspace::target_directory()).arguments(["900"]));
    println!("\nchild {}", child.pid());
    child.wait(wait::PATIENCE);
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
        helper.wait_for_line("child", wait::PATIENCE, |line| line.strip_prefix("child ")?.parse().ok());
    assert!(is_running(child));
    helper.kill();
    let gone = || if is_running(child) { Err("it runs".to_owned()) } else { Ok(()) };
    wait::block_until(wait::PATIENCE, gone).unwrap();
}

#[tokio::test]
async fn azurite_comes_back_on_its_ports_with_its_data() {
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
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    server.spawn(async move {
        loop {
            let (mut stream, _) = echo.accept().await.unwrap();
            let mut word = [0; 4];
            while stream.read_exact(&mut word).await.is_ok() {
                heard.send(word).unwrap();
                drop(stream.write_all(&word).await);
            }
        }
    });
    let proxy = Proxy::before(port);

    let mut open = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
    assert_eq!(ask(&mut open).await, Some(*b"ping"));
    assert_eq!(hears.recv().await, Some(*b"ping"));

    proxy.switch(Mode::Refuse);
    assert_eq!(ask(&mut open).await, None, "an open connection is cut");
    let mut refused = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
    assert_eq!(ask(&mut refused).await, None);

    proxy.switch(Mode::LoseAnswers);
    let mut unanswered = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
    assert_eq!(ask(&mut unanswered).await, None);
    assert_eq!(hears.recv().await, Some(*b"ping"), "the request arrives, only its answer is lost");

    proxy.switch(Mode::Forward);
    let mut back = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
    assert_eq!(ask(&mut back).await, Some(*b"ping"));
}

/// Says a word and waits for its echo; `None` when the connection closes instead.
async fn ask(stream: &mut TcpStream) -> Option<[u8; 4]> {
    let mut word = [0; 4];
    stream.write_all(b"ping").await.ok()?;
    stream.read_exact(&mut word).await.ok()?;
    Some(word)
}

async fn is_listening(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).await.is_ok()
}

/// A process that has ended, and whose parent did not ask yet, does not run.
fn is_running(pid: u32) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    status.is_ok_and(|stat| !stat.contains(") Z "))
}
