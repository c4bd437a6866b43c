use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;

use clap::Parser;
use postonce_shared::adapters::system::SystemWorld;
use reqwest::StatusCode;
use serde_json::json;

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
    let hostile = r#"{"code":"a\u001b[2J","detail":"b\nposted","violations":[{"field":"c\u009b","message":"\u202ed"}]}"#;
    let text = reason(StatusCode::UNPROCESSABLE_ENTITY, hostile.as_bytes());
    assert_eq!(text, r"a\u001b[2J (422): b\u000aposted".to_owned() + "\n  " + r"c\u009b: \u202ed");
}

#[test]
fn a_batch_of_a_newer_service_is_read_and_its_texts_are_printable() {
    let printed = |phase: &str| {
        let batch: Batch = serde_json::from_value(json!({
            "batch_id": "a\u{1b}[2J", "phase": phase, "on_invalid": "sort", "items": 3, "posted": 1, "rejected": 0,
            "refused": 0, "replayed": 1, "invalid": 0, "operations_per_item": "0.021",
            "usd_per_million_items": "0.210000000", "received_at": "2026-11-21T07:00:00.000Z", "weight": 7,
            "sums": [{ "currency": "E\nR", "type": "deposit", "posted": "1.00", "weight": 7 }],
            "hindrance": { "code": "tide", "message": "The tide is low.", "at": "2026-11-21T07:00:00.000Z", "weight": 7 }
        }))
        .unwrap();
        assert_eq!(batch.done(), 2);
        let mut out = Vec::new();
        describe(&batch, &mut out).unwrap();
        (String::from_utf8(out).unwrap(), batch.phase.is_final())
    };
    assert_eq!(printed("drying\n"), ("batch a\\u001b[2J: drying\\u000a, 3 items\n".to_owned(), false));
    let (text, is_final) = printed("completed");
    assert!(is_final);
    assert_eq!(
        text,
        "batch a\\u001b[2J: completed, 3 items: 1 posted, 0 rejected, 0 refused, 1 replayed, 0 invalid\n\
         posted deposits: 1.00 E\\u000aR\n"
    );
}

/// Answers requests one by one, and closes the connection after each. Returns the request lines.
fn answering(answers: Vec<String>) -> (Url, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let requests = std::thread::spawn(move || {
        // Other programs may still know a process that had this port before.
        let asked = |connection: &TcpStream| {
            let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
            let first = lines.next().filter(|line| line.starts_with("GET /v1/batches/"))?;
            lines.any(|line| line.is_empty()).then_some(first)
        };
        let answer = |answer: String| loop {
            let (connection, _) = listener.accept().unwrap();
            connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            if let Some(first) = asked(&connection) {
                (&connection).write_all(answer.as_bytes()).unwrap();
                return first;
            }
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

/// Uploads a document, and returns the result and the number of bytes that the service received.
fn uploaded(path: &Path, before: impl FnOnce(&Path)) -> (Result<Response, SubmitError>, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url: Url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let received = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        drop(std::io::copy(&mut connection, &mut received));
        received.len()
    });
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let (progress, key) = (Progress::new(&world), SecretString::from("secret"));
    let document = Document::open(path, None, &progress).unwrap();
    before(path);
    let service = Service::new(&url, &key, Duration::from_secs(60), &world, &progress).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sent = runtime.block_on(async {
        let send = |client: &reqwest::Client, url: Url| document.send(client.post(url), &progress);
        service.read("v1/batches", send).await
    });
    drop(runtime);
    (sent, received.join().unwrap())
}

type Response = serde_json::Value;

#[test]
fn a_document_that_changes_between_two_reads_is_not_sent_completely() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    let changes: [fn(&Path); 3] = [
        |path| fs::write(path, "b".repeat(600_000)).unwrap(),
        |path| fs::write(path, "a".repeat(300_000)).unwrap(),
        |path| fs::write(path, "a".repeat(600_001)).unwrap(),
    ];
    for change in changes {
        fs::write(&path, "a".repeat(600_000)).unwrap();
        let (sent, received) = uploaded(&path, change);
        let failure = sent.unwrap_err();
        assert!(failure.to_string().contains("a.csv was changed while it was read"), "{failure}");
        assert_eq!(failure.exit_code(), 1);
        assert!(received < 600_000, "{received} bytes, which may be the whole document");
    }
}

#[test]
fn what_is_no_file_is_refused_and_a_pipe_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let open = |path: &Path| Document::open(path, Some(DocumentFormat::Csv), &Progress::new(&world));
    let refused = |path: &Path| format!("{:#}", open(path).unwrap_err());
    assert!(refused(folder.path()).contains("it is a folder"));
    assert!(refused(&folder.path().join("missing")).contains("No such file"));
    let socket = folder.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(refused(&socket).contains("it is a socket"));
    let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
    fs::write(&file, "content").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, "content").unwrap()
    });
    let copied = open(&pipe).unwrap();
    writer.join().unwrap();
    assert_eq!(copied.id, open(&file).unwrap().id);
    let expected = format!("{}.results.csv", copied.id);
    assert_eq!(copied.results_path(copied.id), Path::new(&expected), "not beside the pipe");
    assert!(open(&file).unwrap().is_at(&file) && !copied.is_at(&pipe));
    assert_eq!(open(Path::new("/dev/null")).unwrap().results_path(Uuid::nil()).parent(), Some(Path::new("")));
}

