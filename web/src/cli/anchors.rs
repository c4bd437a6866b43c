//! `postonce-web anchors`: prints anchors, so that copies can be kept elsewhere, and makes them.

use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use postonce_shared::bank::Bank;
use postonce_shared::config::{AnchorTerms, Config};
use postonce_shared::domain::anchor::signed::{AnchorKey, SignedAnchor};
use postonce_shared::domain::ids::{AccountKey, MessageId, PartnerId, TransactionKey};
use postonce_shared::oversight::anchors::{
    AnchorFolder, AnchorLog, AnchorSigner, Contradiction, LeafLists, Occasion, Signing, SigningOutcome,
    StoredAnchor, append, prove,
};
use postonce_shared::oversight::audit::AuditTarget;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use postonce_shared::store;
use postonce_shared::text::without_mark_of_file;
use rand::Rng as _;

use super::ids::parse_account;
use super::keys::parse_partner;
use super::operator::identity;

const ANCHORS_LIMIT: usize = 1000;

/// Maximum length of a line in a file with anchors, in bytes. A longer line is split, so it is not a valid anchor.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Arguments of `anchors`. Without a subcommand, all anchors of the store are printed, one JSON object per line.
#[derive(Debug, Clone, Args)]
pub struct AnchorsCommand {
    #[command(subcommand)]
    command: Option<AnchorsOperation>,
}

/// Subcommands of `anchors`.
#[derive(Debug, Clone, Subcommand)]
enum AnchorsOperation {
    /// Make an anchor now, with the configured anchor-key, and print it. Reads all rows at full speed
    Append {
        /// The store went back in time, without the restore command or without anchor-key: give up the anchors that were
        /// made after the last one of the store
        #[arg(long)]
        restored: bool,
    },
    /// Prove to a partner that the last anchor covers the decision about one of its transactions. The proof is printed as JSON;
    /// the partner checks it with check_inclusion.py and the public key
    Prove {
        /// The account
        #[arg(value_name = "USER/ACCOUNT", value_parser = parse_account)]
        account: AccountKey,
        /// The name of the partner
        #[arg(value_parser = parse_partner)]
        partner: PartnerId,
        /// The message id of the transaction
        message: MessageId,
    },
    /// Print a new key pair for anchors. Neither the store nor the configuration is changed
    NewKey,
}

/// Prints, makes or proves anchors, or prints a new key pair.
///
/// # Errors
/// When the store cannot be read or written, no anchor was made, or there is no proof.
pub async fn run(
    AnchorsCommand { command }: AnchorsCommand,
    config: &Config,
    world: &Arc<dyn World>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        None => {
            let store = store::open_to_read(config, Arc::clone(world)).await;
            print_all(&store.context("the store cannot be opened")?, world, out).await
        }
        Some(AnchorsOperation::Append { restored }) => {
            let Some(key) = config.anchors.signing_key() else {
                bail!("no anchor was made: set anchor-key, such as one of `postonce-web anchors new-key`")
            };
            let opened = store::open_existing_bank(config, Arc::clone(world)).await;
            let (bank, _) = opened.context("the bank cannot be opened")?;
            bank.audit.name_operator(identity());
            let occasion = if restored { Occasion::Restore } else { Occasion::Round };
            let made = make(&bank, &key, occasion).await;
            let on = made.iter().fold(AuditTarget::nothing(), |on, made| {
                on.and("sequence", made.statement.sequence).and("kind", made.statement.kind.code())
            });
            let made = bank.audit.record_command("anchor.append", on, made).await?;
            print(&made.signed, out)?;
            write_files(&bank, &config.anchors).await
        }
        Some(AnchorsOperation::Prove { account, partner, message }) => {
            let store = store::open_to_read(config, Arc::clone(world)).await;
            let store = store.context("the store cannot be opened")?;
            let key = TransactionKey { account, partner, message };
            let proof = prove(&store, world, &key).await.context("there is no proof")?;
            let proof = serde_json::to_string_pretty(&proof).context("a proof cannot be written as JSON")?;
            Ok(writeln!(out, "{proof}")?)
        }
        Some(AnchorsOperation::NewKey) => {
            let mut seed = [0; 32];
            rand::rng().fill_bytes(&mut seed);
            writeln!(out, "anchor-key (secret): {}", STANDARD.encode(seed))?;
            writeln!(out, "public key: {}", AnchorKey::from_seed(seed).public())?;
            Ok(())
        }
    }
}

