use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::thread::JoinHandle;

use clap::Parser;
use postonce_shared::adapters::system::SystemWorld;
use reqwest::StatusCode;

use super::service::reason;
use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    command: BatchesCommand,
}

fn parsed(arguments: &[&str]) -> Result<SubmitCommand, clap::Error> {
    let all = ["batches", "submit", "--key", "secret"].iter().chain(arguments);
    Line::try_parse_from(all).map(|Line { command: BatchesCommand::Submit(command) }| command)
}

#[test]
fn the_arguments_are_checked() {
    let command = parsed(&["payroll.csv", "--wait", "--results", "out.csv", "--on-invalid", "skip"]).unwrap();
    assert_eq!((command.on_invalid.as_str(), command.wait), ("skip", true));
    assert!(!format!("{command:?}").contains("secret"));
    assert!(parsed(&[]).is_err());
    assert!(parsed(&["a.csv", "--results", "out.csv"]).is_err(), "without --wait there are none");
    assert!(parsed(&["a.csv", "--on-invalid", "ignore"]).is_err());
    assert!(parsed(&["a.csv", "--id", "7"]).is_err());
    assert!(parsed(&["a.csv", "--format", "pdf"]).is_err());
}

#[test]
fn a_refusal_names_every_violation() {
    let problem = r#"{"type":"urn:postonce:problem:validation_failed","title":"a","status":422,"detail":"2 errors.",
        "code":"validation_failed","violations":[{"field":"line 2, amount","message":"is missing"},
        {"field":"Batch-Count","message":"is 5, but the document has 4 items"}]}"#;
    let text = reason(StatusCode::UNPROCESSABLE_ENTITY, problem.as_bytes());
    let expected = "validation_failed (422): 2 errors.\n  line 2, amount: is missing\n  \
                    Batch-Count: is 5, but the document has 4 items";
    assert_eq!(text, expected);
    assert_eq!(reason(StatusCode::BAD_GATEWAY, b"<html>"), "the status is 502 Bad Gateway");
}

/// Answers requests one after the other, and closes the connection after each. Returns the first lines of the requests.
fn answering(answers: Vec<String>) -> (Url, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let requests = std::thread::spawn(move || {
        let answer = |answer: String| {
            let (connection, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&connection).lines().map(Result::unwrap);
            let first = lines.next().unwrap();
            assert!(lines.any(|line| line.is_empty()), "the end of the head");
            (&connection).write_all(answer.as_bytes()).unwrap();
            first
        };
        answers.into_iter().map(answer).collect()
    });
    (url, requests)
}

#[tokio::test]
async fn interrupted_results_continue_after_the_last_complete_line() {
    let lines = RESULTS.join("\n") + "\n";
    let head =
        |length: usize| format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    let cut = RESULTS[0].len() + RESULTS[1].len() + 10;
    let busy = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (url, requests) = answering(vec![
        busy.to_owned(),
        format!("{}{}", head(lines.len()), &lines[..cut]),
        format!("{}{}", head(RESULTS[2].len() + 1), RESULTS[2].to_owned() + "\n"),
        format!("{}{}", head(RESULTS[3].len() + 1), RESULTS[3].to_owned() + "\n"),
    ]);
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let (progress, key) = (Progress::new(&world), SecretString::from("secret"));
    let service = Service::new(&url, &key, Duration::from_secs(60), &world, &progress).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.ndjson");
    let mut results = ResultsFile::create(&path).unwrap();
    service.read_results(Uuid::nil(), 4, &mut results).await.unwrap();
    assert_eq!(results.finish().unwrap(), 2);
    assert_eq!(fs::read_to_string(&path).unwrap(), lines);
    let requests = requests.join().unwrap();
    let after: Vec<&str> = requests.iter().map(|line| line.split(['=', ' ']).nth(2).unwrap()).collect();
    assert_eq!(after, ["0", "0", "2", "3"]);
}

/// Results of a posted, a rejected and two repeated items.
const RESULTS: [&str; 4] = [
    r#"{"line":1,"message_id":"a","status":"posted","order_number":"7","balance_after":"1.00"}"#,
    r#"{"line":2,"message_id":"b","status":"rejected","reason":"insufficient_funds"}"#,
    r#"{"line":3,"status":"replayed","order_number":"8","balance_after":"2.00"}"#,
    r#"{"line":4,"message_id":"d","status":"replayed","reason":"account, \"closed\""}"#,
];

#[test]
fn results_are_written_completely_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let names = || fs::read_dir(folder.path()).unwrap().count();
    for (name, expected) in [
        ("a.ndjson", format!("{}\n", RESULTS.join("\n"))),
        (
            "a.csv",
            "line,message_id,status,order_number,balance_after,reason\r\n1,a,posted,7,1.00,\r\n\
             2,b,rejected,,,insufficient_funds\r\n3,,replayed,8,2.00,\r\n\
             4,d,replayed,,,\"account, \"\"closed\"\"\"\r\n"
                .to_owned(),
        ),
    ] {
        let path = folder.path().join(name);
        let before = names();
        let mut results = ResultsFile::create(&path).unwrap();
        results.add(RESULTS[0].as_bytes()).unwrap();
        assert!(results.add(RESULTS[2].as_bytes()).unwrap_err().to_string().contains("line 3 instead of 2"));
        drop(results);
        assert_eq!(names(), before, "nothing is left of it");
        let mut results = ResultsFile::create(&path).unwrap();
        for line in RESULTS {
            results.add(line.as_bytes()).unwrap();
        }
        assert!(!path.exists());
        assert_eq!(results.finish().unwrap(), 2);
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(names(), before + 1);
    }
}

#[test]
fn the_id_is_that_of_the_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let id = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let document = Document::open(&path, Some(DocumentFormat::Csv), &Progress::new(&world)).unwrap();
        assert_eq!(document.results_path(), folder.path().join(format!("{name}.results.csv")));
        document.id
    };
    assert_eq!(id("a", "one"), id("b", "one"));
    assert_ne!(id("a", "one"), id("a", "two"));
    assert!(Document::open(&folder.path().join("none.csv"), None, &Progress::new(&world)).is_err());
    assert!(Document::open(&folder.path().join("a"), None, &Progress::new(&world)).is_err(), "no format");
}
