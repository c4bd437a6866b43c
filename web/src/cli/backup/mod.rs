//! `postonce-web backup` and `postonce-web restore`: copy the store to a file, and replace the store with such a file.
//!
//! On the embedded store, both commands work on the files before any store is opened: a backup must not migrate its
//! schema, and a restore must not have it open. On Azure, [`azure`] copies the rows.

pub mod azure;
mod progress;

use std::io::Write;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use indicatif::HumanBytes;
use postonce_shared::adapters::sqlite::backup::{
    self, BackupOptions, Contents, Existing, SpaceLimits, TakenBackup,
};
use postonce_shared::adapters::sqlite::restore::{
    Intent, NUMBERS_PER_SECOND_MAX, ORDER_NUMBER_GAP_MIN, Plan, Replaced, Restoration, RestoreOptions,
    RestrictedPartner,
};
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::{GateState, GateValue};
use postonce_shared::config::{Config, StorageConfig};
use postonce_shared::domain::ids::OrderNumber;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::anchors::{AnchorLog, Occasion};
use postonce_shared::oversight::audit::{AuditTarget, Event, Outcome};
use postonce_shared::ports::api_keys::ApiKeyRecord;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use postonce_shared::store;

use crate::cli::anchors;
use crate::cli::operator::identity;
use azure::{CopyTerms, OPERATIONS_PER_SECOND, RestoreTerms, operations_per_second};
use progress::Bar;

/// Arguments of `backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupCommand {
    /// Backup file to write; only its owner can read it. An existing file is not overwritten.
    file: PathBuf,
    /// Replace an existing file, after the new backup is complete.
    #[arg(long)]
    force: bool,
    /// On SQLite, MiB by which the write-ahead log of the running service may grow during the copy, which prevents the log
    /// from being emptied; beyond that, the backup ends with an error.
    #[arg(long, value_name = "MIB", default_value_t = SpaceLimits::DEFAULT.log_growth_bytes_max.div_euclid(MIB))]
    log_growth_mib_max: u64,
    #[command(flatten)]
    copy: CopyTerms,
}

const MIB: u64 = 1024 * 1024;

/// Arguments of `restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreCommand {
    /// Backup file. It is opened read-only.
    file: PathBuf,
    /// Restore. Without this option, the plan is printed and nothing is changed.
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Only check the backup and print the plan. The service may be running.
    #[arg(long)]
    dry_run: bool,
    /// Hold the gate in the restored store: the service accepts requests, but posts nothing until an operator
    /// releases the gate (PUT /v1/admin/gate).
    #[arg(long)]
    held: bool,
    #[arg(long, value_name = "NUMBERS", value_parser = clap::value_parser!(u64).range(1..), help = gap_help())]
    order_number_gap: Option<u64>,
    /// On Azure, maximum number of storage operations in a second, on average [default: 500]
    #[arg(long, value_name = "NUMBER", value_parser = operations_per_second)]
    operations_per_second: Option<NonZeroU32>,
}

fn gap_help() -> String {
    format!(
        "Number of order numbers to skip after the highest one that the backup or the replaced store has reserved, so \
         that numbers issued since the backup are not issued again [default: {ORDER_NUMBER_GAP_MIN}, ten of the \
         largest ranges that a process reserves; if the replaced store is missing or unreadable, \
         {NUMBERS_PER_SECOND_MAX} more for each second since the backup, which is more than one store can post]"
    )
}

/// Takes a backup, and prints a summary of its content.
///
/// # Errors
/// When no backup was written.
pub async fn back_up(
    command: &BackupCommand,
    config: &Config,
    world: &Arc<dyn World>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match &config.storage {
        StorageConfig::Sqlite { path } => back_up_file(command, path, &**world, out),
        StorageConfig::Azure { connection } => {
            let account = connection.account();
            let BackupCommand { file, force, copy, .. } = command;
            azure::back_up((file, *force, copy), account, config, world, out).await
        }
    }
}

