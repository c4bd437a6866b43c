//! Commands of `postonce-web` as they are run by an operator: in a folder, with variables, and with exit codes.

use std::io::PipeWriter;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use postonce_shared::adapters::sqlite::{Enqueue, SqliteStore};
use postonce_shared::testing::prelude::*;
use serde_json::Value;
use uuid::Uuid;

/// The result of a command.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

fn command(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postonce-web"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("POSTONCE_")) {
        command.env_remove(name);
    }
    command.current_dir(folder).envs(variables.iter().copied()).args(arguments);
    command
}

fn run(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
    ended(&mut command(folder, variables, arguments))
}

fn ended(command: &mut Command) -> Ended {
    let ended = command.output().expect("the program can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: ended.status.code(), out: text(&ended.stdout), err: text(&ended.stderr) }
}

#[test]
fn commands_refuse_a_folder_without_a_store_and_create_none() {
    let folder = tempfile::tempdir().unwrap();
    let commands: [&[&str]; 9] = [
        &["keys", "list"],
        &["keys", "add", "--partner", "shop"],
        &["partners", "add", "shop", "--all-accounts"],
        &["recover"],
        &["sweep"],
        &["gate", "show"],
        &["queues"],
        &["anchors"],
        &["verify"],
    ];
    for arguments in commands {
        let ended = run(folder.path(), &[], arguments);
        let expected = if arguments == ["verify"] { 2 } else { 1 };
        assert_eq!(ended.code, Some(expected), "{arguments:?}: {ended:?}");
        for part in ["there is no database /", "postonce-data/postonce.db", "POSTONCE_STORAGE"] {
            assert!(ended.err.contains(part), "{arguments:?}: {ended:?}");
        }
    }
    let ended = run(folder.path(), &[], &["backup", "copy.db"]);
    assert!(ended.code == Some(1) && ended.err.contains("postonce-data/postonce.db"), "{ended:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was created");
}

#[test]
fn wrong_settings_are_reported_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let variables =
        [("POSTONCE_QUEUE_COUNTS", "3"), ("POSTONCE_BIND", "localhost"), ("POSTONCE_API_KEY", "k")];
    for arguments in [&["keys", "list"][..], &[]] {
        let ended = run(folder.path(), &variables, arguments);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        for part in
            ["has 2 errors", "POSTONCE_QUEUE_COUNTS", "nearest one is POSTONCE_QUEUE_COUNT ", "ip:port"]
        {
            assert!(ended.err.contains(part), "{part}: {ended:?}");
        }
        assert!(!ended.err.contains("POSTONCE_API_KEY"), "{ended:?}");
    }
    let ended = run(folder.path(), &variables, &["config", "check", "--json"]);
    let findings: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((ended.code, findings["errors"].as_array().unwrap().len()), (Some(1), 2), "{findings}");
}

