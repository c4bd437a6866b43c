use std::sync::Arc;

use clap::Parser;
use postonce_shared::messaging::envelope;
use postonce_shared::testing::prelude::*;
use serde_json::{Value, json};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: DeadLettersCommand,
}

/// A bank with the dead letters `a`, `b` and `c` of messages that are not readable.
async fn bank() -> Bank {
    let world: Arc<dyn World> = Arc::new(TestWorld::new(1));
    let store = MemoryStore::new(Arc::clone(&world));
    let keys = DoorbellKeys::parse("a-secret-of-the-tests").unwrap();
    let secret = DoorbellSecret::new(Some(&keys));
    let bank = Bank::new(store, Arc::clone(&world), Arc::<LocalDoorbell>::default(), Seal::new(&secret), 1);
    for (id, reason) in [("a", "is not readable"), ("b", "failed 5 times"), ("c", "is not readable, too")] {
        let letter = DeadLetter {
            id: id.to_owned(),
            queue: queue(),
            reason: reason.to_owned(),
            body: b"not a message of the bank".to_vec(),
            dequeue_count: 1,
            inserted_at: world.now(),
            dead_at: world.now(),
            resolution: None,
        };
        bank.store.dead_letters.add(&letter).await.unwrap();
    }
    bank
}

fn queue() -> QueueName {
    envelope::queues(1).swap_remove(0)
}

/// Runs a command line. Returns its exit code and output, or its error.
async fn run_line(bank: &Bank, words: &[&str]) -> Result<(String, String), String> {
    let line =
        Line::try_parse_from(["dead-letters"].iter().chain(words)).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    let code = run(line.command, bank, &mut out).await.map_err(|error| format!("{error:#}"))?;
    Ok((format!("{code:?}"), String::from_utf8(out).unwrap()))
}

fn code(code: u8) -> String {
    format!("{:?}", ExitCode::from(code))
}

async fn open(bank: &Bank) -> Vec<String> {
    let (_, printed) = run_line(bank, &["list", "--json"]).await.unwrap();
    let listed: Value = serde_json::from_str(&printed).unwrap();
    let letters = listed["dead_letters"].as_array().unwrap();
    letters.iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn dead_letters_are_listed_and_shown() {
    let bank = bank().await;
    let (listed_code, listed) = run_line(&bank, &["list"]).await.unwrap();
    assert_eq!((listed_code, listed.lines().count()), (code(0), 4), "{listed}");
    assert!(listed.contains("failed 5 times") && listed.contains("open"), "{listed}");
    let (_, shown) = run_line(&bank, &["show", "b"]).await.unwrap();
    assert!(shown.contains("not a message of the bank"), "{shown}");
    let unknown = run_line(&bank, &["show", "x"]).await.unwrap_err();
    assert!(unknown.contains("no dead letter \"x\""), "{unknown}");
}

#[tokio::test]
async fn those_of_a_reason_are_replayed_and_each_outcome_has_its_exit_code() {
    let bank = bank().await;
    let (done, printed) = run_line(&bank, &["replay", "--reason", "not readable"]).await.unwrap();
    assert_eq!((done, printed.lines().last()), (code(0), Some("replayed 2 of 2 dead letters")));
    assert_eq!(open(&bank).await, ["b"]);
    assert_eq!(bank.store.queue.backlog(&queue()).await.unwrap().depth, 2, "their messages are enqueued");
    let (part, printed) = run_line(&bank, &["replay", "a", "b", "x", "--json"]).await.unwrap();
    let outcomes: Value = serde_json::from_str(&printed).unwrap();
    let outcomes: Vec<&str> = outcomes["dead_letters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["outcome"].as_str().unwrap())
        .collect();
    assert_eq!((part, outcomes), (code(5), vec!["already_resolved", "done", "unknown"]));
    assert_eq!(run_line(&bank, &["replay", "x"]).await.unwrap().0, code(1));
    assert_eq!(run_line(&bank, &["replay", "--all"]).await.unwrap().0, code(0), "nothing is left to do");
    let rows = bank.audit.list(None, 10).await.unwrap();
    let acts: Vec<_> = rows.iter().map(|row| (row.done.act.as_str(), row.done.target.as_str())).collect();
    let replayed = |id| ("dead_letter.replay", id);
    assert_eq!(acts, [replayed("id=b"), replayed("id=c"), replayed("id=a")]);
}

#[tokio::test]
async fn many_are_discarded_only_after_confirmation() {
    let bank = bank().await;
    let refused = run_line(&bank, &["discard", "--all"]).await.unwrap_err();
    assert!(refused.contains("use --yes to discard these 3 dead letters"), "{refused}");
    assert_eq!(open(&bank).await, ["a", "b", "c"]);
    let (done, printed) = run_line(&bank, &["discard", "b", "--json"]).await.unwrap();
    let expected = json!({"dead_letters": [{"id": "b", "outcome": "done"}]});
    assert_eq!((done, serde_json::from_str::<Value>(&printed).unwrap()), (code(0), expected));
    run_line(&bank, &["discard", "--all", "--yes"]).await.unwrap();
    assert_eq!(open(&bank).await, Vec::<String>::new());
    let letter = bank.store.dead_letters.find("a").await.unwrap().unwrap();
    assert_eq!(letter.resolution.unwrap().by, "operator");
    for wrong in [&["replay"][..], &["replay", "a", "--all"]] {
        assert!(run_line(&bank, wrong).await.is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_reason_without_text_selects_nothing() {
    let bank = bank().await;
    for act in [&["replay"][..], &["discard", "--yes"]] {
        for empty in ["", "  ", "\t\n"] {
            let words: Vec<_> = act.iter().copied().chain(["--reason", empty]).collect();
            let refused = run_line(&bank, &words).await.unwrap_err();
            assert!(refused.contains("--reason") && refused.contains("--all"), "{words:?}: {refused}");
        }
    }
    assert_eq!(open(&bank).await, ["a", "b", "c"], "nothing was changed");
}