fn back_up_file(
    command: &BackupCommand,
    store: &Path,
    world: &dyn World,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    command.copy.refuse_any()?;
    let existing = if command.force { Existing::Replace } else { Existing::Keep };
    let log_growth_bytes_max = command.log_growth_mib_max.saturating_mul(MIB);
    let limits = SpaceLimits { log_growth_bytes_max, ..SpaceLimits::DEFAULT };
    let options = BackupOptions { existing, limits };
    let started = world.uptime();
    let bar = Bar::new();
    let taken = backup::take(store, &command.file, options, world, &mut |progress| bar.show(progress));
    bar.clear();
    let on = AuditTarget::one("file", command.file.display());
    // Recorded only in the log, because a backup must not write to the store, whose schema can be older.
    Event::of_command("store.backup", on, &taken).log();
    let TakenBackup { bytes, contents } = taken?;
    let seconds = world.uptime().saturating_sub(started).as_millis();
    let (file, size) = (command.file.display(), HumanBytes(bytes));
    writeln!(out, "backed up {} to {file}: {size} in {seconds} ms, checked", store.display())?;
    describe(&contents, out)
}

/// Prints the plan of a restore, and carries it out if requested.
///
/// # Errors
/// When the backup cannot be used, the store is in use, or `--yes` is missing. The store is then unchanged.
pub async fn restore(
    command: &RestoreCommand,
    config: &Config,
    world: &Arc<dyn World>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let store = match &config.storage {
        StorageConfig::Sqlite { path } => path,
        StorageConfig::Azure { .. } => {
            let RestoreCommand { file, yes, dry_run, held, order_number_gap, operations_per_second } =
                command;
            let terms = RestoreTerms {
                file,
                yes: *yes,
                dry_run: *dry_run,
                plan: (*order_number_gap, *held),
                operations_per_second: operations_per_second.unwrap_or(OPERATIONS_PER_SECOND),
            };
            return azure::restore(&terms, config, world, out).await;
        }
    };
    if command.operations_per_second.is_some() {
        bail!("--operations-per-second is only for storage azure:…: a restore on SQLite replaces the file");
    }
    let intent = if command.yes { Intent::Replace } else { Intent::DryRun };
    let terms = RestoreOptions { intent, order_number_gap: command.order_number_gap, held: command.held };
    let started = world.uptime();
    let bar = Bar::new();
    let prepared =
        Restoration::prepare(store, &command.file, terms, &**world, &mut |progress| bar.show(progress));
    let prepared = prepared.inspect_err(|_| bar.clear())?;
    bar.clear();
    explain(prepared.plan(), out)?;
    if command.dry_run {
        writeln!(out, "nothing was changed")?;
        return Ok(());
    }
    if !command.yes {
        bail!("nothing was changed: use --yes to restore, or --dry-run to only check");
    }
    let bar = Bar::new();
    let restored = prepared.carry_out(&mut |progress| bar.show(progress));
    bar.clear();
    let on = AuditTarget::one("file", command.file.display());
    let kept = restored.as_ref().ok().and_then(|plan| plan.kept.as_ref());
    let on = kept.into_iter().fold(on, |on, kept| on.and("kept", kept.display()));
    let noted = record_restore(&Event::of_command("store.restore", on, &restored), config, world).await;
    let plan = restored?;
    let seconds = world.uptime().saturating_sub(started).as_millis();
    if let Some(line) = noted {
        writeln!(out, "{line}")?;
    }
    let store = plan.store.display();
    writeln!(
        out,
        "restored {store} in {seconds} ms; start the service, and check it with `postonce-web verify`"
    )?;
    Ok(())
}

/// Records a restore, and anchors it. The row goes to the restored store, which is opened for it; the rows since the
/// backup are in the replaced store. Returns what the operator must know about the anchor.
async fn record_restore(event: &Event<'_>, config: &Config, world: &Arc<dyn World>) -> Option<String> {
    if event.outcome != Outcome::Done {
        event.log();
        return None;
    }
    match store::open_bank(config, Arc::clone(world)).await {
        Ok((bank, _)) => {
            bank.audit.name_operator(identity());
            bank.audit.record(event).await;
            let noted = anchor_restore(&bank, config).await;
            store::checkpoint(config, &bank.store.files);
            noted
        }
        Err(fault) => {
            event.log();
            tracing::error!(
                "The store was restored, but its audit trail has no row for it, because it cannot be opened: {}",
                chain(&fault)
            );
            None
        }
    }
}