async fn print_all(
    store: &Store,
    world: &Arc<dyn World>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let (log, mut all, mut before) = (AnchorLog::new(store, world), Vec::new(), None);
    loop {
        let anchors = log.list(before, ANCHORS_LIMIT).await?;
        let is_end = anchors.len() < ANCHORS_LIMIT;
        before = anchors.last().map(|anchor| anchor.statement.sequence);
        all.extend(anchors.into_iter().map(|anchor| anchor.signed));
        if is_end {
            break;
        }
    }
    all.iter().rev().try_for_each(|anchor| print(anchor, out))
}

fn print(anchor: &SignedAnchor, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let line = serde_json::to_string(anchor).context("an anchor cannot be written as JSON")?;
    Ok(writeln!(out, "{line}")?)
}

/// Reads copies of anchors from a file with the output of this command.
///
/// # Errors
/// When the file cannot be read, or a line is not an anchor.
pub fn read_copies(file: &Path) -> anyhow::Result<Vec<SignedAnchor>> {
    let name = file.display();
    let opened = std::fs::File::open(file).with_context(|| format!("the file {name} cannot be read"))?;
    let (mut input, mut copies) = (BufReader::new(opened), Vec::new());
    for number in 1_u64.. {
        let mut line = String::new();
        let read = (&mut input).take(LINE_BYTES_MAX).read_line(&mut line);
        if read.with_context(|| format!("the file {name} cannot be read"))? == 0 {
            break;
        }
        let line = if number == 1 { without_mark_of_file(line.as_bytes()) } else { line.as_bytes() };
        if !line.trim_ascii().is_empty() {
            let copy = serde_json::from_slice(line);
            copies.push(copy.with_context(|| format!("line {number} of {name} is not an anchor"))?);
        }
    }
    ensure!(!copies.is_empty(), "the file {name} contains no anchor");
    Ok(copies)
}

/// Makes an anchor of a bank, and appends it to its log.
///
/// # Errors
/// When no anchor was made, or the outcome is unknown.
pub async fn make(bank: &Bank, key: &AnchorKey, occasion: Occasion) -> anyhow::Result<StoredAnchor> {
    let signer = AnchorSigner::new(&bank.store, &bank.world, key.clone());
    let made = append(&bank.store, &bank.world, &signer, occasion).await;
    let Signing { outcome, not_compared } = made.context("the anchor may not have been made")?;
    if let Some(why) = not_compared {
        tracing::warn!("The anchor was not compared with the one before it: {why}");
    }
    match outcome {
        SigningOutcome::Appended(anchor) => Ok(*anchor),
        SigningOutcome::Contradicted(contradictions, count) => {
            let first = contradictions.first().map(|contradiction| {
                let Contradiction { account, expected, found } = contradiction;
                format!(": account {account}: expected {expected}, found {found}")
            });
            bail!("no anchor was made: {count} accounts contradict the last one{}", first.unwrap_or_default())
        }
        SigningOutcome::Changed(why) => bail!("no anchor was made: {why}; try again"),
        SigningOutcome::Overtaken => bail!("no anchor was made: another process has just made one"),
    }
}

async fn write_files(bank: &Bank, terms: &AnchorTerms) -> anyhow::Result<()> {
    let Some(folder) = terms.folder.clone().map(AnchorFolder::new) else { return Ok(()) };
    let (log, lists) = (AnchorLog::new(&bank.store, &bank.world), LeafLists::new(&bank.store, &bank.world));
    if let Err(fault) = folder.write_missing(&log, &lists).await {
        bail!("the anchor was made, but not written to the folder: {}", chain(&fault));
    }
    Ok(())
}
