//! `postonce-web batches submit`: sends a document to a running service, as a partner would, and waits for its results.

mod document;
mod progress;
mod results;
mod service;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use postonce_schemas::json::{Batch, BatchOnInvalid, BatchPhase, BatchSum};
use postonce_shared::command_output::failed;
use postonce_shared::config::{read_secret, without_line_end};
use postonce_shared::files::check_replaceable;
use postonce_shared::ports::world::World;
use postonce_shared::printable::Printable;
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use self::document::{Document, DocumentFormat};
use self::progress::Progress;
use self::results::ResultsFile;
use self::service::Service;

const EXIT_CODES: &str = "Exit codes:
  0  without --wait: the batch is stored and will be posted; with --wait: every item is posted, by this batch or by
     an earlier request
  1  the file cannot be read, or the results cannot be written
  2  wrong usage, before anything was sent
  3  the service refused the batch; nothing of it is posted
  4  the service could not be reached in time; run the same command again
  5  the batch ended, and not every item is posted; the results name them";

/// Commands of batches.
#[derive(Debug, Subcommand)]
pub enum BatchesCommand {
    /// Submit a document with many deposits and withdrawals to a running service
    #[command(after_help = EXIT_CODES)]
    Submit(SubmitCommand),
}

/// Arguments of `batches submit`.
#[derive(Debug, Args)]
pub struct SubmitCommand {
    /// The document: .ndjson or .jsonl, .csv, .xml; also compressed, with .gz or .zst at the end. - is standard input, with
    /// --format; it and other pipes are first copied to a private file in the folder for temporary files (TMPDIR)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Address of the service
    // Checked later, and hidden: a wrong one may contain a password, which must not be printed.
    #[arg(long, value_name = "URL", env = "POSTONCE_URL", hide_env_values = true)]
    #[arg(default_value = "http://127.0.0.1:8080")]
    url: String,
    /// API key with the scope batch. Set the variable: other users of the machine can read arguments
    #[arg(long, value_name = "KEY", env = "POSTONCE_API_KEY", hide_env_values = true)]
    #[arg(value_parser = |text: &str| Ok::<_, String>(SecretString::from(text)))]
    key: Option<SecretString>,
    /// File with the API key; by default that of the variable POSTONCE_API_KEY_FILE. It is read instead of key
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Id of the batch, a UUID. By default it is derived from the bytes of the file: a repeated run with the same file is
    /// the same batch, of which nothing is posted twice
    #[arg(long, value_name = "UUID")]
    id: Option<Uuid>,
    /// Format of the document, if the name of the file does not show it
    #[arg(long)]
    format: Option<DocumentFormat>,
    /// What becomes of items that break a rule: the whole batch is refused, or they are skipped
    #[arg(long, default_value = "refuse", value_parser = PossibleValuesParser::new(BatchOnInvalid::CODES))]
    on_invalid: String,
    /// Number of items; a document with another number is refused
    #[arg(long)]
    count: Option<u64>,
    /// Sum of the amounts of each currency, such as EUR=1250.00,USD=7.00; a document with other sums is refused
    #[arg(long)]
    sums: Option<String>,
    /// Wait until all items are final, and write their results
    #[arg(long)]
    wait: bool,
    /// File of the results, .ndjson or .csv; it is written completely or not at all, and only its owner can read it. By default
    /// the name of the document with .results.csv for CSV, and with .results.ndjson for other formats; for standard input,
    /// pipes and devices the id of the batch, in the working directory, with the same end
    #[arg(long, value_name = "FILE", requires = "wait", value_parser = file_name)]
    results: Option<PathBuf>,
    /// Number of seconds for which a request that fails is repeated
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    give_up_after: u64,
}

/// Parses the name of the results file. Standard output is refused, because it cannot be written completely or not at all.
fn file_name(text: &str) -> Result<PathBuf, &'static str> {
    let is_name = !["", "-"].contains(&text);
    is_name.then(|| PathBuf::from(text)).ok_or("must be the name of a file")
}

impl SubmitCommand {
    fn url(&self) -> Result<Url, SubmitError> {
        let wrong = |rule: &str| SubmitError::Usage(format!("the URL {rule}"));
        let url =
            Url::parse(self.url.trim()).map_err(|_| wrong("must be one such as https://bank.example"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("must not contain a user or a password; only the API key is sent"));
        }
        if !["http", "https"].contains(&url.scheme()) || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong(
                "must begin with http:// or https://, and must not have a query or a fragment",
            ));
        }
        Ok(url)
    }

    fn key(&self) -> Result<SecretString, SubmitError> {
        let by_variable = || std::env::var_os(KEY_FILE_VARIABLE).map(PathBuf::from);
        let path = match (&self.key_file, &self.key) {
            (Some(path), _) => path.clone(),
            (None, Some(key)) => return checked_key(key, "the API key"),
            (None, None) => by_variable().ok_or_else(|| {
                SubmitError::Usage(
                    "an API key is required: --key, --key-file, POSTONCE_API_KEY or POSTONCE_API_KEY_FILE"
                        .to_owned(),
                )
            })?,
        };
        let name = format!("the API key in {}", path.display());
        let key = read_secret(&path).with_context(|| format!("{name} cannot be read"))?;
        checked_key(&key, &name)
    }
}

