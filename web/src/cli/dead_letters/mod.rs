//! `postonce-web dead-letters …`: lists, shows, replays and discards dead letters. It accesses the store directly, needs
//! no running server, and wakes the running workers.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use postonce_shared::bank::Bank;
use postonce_shared::oversight::audit::{AuditTarget, Event, OPERATOR, Outcome};
use postonce_shared::ports::dead_letters::DeadLetter;
use postonce_shared::ports::fault::chain;
use postonce_shared::protocol::dead_letters::{DeadLetterFault, ResolveOutcome};
use serde::Serialize;

use crate::api::views;
use crate::cli::output::{EXIT_CODES, INCOMPLETE, json, table};

const LIST_PAGE: usize = 200;
/// Maximum number of characters of a reason in a list.
const REASON_CHARS: usize = 100;

/// Subcommands of `dead-letters`.
#[derive(Debug, Clone, Subcommand)]
pub enum DeadLettersCommand {
    /// List the open dead letters
    List {
        /// List the resolved ones as well
        #[arg(long)]
        resolved: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a dead letter with its body
    Show {
        /// Id of the dead letter
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Enqueue the transactions of dead letters again. Those that are final do not change
    #[command(after_help = EXIT_CODES)]
    Replay {
        /// Dead letters
        #[command(flatten)]
        which: Which,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Reject the transactions of dead letters that are not final, with the reason discarded
    #[command(after_help = EXIT_CODES)]
    Discard {
        /// Dead letters
        #[command(flatten)]
        which: Which,
        /// Discard the dead letters that --reason or --all selects; without it they are only listed
        #[arg(long)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Selection of dead letters.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct Which {
    /// Ids of dead letters
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// All open dead letters whose reason contains this text
    #[arg(long, value_name = "TEXT", value_parser = parse_text)]
    reason: Option<String>,
    /// All open dead letters
    #[arg(long)]
    all: bool,
}

/// Parses the text of `--reason`. An empty text, as of an unset variable in a script, would select all dead letters.
fn parse_text(text: &str) -> Result<String, &'static str> {
    let is_text = text.chars().any(|c| !c.is_whitespace());
    is_text
        .then(|| text.to_owned())
        .ok_or("must contain more than spaces; use --all for all open dead letters")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Replay,
    Discard,
}

impl Act {
    const fn code(self) -> &'static str {
        match self {
            Self::Replay => "dead_letter.replay",
            Self::Discard => "dead_letter.discard",
        }
    }
}

#[derive(Debug, Serialize)]
struct Resolved {
    id: String,
    /// `done`, `unknown`, `already_resolved` or `failed`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Listed<T> {
    dead_letters: Vec<T>,
}

/// Runs a command and prints its result.
///
/// # Errors
/// When the store cannot be read, the dead letter to show is unknown, or `--yes` is missing.
pub async fn run(
    command: DeadLettersCommand,
    bank: &Bank,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    match command {
        DeadLettersCommand::List { resolved, json: as_json } => {
            let letters = read(bank, !resolved, |_| true).await?;
            if as_json {
                let dead_letters = letters.into_iter().map(views::dead_letter).collect();
                json(&Listed { dead_letters }, out)?;
            } else {
                list(&letters, out)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        DeadLettersCommand::Show { id, json: as_json } => {
            let letter = bank.store.dead_letters.find(&id).await.context("the dead letter cannot be read")?;
            let Some(letter) = letter else { bail!(unknown(&id)) };
            if as_json {
                json(&views::dead_letter(letter), out)?
            } else {
                show(letter, out)?
            }
            Ok(ExitCode::SUCCESS)
        }
        DeadLettersCommand::Replay { which, json } => {
            let ids = which.selected(bank).await?.into_iter().map(|selected| selected.0).collect();
            resolve(Act::Replay, ids, bank, json, out).await
        }
        DeadLettersCommand::Discard { which, yes, json } => {
            let selected = which.selected(bank).await?;
            if which.ids.is_empty() && !yes && !selected.is_empty() {
                let letters: Vec<DeadLetter> =
                    selected.into_iter().filter_map(|selected| selected.1).collect();
                list(&letters, out)?;
                bail!("nothing was changed: use --yes to discard these {} dead letters", letters.len());
            }
            let ids = selected.into_iter().map(|selected| selected.0).collect();
            resolve(Act::Discard, ids, bank, json, out).await
        }
    }
}

impl Which {
    /// Returns the selected ids, with the dead letters if their content selects them. These are read completely first,
    /// because replayed work can become a new dead letter.
    async fn selected(&self, bank: &Bank) -> anyhow::Result<Vec<(String, Option<DeadLetter>)>> {
        if !self.ids.is_empty() {
            return Ok(self.ids.iter().map(|id| (id.clone(), None)).collect());
        }
        let text = self.reason.as_deref().unwrap_or_default();
        let letters = read(bank, true, |letter| letter.reason.contains(text)).await?;
        Ok(letters.into_iter().map(|letter| (letter.id.clone(), Some(letter))).collect())
    }
}

async fn read(
    bank: &Bank,
    open_only: bool,
    is_wanted: impl Fn(&DeadLetter) -> bool,
) -> anyhow::Result<Vec<DeadLetter>> {
    let (mut letters, mut cursor) = (Vec::new(), None);
    loop {
        let page = bank.store.dead_letters.list(open_only, cursor.as_deref(), LIST_PAGE).await;
        let page = page.context("the dead letters cannot be read")?;
        letters.extend(page.items.into_iter().filter(|letter| is_wanted(letter)));
        cursor = page.next;
        if cursor.is_none() {
            return Ok(letters);
        }
    }
}

/// Resolves each dead letter, and continues after failures.
async fn resolve(
    act: Act,
    ids: Vec<String>,
    bank: &Bank,
    as_json: bool,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    // Without the secret, no seal is valid and no work would be recognized.
    bank.seal.ready(&*bank.world).await;
    let mut resolved = Vec::with_capacity(ids.len());
    for id in ids {
        let ended = match act {
            Act::Replay => bank.dead_letters.replay(&id, OPERATOR).await,
            Act::Discard => bank.dead_letters.discard(&id, OPERATOR).await,
        };
        resolved.push(recorded(act, id, ended, bank).await);
    }
    let done = resolved.iter().filter(|resolved| resolved.outcome == "done").count();
    let all = resolved.len();
    if as_json {
        json(&Listed { dead_letters: resolved }, out)?;
    } else {
        for Resolved { id, outcome, error } in &resolved {
            let error = error.iter().map(|error| format!(": {error}")).collect::<String>();
            writeln!(out, "{id}  {outcome}{error}")?;
        }
        let verb = if act == Act::Replay { "replayed" } else { "discarded" };
        writeln!(out, "{verb} {done} of {all} dead letters")?;
    }
    Ok(match done {
        _ if done == all => ExitCode::SUCCESS,
        0 => ExitCode::FAILURE,
        _ => ExitCode::from(INCOMPLETE),
    })
}

/// Records the outcome in the audit trail, and returns it.
async fn recorded(
    act: Act,
    id: String,
    ended: Result<ResolveOutcome, DeadLetterFault>,
    bank: &Bank,
) -> Resolved {
    let on = AuditTarget::one("id", &id);
    let (outcome, word, error, on) = match ended {
        Ok(ResolveOutcome::Done) => (Outcome::Done, "done", None, on),
        Ok(ResolveOutcome::AlreadyResolved) => {
            (Outcome::Refused("dead_letter_resolved"), "already_resolved", None, on)
        }
        // The id is not logged, because the argument can be arbitrary text.
        Ok(ResolveOutcome::Unknown) => {
            (Outcome::Refused("dead_letter_unknown"), "unknown", Some(unknown(&id)), AuditTarget::nothing())
        }
        Err(fault) => (Outcome::Failed("storage_unavailable"), "failed", Some(chain(&fault)), on),
    };
    bank.audit.record(&Event::by_operator(act.code(), on, outcome)).await;
    Resolved { id, outcome: word, error }
}

fn list(letters: &[DeadLetter], out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let row = |letter: &DeadLetter| {
        let state = letter.resolution.as_ref().map_or("open", |resolution| resolution.kind.code());
        let reason = letter.reason.chars().take(REASON_CHARS).map(|c| if c.is_control() { ' ' } else { c });
        let (queue, dead_at) = (letter.queue.to_string(), letter.dead_at.to_string());
        [letter.id.clone(), queue, dead_at, state.to_owned(), reason.collect()]
    };
    table(["ID", "QUEUE", "SINCE", "STATE", "REASON"], letters.iter().map(row), out)
}

fn show(letter: DeadLetter, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let letter = views::dead_letter(letter);
    writeln!(out, "{}: from {}, since {}", letter.id, letter.queue, letter.dead_at)?;
    writeln!(out, "  reason: {}", letter.reason.escape_debug())?;
    writeln!(out, "  received {} times since {}", letter.dequeue_count, letter.inserted_at)?;
    if let Some(resolution) = letter.resolution {
        writeln!(out, "  {} by {} at {}", resolution.kind, resolution.by, resolution.at)?;
    }
    for item in letter.items.unwrap_or_default() {
        writeln!(out, "  message id {item}")?;
    }
    writeln!(out, "  body: {}", letter.body.escape_debug())?;
    Ok(())
}

fn unknown(id: &str) -> String {
    format!("there is no dead letter {id:?}; `dead-letters list --resolved` shows all ids")
}

#[cfg(test)]
mod tests;
