//! `postonce-web backup` and `postonce-web restore`: the embedded store into a file, and back.
//!
//! Both work on the files themselves, before a store is opened: a backup must not bring the store to another
//! schema, and a restore must not have it open.

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use postonce_shared::adapters::sqlite::backup::{self, Contents, Existing, Progress, TakenBackup};
use postonce_shared::adapters::sqlite::restore::{
    Intent, NUMBERS_PER_SECOND_MAX, ORDER_NUMBER_GAP_MIN, Plan, Replaced, Restoration, RestoreOptions,
};
use postonce_shared::cluster::gate::{GateState, GateValue};
use postonce_shared::config::StorageConfig;
use postonce_shared::domain::ids::OrderNumber;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::audit::{AuditTarget, Event};
use postonce_shared::ports::api_keys::ApiKeyRecord;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;

/// What to back up, and where to.
#[derive(Debug, Clone, Args)]
pub struct BackupCommand {
    /// The file to be written; only its owner will be able to read it. A file of that name is left alone.
    file: PathBuf,
    /// Replace a file of that name, once the new backup is whole.
    #[arg(long)]
    force: bool,
}

/// What to restore, and how.
#[derive(Debug, Clone, Args)]
pub struct RestoreCommand {
    /// The backup. It is read only.
    file: PathBuf,
    /// Do it. Without this, what would be done is printed, and nothing is changed.
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Only check the backup and print what would be done; also while the service runs.
    #[arg(long)]
    dry_run: bool,
    /// Hold the gate in the restored store: the service accepts, and posts nothing before somebody has looked
    /// and released it (PUT /v1/admin/gate).
    #[arg(long)]
    held: bool,
    #[arg(long, value_name = "NUMBERS", value_parser = clap::value_parser!(u64).range(1..), help = gap_help())]
    order_number_gap: Option<u64>,
}

fn gap_help() -> String {
    format!(
        "How many order numbers are skipped, behind the highest that the backup or the replaced store has reserved, so \
         that none that was told to somebody since the backup comes again [default: {ORDER_NUMBER_GAP_MIN}, ten of the \
         largest ranges that a process reserves; where the replaced store is gone or cannot be read, \
         {NUMBERS_PER_SECOND_MAX} more for each second since the backup, which is more than one file can post]"
    )
}

/// Takes a backup, and prints what is in it.
///
/// # Errors
/// When there is no new backup.
pub fn back_up(
    command: &BackupCommand,
    storage: &StorageConfig,
    world: &dyn World,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let store = embedded(storage, "backup")?;
    let existing = if command.force { Existing::Replace } else { Existing::Keep };
    let started = world.uptime();
    let bar = Bar::new();
    let taken = backup::take(store, &command.file, existing, world, &mut |progress| bar.show(progress));
    bar.clear();
    let on = AuditTarget::one("file", command.file.display());
    let TakenBackup { bytes, contents } = Event::record_command("store.backup", on, taken)?;
    let seconds = world.uptime().saturating_sub(started).as_millis();
    let (file, size) = (command.file.display(), HumanBytes(bytes));
    writeln!(out, "backed up {} to {file}: {size} in {seconds} ms, checked", store.display())?;
    describe(&contents, out)
}

/// Prints what a restore does, and does it where that is asked for.
///
/// # Errors
/// When the backup cannot be used, the store is in use, or nobody said `--yes`. The store is the old one.
pub fn restore(
    command: &RestoreCommand,
    storage: &StorageConfig,
    world: &dyn World,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let store = embedded(storage, "restore")?;
    let intent = if command.yes { Intent::Replace } else { Intent::DryRun };
    let terms = RestoreOptions { intent, order_number_gap: command.order_number_gap, held: command.held };
    let started = world.uptime();
    let bar = Bar::new();
    let prepared =
        Restoration::prepare(store, &command.file, terms, world, &mut |progress| bar.show(progress));
    let prepared = prepared.inspect_err(|_| bar.clear())?;
    bar.clear();
    explain(prepared.plan(), out)?;
    if command.dry_run {
        writeln!(out, "nothing was changed")?;
        return Ok(());
    }
    if !command.yes {
        bail!("nothing was changed: say --yes to do it, or --dry-run to only look");
    }
    let bar = Bar::new();
    let restored = prepared.carry_out(&mut |progress| bar.show(progress));
    bar.clear();
    let on = AuditTarget::one("file", command.file.display());
    let plan = Event::record_command("store.restore", on, restored)?;
    let seconds = world.uptime().saturating_sub(started).as_millis();
    let store = plan.store.display();
    writeln!(
        out,
        "restored {store} in {seconds} ms; start the service, and check it with `postonce-web verify`"
    )?;
    Ok(())
}

/// The file of the embedded store.
fn embedded<'a>(storage: &'a StorageConfig, command: &str) -> anyhow::Result<&'a Path> {
    match storage {
        StorageConfig::Sqlite { path } => Ok(path),
        StorageConfig::Azure { .. } => bail!(
            "{command} is for the embedded store (storage sqlite:<file>), and storage is azure:…. Azure keeps its \
             copies itself: choose a redundancy for the storage account (ZRS, GZRS), lock it against deletion, and copy \
             its tables with Azure Data Factory where a state of the past has to be kept"
        ),
    }
}