/// Anchors a restore, which gives up the anchors that were made after the backup.
async fn anchor_restore(bank: &Bank, config: &Config) -> Option<String> {
    const ADVICE: &str = "until `postonce-web anchors append --restored` has run with anchor-key, `verify --anchors` \
                          reports the anchors that were made after the backup as missing";
    let Some(key) = config.anchors.signing_key() else {
        let last = AnchorLog::new(&bank.store, &bank.world).last().await;
        return match last {
            Ok(None) => None,
            Ok(Some(last)) => Some(format!(
                "the backup has anchors, the last one with number {}, but anchor-key is not set: {ADVICE}",
                last.statement.sequence
            )),
            Err(fault) => Some(format!("the anchors of the backup cannot be read: {}", chain(&fault))),
        };
    };
    Some(match anchors::make(bank, &key, Occasion::Restore).await {
        Ok(made) => format!(
            "made the anchor {} of this restore; keep a copy of it (`postonce-web anchors`)",
            made.statement.sequence
        ),
        Err(error) => format!("the restore has no anchor: {error:#}; {ADVICE}"),
    })
}

fn describe(contents: &Contents, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "  taken at {}, schema version {}", time(contents.taken_at), contents.schema_version)?;
    writeln!(out, "  {}", inventory(contents))?;
    match &contents.register {
        Ok(register) if register.reserved == 0 => writeln!(out, "  no order number is reserved")?,
        Ok(register) => {
            let highest = OrderNumber::from_counter(register.next.saturating_sub(1));
            writeln!(out, "  highest order number reserved: {highest}")?;
        }
        Err(unsound) => writeln!(out, "  it cannot be restored without repair: {}", chain(unsound))?,
    }
    Ok(())
}

fn inventory(contents: &Contents) -> String {
    let Contents { accounts, posted, rejected, accepted, dead_letters, newest_at, .. } = contents;
    let transactions = contents.transactions();
    let newest = newest_at.map(|at| format!("; newest at {at}")).unwrap_or_default();
    format!(
        "accounts: {accounts}; open dead letters: {dead_letters}; transactions: {transactions} ({posted} posted, \
         {rejected} rejected, {accepted} still to be posted){newest}"
    )
}

/// Prints the plan of a restore, on which the operator decides.
fn explain(plan: &Plan, out: &mut dyn Write) -> anyhow::Result<()> {
    let (backup, store) = (&plan.backup, plan.store.display());
    writeln!(out, "the backup {} is valid", plan.file.display())?;
    writeln!(out, "  taken at {}, schema version {}", time(backup.taken_at), backup.schema_version)?;
    writeln!(out, "  {}", inventory(backup))?;
    match &plan.replaced {
        Replaced::Nothing => writeln!(out, "there is no store at {store}")?,
        Replaced::Unreadable(why) => writeln!(out, "the store {store} cannot be read: {why}")?,
        Replaced::Read(contents) => writeln!(out, "the store {store} contains\n  {}", inventory(contents))?,
    }
    writeln!(out, "a restore replaces the store with the backup:")?;
    if let Some(kept) = &plan.kept {
        writeln!(out, "- the replaced store is kept as {}", kept.display())?;
    }
    explain_loss(backup, out)?;
    writeln!(
        out,
        "- order numbers continue at {}, {} after the highest one known to be reserved; ids of queue messages and \
          dead letters skip the same amount",
        plan.next_number, plan.gap
    )?;
    writeln!(out, "- the gate: {}", gate(plan.gate))?;
    explain_keys(plan, out)?;
    if plan.in_use {
        writeln!(out, "the store is in use: stop every postonce-web and postonce-worker first")?;
    }
    Ok(())
}