/// Removes the line end after a key, and checks that a header can contain the key. The error does not quote the key.
fn checked_key(key: &SecretString, name: &str) -> Result<SecretString, SubmitError> {
    let key = without_line_end(key.expose_secret());
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(SubmitError::Usage(format!(
            "{name} must have only visible ASCII characters, without spaces"
        )));
    }
    Ok(SecretString::from(key))
}

/// Environment variable with the path of the API key file.
const KEY_FILE_VARIABLE: &str = "POSTONCE_API_KEY_FILE";

#[derive(Debug, thiserror::Error)]
enum SubmitError {
    #[error("{0}")]
    Usage(String),
    #[error("refused by the service: {0}")]
    Refused(String),
    #[error("the service could not be reached: {0}")]
    NotReached(String),
    #[error("{0:#}")]
    Local(#[from] anyhow::Error),
}

impl SubmitError {
    const fn exit_code(&self) -> u8 {
        match self {
            Self::Local(_) => 1,
            Self::Usage(_) => 2,
            Self::Refused(_) => 3,
            Self::NotReached(_) => 4,
        }
    }
}

/// Exit code if the batch has ended but not every item is posted.
const NOT_ALL_POSTED: u8 = 5;

/// Prints a batch as the service reports it.
fn describe(batch: &Batch, out: &mut (dyn Write + Send)) -> std::io::Result<()> {
    let Batch { batch_id, phase, items, posted, rejected, refused, replayed, invalid, sums, .. } = batch;
    let printable = |text: &str| Printable::from(text);
    write!(out, "batch {}: {}, ", printable(batch_id), printable(phase.code()))?;
    write!(out, "{items} {}", if *items == 1 { "item" } else { "items" })?;
    if !phase.is_final() {
        return writeln!(out);
    }
    writeln!(
        out,
        ": {posted} posted, {rejected} rejected, {refused} refused, {replayed} replayed, {invalid} invalid"
    )?;
    sums.iter().try_for_each(|BatchSum { currency, r#type, posted }| {
        let [kind, posted, currency] = [&**r#type, posted, &**currency].map(printable);
        writeln!(out, "posted {kind}s: {posted} {currency}")
    })
}

/// Runs a command. Prints results to `out`, and progress and errors to stderr.
pub async fn run(command: &BatchesCommand, world: &Arc<dyn World>, out: &mut (dyn Write + Send)) -> ExitCode {
    let BatchesCommand::Submit(command) = command;
    match submit(command, world, out).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_ALL_POSTED),
        Err(failure) => failed(&failure, &failure, failure.exit_code()),
    }
}

/// Submits a batch. Returns `false` if it has ended but not every item is posted.
async fn submit(
    command: &SubmitCommand,
    world: &Arc<dyn World>,
    out: &mut (dyn Write + Send),
) -> Result<bool, SubmitError> {
    let progress = Progress::new(world);
    // Checked before the document is read, which may come from a pipe.
    let (url, key) = (command.url()?, command.key()?);
    let document = Document::open(&command.file, command.format, &progress)?;
    let give_up_after = Duration::from_secs(command.give_up_after);
    let service = Service::new(&url, &key, give_up_after, world, &progress)?;
    let id = command.id.unwrap_or(document.id);
    let path = command.results.clone().unwrap_or_else(|| document.results_path(id));
    if command.wait {
        check_results(&path, &document)?;
    }
    let query = [("on-invalid", command.on_invalid.as_str())];
    let totals =
        [("Batch-Count", command.count.map(|count| count.to_string())), ("Batch-Sums", command.sums.clone())];
    let request = |client: &reqwest::Client, url: Url| {
        let request = client.post(url).query(&query).header("Idempotency-Key", id.to_string());
        // Otherwise the refusal of an XML document would be in XML.
        let request = request.header("Accept", "application/json");
        let totals = totals.iter().filter_map(|(name, total)| Some((*name, total.as_ref()?)));
        let request = totals.fold(request, |request, (name, total)| request.header(name, total));
        document.send(request, &progress)
    };
    let batch: Batch = service.read("v1/batches", request).await?;
    let print = |failed| anyhow::Error::new(failed).context("the state of the batch cannot be printed");
    if !command.wait {
        describe(&batch, out).map_err(print)?;
        return Ok(true);
    }
    let batch = service.wait(id, batch).await?;
    describe(&batch, out).map_err(print)?;
    if batch.phase != BatchPhase::Completed {
        return Ok(false);
    }
    let mut results = ResultsFile::create(&path)?;
    service.read_results(id, batch.items, &mut results).await?;
    let unposted = results.finish()?;
    writeln!(out, "results: {}", path.display()).context("the name of the results cannot be printed")?;
    Ok(unposted == 0)
}

/// Checks before the submission that the results can probably be written afterwards.
fn check_results(path: &Path, document: &Document) -> Result<(), SubmitError> {
    let name = path.display();
    if document.is_at(path) {
        return Err(SubmitError::Usage(format!("{name} is the document: name another file for the results")));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(SubmitError::Usage(format!("{name} cannot be written: its folder does not exist")));
    }
    Ok(check_replaceable(path).with_context(|| format!("{name} cannot be written"))?)
}

#[cfg(test)]
mod tests;