/// What is in a backup that was taken.
fn describe(contents: &Contents, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "  taken at {}, schema version {}", time(contents.taken_at), contents.schema_version)?;
    writeln!(out, "  {}", inventory(contents))?;
    match &contents.register {
        Ok(register) if register.reserved == 0 => writeln!(out, "  no order number was reserved yet")?,
        Ok(register) => {
            let highest = OrderNumber::from_counter(register.next.saturating_sub(1));
            writeln!(out, "  highest order number reserved: {highest}")?;
        }
        Err(unsound) => writeln!(out, "  it cannot be restored as it is: {}", chain(unsound))?,
    }
    Ok(())
}

fn inventory(contents: &Contents) -> String {
    let Contents { accounts, posted, rejected, accepted, dead_letters, newest_at, .. } = contents;
    let transactions = contents.transactions();
    let newest = newest_at.map(|at| format!("; the newest at {at}")).unwrap_or_default();
    format!(
        "accounts: {accounts}; open dead letters: {dead_letters}; transactions: {transactions} ({posted} posted, \
         {rejected} rejected, {accepted} still to be posted){newest}"
    )
}

/// What a restore does, for the person who has to decide.
fn explain(plan: &Plan, out: &mut dyn Write) -> anyhow::Result<()> {
    let (backup, store) = (&plan.backup, plan.store.display());
    writeln!(out, "the backup {} is sound", plan.file.display())?;
    writeln!(out, "  taken at {}, schema version {}", time(backup.taken_at), backup.schema_version)?;
    writeln!(out, "  {}", inventory(backup))?;
    match &plan.replaced {
        Replaced::Nothing => writeln!(out, "there is no store at {store}")?,
        Replaced::Unreadable(why) => writeln!(out, "the store {store} cannot be read: {why}")?,
        Replaced::Read(contents) => writeln!(out, "the store {store} has\n  {}", inventory(contents))?,
    }
    writeln!(out, "a restore puts the backup in the place of the store:")?;
    if let Some(kept) = &plan.kept {
        writeln!(out, "- the store is kept as {}", kept.display())?;
    }
    writeln!(
        out,
        "- what was acknowledged after {} is forgotten: partners who send it again, with the same ids, post it again",
        time(backup.as_of())
    )?;
    if backup.accepted > 0 {
        writeln!(
            out,
            "- {} accepted transactions are posted when the service starts, with new order numbers also where they had \
             been posted after the backup",
            backup.accepted
        )?;
    }
    writeln!(
        out,
        "- order numbers go on at {}, {} behind the highest that is known to be reserved; ids of queue messages and \
         dead letters skip as many",
        plan.next_number, plan.gap
    )?;
    writeln!(out, "- the gate: {}", gate(plan.gate))?;
    explain_keys(plan, out)?;
    if plan.in_use {
        writeln!(out, "the store is in use now: stop every postonce-web and postonce-worker first")?;
    }
    Ok(())
}

fn explain_keys(plan: &Plan, out: &mut dyn Write) -> anyhow::Result<()> {
    if !matches!(plan.replaced, Replaced::Read(_)) {
        writeln!(
            out,
            "- API keys that were revoked after the backup WORK AGAIN, and those made after it are gone; look at \
             `postonce-web keys list` before you start the service, and revoke again. These will work:"
        )?;
        return plan.keys_working.iter().try_for_each(|key| Ok(writeln!(out, "    {}", name(key))?));
    }
    for key in &plan.revoked_again {
        writeln!(out, "- the API key {} was revoked after the backup, and stays revoked", name(key))?;
    }
    for partner in &plan.suspended_again {
        writeln!(out, "- partner {partner} was suspended after the backup, and stays suspended")?;
    }
    writeln!(
        out,
        "- what partners may touch is what they might at the backup: `postonce-web partners list`"
    )?;
    for key in &plan.keys_gone {
        writeln!(out, "- the API key {} was made after the backup, and is gone", name(key))?;
    }
    Ok(())
}

fn name(key: &ApiKeyRecord) -> String {
    format!("{} of partner {}", key.id, key.partner)
}

fn gate(gate: Option<GateValue>) -> String {
    match gate {
        None => "never touched, so that work is posted".to_owned(),
        Some(GateValue { epoch, state: GateState::Released }) => {
            format!("released (epoch {epoch}), so that work is posted; --held would hold it")
        }
        Some(GateValue { epoch, state: GateState::Held { release_at: None } }) => {
            format!("HELD (epoch {epoch}): nothing is posted before it is released")
        }
        Some(GateValue { epoch, state: GateState::Held { release_at: Some(at) } }) => {
            format!("held (epoch {epoch}) until {at}")
        }
    }
}

fn time(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "an unknown time".to_owned(), |at| at.to_string())
}

/// How far it is, on a terminal; elsewhere nothing.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn new() -> Self {
        Self(std::io::stderr().is_terminal().then(ProgressBar::no_length))
    }

    fn show(&self, progress: Progress) {
        let Some(bar) = &self.0 else { return };
        match progress {
            Progress::Checking => {
                bar.set_style(
                    ProgressStyle::with_template("{spinner} checking {elapsed}").expect("a template"),
                );
                bar.enable_steady_tick(Duration::from_millis(100));
            }
            Progress::Copying { done, all } => {
                let template = "{wide_bar} {bytes} of {total_bytes}, {eta} left";
                bar.set_style(ProgressStyle::with_template(template).expect("a template"));
                bar.set_length(all);
                bar.set_position(done);
            }
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