#[test]
fn the_settings_in_force_are_printed_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("POSTONCE_BOOTSTRAP_KEY", "hunter2hunter2hunter2"), ("POSTONCE_QUEUE_COUNT", "7")];
    let ended = run(folder.path(), &variables, &["config", "--log", "warn"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let line = |setting: &str| {
        let of_setting = |line: &&str| line.split_whitespace().nth(1) == Some(setting);
        ended.out.lines().find(of_setting).unwrap_or_default().split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(line("queue-count"), ["Storage", "queue-count", "7", "POSTONCE_QUEUE_COUNT"]);
    assert_eq!(line("log"), ["Logging", "log", "warn", "--log"]);
    assert_eq!(line("bind"), ["HTTP", "bind", "127.0.0.1:8080", "default"]);
    assert!(ended.out.contains("(not shown)") && !ended.out.contains("hunter2"), "{}", ended.out);
    let ended = run(folder.path(), &variables, &["config", "--json"]);
    let printed: Value = serde_json::from_str(&ended.out).unwrap();
    let settings = printed["settings"].as_array().unwrap();
    let key = settings.iter().find(|setting| setting["name"] == "bootstrap-key").unwrap();
    assert_eq!((&key["value"], &key["origin"]), (&"(not shown)".into(), &"environment".into()));
}

#[test]
fn a_check_reports_what_the_settings_refer_to_and_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ended = run(folder.path(), &[], &["config", "check"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.out.contains("note: the store was not checked") && ended.out.contains("no errors"),
        "{ended:?}"
    );
    let variables = [
        ("POSTONCE_TLS_CERTIFICATE", "missing.pem"),
        ("POSTONCE_TLS_KEY", "missing.key"),
        ("POSTONCE_ANCHOR_FOLDER", "missing"),
        ("POSTONCE_LOG", "postonce=loud"),
    ];
    let ended = run(folder.path(), &variables, &["config", "check"]);
    assert_eq!((ended.code, ended.out.lines().count()), (Some(1), 5), "{ended:?}");
    for part in ["missing.pem", "anchor-folder is \"missing\"", "log is \"postonce=loud\"", "has 3 errors"] {
        assert!(ended.out.contains(part), "{part}: {ended:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was created");
}

#[test]
fn the_help_of_a_command_shows_its_own_options() {
    let folder = tempfile::tempdir().unwrap();
    let help = run(folder.path(), &[], &["gate", "hold", "--help"]).out;
    assert!(help.contains("--reason") && help.contains("--help-settings"), "{help}");
    assert!(!help.contains("--queue-count") && help.lines().count() < 40, "{help}");
    // Also without the arguments that the command requires.
    let settings = run(folder.path(), &[], &["gate", "hold", "--help-settings"]);
    assert_eq!(settings.code, Some(0), "{settings:?}");
    for part in ["Storage:", "HTTP:", "Prices:", "--queue-count", "POSTONCE_QUEUE_COUNT"] {
        assert!(settings.out.contains(part), "{part}: {settings:?}");
    }
}

/// Returns a pipe that its reader has closed, as `head` does.
fn closed() -> PipeWriter {
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    writer
}

#[test]
fn a_command_whose_output_is_closed_ends_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let enqueue: Enqueue = Arc::new(|_| Vec::new());
    let store = folder.path().join("bank.db");
    let opened = SqliteStore::open(&store, enqueue, Arc::new(SystemWorld::new())).unwrap();
    // An audit refuses a store without any account.
    let key = AccountKey { user: UserId::from_uuid(Uuid::nil()), account: AccountId::from_uuid(Uuid::nil()) };
    let euro = Currency::parse("EUR").unwrap();
    let limit = OverdraftLimit::try_new(0, euro).unwrap();
    let account = Account::open(key, euro, limit, None, SystemWorld::new().now());
    drop(actix_web::rt::System::new().block_on(opened.accounts.open(&opening(account))).unwrap());
    drop(opened);
    let storage = format!("sqlite:{}", store.display());
    let variables = [("POSTONCE_STORAGE", &*storage), ("POSTONCE_LOG", "error")];
    let unknown = "0b1c2d3e-0000-4000-8000-000000000001/77aa0000-0000-4000-8000-000000000001";
    let commands: [(&[&str], u8); 26] = [
        (&["openapi"], 141),
        (&["openapi", "--strict"], 141),
        (&["json-schema"], 141),
        (&["metrics"], 141),
        (&["config"], 141),
        (&["config", "--json"], 141),
        (&["config", "check"], 141),
        (&["--help-settings"], 141),
        (&["partners", "add", "shop", "--all-accounts"], 141),
        (&["partners", "list"], 141),
        (&["partners", "show", "shop"], 141),
        (&["keys", "add", "--partner", "shop"], 141),
        (&["keys", "list"], 141),
        (&["gate", "show"], 141),
        (&["gate", "hold", "--reason", "test"], 141),
        (&["queues"], 141),
        (&["workers"], 141),
        (&["dead-letters", "list"], 141),
        (&["anchors", "new-key"], 141),
        (&["recover"], 141),
        (&["sweep"], 141),
        (&["verify"], 141),
        (&["verify", "--json"], 141),
        (&["backup", "copy.db"], 141),
        (&["--help"], 141),
        // Wrong usage stays that.
        (&["gate", "--version"], 2),
    ];
    for (arguments, code) in commands {
        let ended = ended(command(folder.path(), &variables, arguments).stdout(closed()));
        let is_quiet =
            !["panicked", "closed", "Broken pipe", "os error"].iter().any(|it| ended.err.contains(it));
        assert!(ended.code == Some(i32::from(code)) && is_quiet, "{arguments:?}: {ended:?}");
        // Standard error goes to the same reader.
        let mut both = command(folder.path(), &variables, arguments);
        let ended = both.stdout(closed()).stderr(closed()).status().unwrap();
        assert!([Some(1), Some(i32::from(code))].contains(&ended.code()), "{arguments:?}: {ended:?}");
    }
    // Its message cannot be written either.
    let mut unknown = command(folder.path(), &variables, &["accounts", "show", unknown]);
    assert_eq!(unknown.stderr(closed()).status().unwrap().code(), Some(4));
    let mut wrong = command(folder.path(), &variables, &["verify", "--anchors", "missing.jsonl"]);
    assert_eq!(wrong.stderr(closed()).status().unwrap().code(), Some(2));
}