/// Prints which transactions are lost, and which are posted again.
fn explain_loss(backup: &Contents, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "- transactions acknowledged after {} are lost: if partners send them again with the same ids, they are \
         posted again",
        time(backup.as_of())
    )?;
    if backup.accepted > 0 {
        writeln!(
            out,
            "- {} accepted transactions are posted when the service starts, with new order numbers even if they were \
              posted after the backup",
            backup.accepted
        )?;
    }
    Ok(())
}

/// Prints the keys that will be valid, when no store shows which keys were revoked after the backup.
fn explain_working_keys(keys: &[ApiKeyRecord], out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "- API keys that were revoked after the backup ARE VALID AGAIN, and keys created after it are lost; check \
         `postonce-web keys list` before you start the service, and revoke them again. These keys will be valid:"
    )?;
    keys.iter().try_for_each(|key| Ok(writeln!(out, "    {}", name(key))?))
}

fn explain_keys(plan: &Plan, out: &mut dyn Write) -> anyhow::Result<()> {
    if !matches!(plan.replaced, Replaced::Read(_)) {
        writeln!(
            out,
            "- API keys that were revoked after the backup ARE VALID AGAIN, and keys created after it are lost; check \
              `postonce-web keys list` before you start the service, and revoke them again. These keys will be valid:"
        )?;
        return plan.keys_working.iter().try_for_each(|key| Ok(writeln!(out, "    {}", name(key))?));
    }
    for key in &plan.revoked_again {
        writeln!(out, "- the API key {} was revoked after the backup and stays revoked", name(key))?;
    }
    for partner in &plan.restricted {
        explain_partner(partner, out)?;
    }
    writeln!(
        out,
        "- otherwise the terms of each partner are those of the backup, and what it was given later is lost: \
         `postonce-web partners list`"
    )?;
    for key in &plan.keys_gone {
        writeln!(out, "- the API key {} was created after the backup and is lost", name(key))?;
    }
    Ok(())
}

/// Prints the rights that a partner does not regain. Revoked keys are listed separately.
fn explain_partner(partner: &RestrictedPartner, out: &mut dyn Write) -> anyhow::Result<()> {
    let RestrictedPartner { in_backup, restored } = partner;
    let id = &restored.id;
    if in_backup.status() != restored.status() {
        writeln!(out, "- partner {id} was suspended after the backup and stays suspended")?;
    }
    if in_backup.reach != restored.reach {
        let names = restored.reach.names();
        writeln!(
            out,
            "- the reach of partner {id} was changed after the backup: it keeps what it had before and after the change, \
             which is {names} users and accounts"
        )?;
    }
    if in_backup.signature_required != restored.signature_required {
        writeln!(out, "- partner {id} had to sign its requests after the backup and still must")?;
    }
    for key in in_backup.signature_keys.iter().filter(|key| !restored.signature_keys.contains(key)) {
        let key = &key.id;
        writeln!(
            out,
            "- the signature key {key} of partner {id} was removed after the backup and stays removed"
        )?;
    }
    if restored.signature_required && restored.signature_keys.is_empty() {
        writeln!(
            out,
            "- partner {id} must sign its requests and HAS NO SIGNATURE KEY: add one when the service has started"
        )?;
    }
    Ok(())
}

fn name(key: &ApiKeyRecord) -> String {
    format!("{} of partner {}", key.id, key.partner)
}

fn gate(gate: Option<GateValue>) -> String {
    match gate {
        None => "never changed, so work is posted".to_owned(),
        Some(GateValue { epoch, state: GateState::Released }) => {
            format!("released (epoch {epoch}), so work is posted; use --held to hold it")
        }
        Some(GateValue { epoch, state: GateState::Held { release_at: None } }) => {
            format!("HELD (epoch {epoch}): nothing is posted until it is released")
        }
        Some(GateValue { epoch, state: GateState::Held { release_at: Some(at) } }) => {
            format!("held (epoch {epoch}) until {at}")
        }
    }
}

fn time(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "an unknown time".to_owned(), |at| at.to_string())
}
