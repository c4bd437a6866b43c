//! `postonce-web batches submit` with documents that are no regular files, with files that others have prepared, and with a
//! service that sends more than text.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use postonce_tests::prelude::*;

use super::hostile::gzip;
use super::{Item, bank_with_accounts, csv, ndjson};

on_sqlite![
    a_document_comes_from_standard_input_and_from_pipes,
    results_are_private_and_written_through_no_link,
    a_key_with_a_line_end_works_and_a_wrong_one_is_not_shown,
];

/// A command that waited for ever would take longer.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Runs a line of bash in which `"$@"` is `postonce-web batches submit`. Returns its exit code and its output.
fn shell(bank: &Scenario, environment: &[(&str, &str)], line: &str) -> (Option<i32>, String) {
    let settings = Settings::default()
        .with("POSTONCE_API_KEY", bank.key())
        .with("POSTONCE_URL", bank.webs[0].address())
        .with("TMPDIR", bank.directory().to_string_lossy());
    let settings = environment.iter().fold(settings, |all, (name, value)| all.with(name, *value));
    let submit = launch(Binary::Web, &settings, &["batches", "submit"], &bank.directory());
    let mut bash =
        Launch { name: "bash".to_owned(), program: "bash".into(), arguments: Vec::new(), ..submit.clone() };
    bash = bash.arguments(["-c", line, "bash"]).arguments([submit.program]).arguments(submit.arguments);
    let (status, lines) = bash.run(TIME_MAX);
    (status.code(), lines.join("\n"))
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

async fn a_document_comes_from_standard_input_and_from_pipes(store_kind: StoreKind) {
    let (bank, client, accounts) = bank_with_accounts(store_kind, 1).await;
    let folder = bank.directory();
    let inputs = [
        r#"cat f | "$@" - --format ndjson --wait"#,
        r#"cat f | "$@" /dev/stdin --format ndjson --wait"#,
        r#""$@" /dev/stdin --format ndjson --wait < f"#,
        r#""$@" - --format ndjson --wait < f"#,
        r#""$@" <(cat f) --format ndjson --wait"#,
        r#"mkfifo pipe; cat f > pipe & "$@" pipe --format ndjson --wait; code=$?; rm pipe; exit $code"#,
        r#"gzip -c f | "$@" - --format ndjson --wait --results beside.ndjson"#,
    ];
    for (input, number) in inputs.into_iter().zip(1..) {
        let items: Vec<Item> = (0..3).map(|_| Item::new(accounts[0], "deposit", "1.00")).collect();
        fs::write(folder.join("f"), ndjson(&items)).expect("a file");
        let before = names(&folder);
        let (code, output) = shell(&bank, &[], input);
        assert_eq!(code, Some(0), "{input}\n{output}");
        assert_eq!(client.balance(accounts[0]).await, format!("{}.00", 3 * number), "{input}");
        let (_, results) = output.split_once("results: ").unwrap_or_else(|| panic!("{input}\n{output}"));
        let results = results.lines().next().unwrap_or_default();
        let written = fs::read_to_string(folder.join(results)).expect("results");
        assert_eq!(written.lines().count(), 3, "{input}");
        let new: Vec<String> = names(&folder).into_iter().filter(|name| !before.contains(name)).collect();
        assert_eq!(new, [results], "nothing else is left, such as the copy of the document: {input}");
    }
    for (input, problem) in [
        (r#""$@" . --format csv"#, ". cannot be read: it is a folder"),
        (r#""$@" none.csv"#, "none.csv cannot be read: No such file"),
        (r#"cat f | "$@" -"#, "standard input does not end with .ndjson"),
        (r#""$@" /dev/zero --format csv"#, "/dev/zero has more than 1 GiB"),
    ] {
        let (code, output) = shell(&bank, &[], input);
        assert_eq!(code, Some(1), "{input}\n{output}");
        assert!(output.contains(problem), "{input}\n{output}");
    }
    assert!(!names(&folder).iter().any(|name| name.starts_with("postonce-") || name.ends_with(".part")));
}

async fn results_are_private_and_written_through_no_link(store_kind: StoreKind) {
    let (bank, _, accounts) = bank_with_accounts(store_kind, 1).await;
    let folder = bank.directory();
    fs::write(folder.join("a.csv"), csv(&[Item::new(accounts[0], "deposit", "1.00")])).expect("a file");
    fs::write(folder.join("target"), "kept").expect("a file");
    symlink("target", folder.join("a.csv.results.csv.part")).expect("a link");
    symlink("target", folder.join("link.csv")).expect("a link");
    let (code, output) = shell(&bank, &[], r#"umask 000; "$@" a.csv --wait"#);
    assert_eq!(code, Some(0), "{output}");
    let results = folder.join("a.csv.results.csv").metadata().expect("results");
    assert_eq!(results.mode() & 0o777, 0o600);
    for line in [r#""$@" a.csv --wait --results link.csv"#, r#""$@" a.csv --wait --results /dev/stdout"#] {
        let (code, output) = shell(&bank, &[], line);
        assert_eq!(code, Some(1), "{output}");
        assert!(output.contains("it is a symbolic link, and not a regular file"), "{output}");
    }
    let (code, output) = shell(&bank, &[], r#""$@" a.csv --wait --results a.csv"#);
    assert_eq!(code, Some(2), "{output}");
    assert_eq!(fs::read_to_string(folder.join("target")).expect("the target"), "kept");
}

async fn a_key_with_a_line_end_works_and_a_wrong_one_is_not_shown(store_kind: StoreKind) {
    let (bank, client, accounts) = bank_with_accounts(store_kind, 1).await;
    let folder = bank.directory();
    fs::write(
        folder.join("a.ndjson.gz"),
        gzip(ndjson(&[Item::new(accounts[0], "deposit", "1.00")]).as_bytes()),
    )
    .expect("a file");
    let key = bank.key();
    let (code, output) =
        shell(&bank, &[("POSTONCE_API_KEY", &format!("{key}\r"))], r#""$@" a.ndjson.gz --wait"#);
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(client.balance(accounts[0]).await, "1.00");
    for (name, value) in [
        ("POSTONCE_API_KEY", "po_Zq9x\rmore"),
        ("POSTONCE_API_KEY", "po_Zq9x\nX-Evil: 1"),
        ("POSTONCE_API_KEY", "\r\n"),
        ("POSTONCE_URL", "http://ada:Zq9x@127.0.0.1:1"),
        ("POSTONCE_URL", "ftp://ada:Zq9x@127.0.0.1:1"),
        ("POSTONCE_URL", "http://ada:Zq9x@127.0.0.1:1 "),
        ("POSTONCE_URL", "http://ada:Zq9x@127.0.0.1:none"),
    ] {
        let (code, output) = shell(&bank, &[(name, value)], r#""$@" a.ndjson.gz"#);
        assert_eq!(code, Some(2), "{value:?}\n{output}");
        assert!(!output.contains("Zq9x"), "{output}");
        let (_, output) = shell(&bank, &[(name, value)], r#""$@" --help"#);
        assert!(!output.contains("Zq9x"), "{output}");
    }
}

/// Answers each request with a problem whose text has characters that a terminal obeys.
#[test]
fn what_a_service_sends_is_escaped_on_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a.csv"), "a").expect("a file");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let body = r#"{"code":"x\u001b]0;title\u0007","detail":"a\u001b[2Jb\r","violations":[{"field":"c\u009b1m","message":"\u202ed"}]}"#;
    let service = std::thread::spawn(move || {
        let (connection, _) = listener.accept().expect("a connection");
        let mut lines = BufReader::new(&connection).lines();
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let head = "HTTP/1.1 422 X\r\nContent-Type: application/problem+json\r\nConnection: close";
        let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        (&connection).write_all(answer.as_bytes()).expect("an answer");
    });
    let settings = Settings::default().with("POSTONCE_API_KEY", "po_key").with("POSTONCE_URL", url);
    let submit = launch(Binary::Web, &settings, &["batches", "submit", "a.csv"], folder.path());
    let (status, lines) = submit.run(TIME_MAX);
    service.join().expect("the service answered");
    let output = lines.join("\n");
    assert_eq!(status.code(), Some(3), "{output}");
    assert!(output.contains(r"x\u001b]0;title\u0007 (422): a\u001b[2Jb\u000d"), "{output}");
    assert!(output.contains(r"c\u009b1m: \u202ed"), "{output}");
    assert!(!output.chars().any(|c| c.is_control() && c != '\n'), "{output:?}");
}