#[test]
fn a_key_and_a_url_that_cannot_be_sent_are_wrong_usage_and_not_shown() {
    let command = |key: &str, url: &str| {
        let arguments = ["batches", "submit", "a.csv", "--key", key, "--url", url];
        let Line { command: BatchesCommand::Submit(command) } = Line::try_parse_from(arguments).unwrap();
        command
    };
    for key in ["po_Zq9x", "po_Zq9x\r", "po_Zq9x\r\n", "po_Zq9x\n"] {
        assert_eq!(command(key, "http://host").key().unwrap().expose_secret(), "po_Zq9x");
    }
    for key in ["", "\r\n", "po_Zq9x\rmore", "po_ Zq9x", "po_Zq9xé", "po_Zq9x\nX-Evil: 1"] {
        let failure = command(key, "http://host").key().unwrap_err();
        assert_eq!(failure.exit_code(), 2, "{key:?}");
        assert!(!failure.to_string().contains("Zq9x"), "{failure}");
    }
    assert_eq!(command("k", "https://host:1/base").url().unwrap().as_str(), "https://host:1/base");
    for url in [
        "http://ada:Zq9x@host",
        "https://Zq9x@host",
        "ftp://ada:Zq9x@host",
        "ada:Zq9x@host",
        "http://ada:Zq9x@ho st",
        "http://host?Zq9x",
        "host",
        "",
    ] {
        let failure = command("k", url).url().unwrap_err();
        assert_eq!(failure.exit_code(), 2, "{url:?}");
        assert!(!failure.to_string().contains("Zq9x"), "{failure}");
    }
}

#[test]
fn cells_of_csv_are_no_formulas_and_numbers_stay_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    let mut results = ResultsFile::create(&path).unwrap();
    let sent = r#"{"line":1,"message_id":"=HYPERLINK(\"http://x\")","status":"@x","order_number":"+1","balance_after":"-5.00",
        "reason":"\t=1+1"}"#;
    results.add(sent.as_bytes()).unwrap();
    results.finish().unwrap();
    let written = fs::read_to_string(&path).unwrap();
    let line = "1,\"'=HYPERLINK(\"\"http://x\"\")\",'@x,'+1,-5.00,'\t=1+1";
    assert_eq!(written.split("\r\n").nth(1), Some(line));
}

#[test]
fn results_take_the_place_of_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.csv"), "content").unwrap();
    std::os::unix::fs::symlink(path("a.csv"), path("link.csv")).unwrap();
    std::os::unix::fs::symlink(path("other"), path("dangling.csv")).unwrap();
    let document = Document::open(&path("a.csv"), None, &Progress::new(&world)).unwrap();
    let code = |path: &Path| check_results(path, &document).map_err(|failure| failure.exit_code());
    assert_eq!(code(&path("a.csv")), Err(2), "the document");
    assert_eq!(code(&path("link.csv")), Err(2), "the document");
    assert_eq!(code(&path("missing/b.csv")), Err(2));
    assert_eq!(code(&path("dangling.csv")), Err(1));
    assert_eq!(code(folder.path()), Err(1));
    assert_eq!(code(Path::new("/dev/stdout")), Err(1));
    assert_eq!(code(&path("b.csv")), Ok(()));
    assert!(parsed(&["a.csv", "--wait", "--results", "-"]).is_err());
}

/// Results of a posted, a rejected and two replayed items.
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
        assert_eq!(document.results_path(Uuid::nil()), folder.path().join(format!("{name}.results.csv")));
        document.id
    };
    assert_eq!(id("a", "one"), id("b", "one"));
    assert_ne!(id("a", "one"), id("a", "two"));
    assert!(Document::open(&folder.path().join("none.csv"), None, &Progress::new(&world)).is_err());
    assert!(Document::open(&folder.path().join("a"), None, &Progress::new(&world)).is_err(), "no format");
}
