//! `backup` and `restore` on Azure: the rows are copied through the ports, to a file and from it.

use std::io::Write;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use indicatif::HumanBytes;
use postonce_shared::adapters::sqlite::backup::{Begin, Existing, TakenBackup, Unfinished};
use postonce_shared::adapters::sqlite::restore::ElsewherePlan;
use postonce_shared::adapters::sqlite::{Enqueue, SqliteStore};
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::Gate;
use postonce_shared::cluster::gate::change::GateAct;
use postonce_shared::config::Config;
use postonce_shared::domain::anchor::signed::AnchorPublicKey;
use postonce_shared::oversight::audit::{AuditTarget, Event, Outcome};
use postonce_shared::oversight::copy::{
    Copied, Copier, CopyOptions, CopyState, CopyTotals, FinalValues, inventory,
};
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use postonce_shared::protocol::recover::RecoveryScope;
use postonce_shared::store;

use super::progress::{Bar, CopyBar};
use super::{anchor_restore, describe, explain_loss, explain_working_keys, gate, inventory as counted, time};
use crate::cli::operator::identity;
use crate::cli::verify::parse_public_key;

/// Default limit of storage operations per second.
pub const OPERATIONS_PER_SECOND: NonZeroU32 = NonZeroU32::new(500).expect("not zero");
/// Maximum of `--operations-per-second`: the limit of a storage account.
const OPERATIONS_PER_SECOND_MAX: u32 = 20_000;
/// Default of `--overlap-s`. It exceeds the clock differences within a storage account.
const OVERLAP_S: u64 = 60;
const FINDINGS_SHOWN: usize = 20;

/// Arguments of `backup` on Azure.
#[derive(Debug, Clone, Args)]
pub struct CopyTerms {
    /// On Azure, update an existing backup of this store: only rows that were written since are read. FILE is replaced when
    /// the update is complete
    #[arg(long, conflicts_with = "force")]
    incremental: bool,
    /// On Azure, maximum number of storage operations in a second, on average [default: 500]
    #[arg(long, value_name = "NUMBER", value_parser = operations_per_second)]
    operations_per_second: Option<NonZeroU32>,
    /// On Azure, seconds before the begin of the last backup from which on an incremental one reads again: more than the
    /// clocks of the storage can differ [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    overlap_s: Option<u64>,
    /// On Azure, give the backup its name although its audit has findings: those of the store
    #[arg(long)]
    accept_findings: bool,
    /// On Azure, public key that may have signed the anchors of the store, in base64; repeat it, or separate keys with commas
    /// [default: the one that belongs to anchor-key]
    #[arg(long = "anchor-public-key", value_name = "KEY", value_delimiter = ',', value_parser = parse_public_key)]
    public_keys: Vec<AnchorPublicKey>,
}

impl CopyTerms {
    /// Refuses options that do not apply to SQLite.
    pub(super) fn refuse_any(&self) -> anyhow::Result<()> {
        let Self { incremental, operations_per_second, overlap_s, accept_findings, public_keys } = self;
        let given = [
            ("--incremental", *incremental),
            ("--operations-per-second", operations_per_second.is_some()),
            ("--overlap-s", overlap_s.is_some()),
            ("--accept-findings", *accept_findings),
            ("--anchor-public-key", !public_keys.is_empty()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((option, _)) => {
                bail!(
                    "{option} is only for storage azure:…: on SQLite, each backup is a copy of the whole file"
                )
            }
        }
    }
}

/// Parses a limit of storage operations per second.
///
/// # Errors
/// A message with the allowed range.
pub fn operations_per_second(text: &str) -> Result<NonZeroU32, String> {
    let parsed = text.parse().ok().and_then(NonZeroU32::new);
    parsed
        .filter(|number| number.get() <= OPERATIONS_PER_SECOND_MAX)
        .ok_or_else(|| format!("must be from 1 to {OPERATIONS_PER_SECOND_MAX}"))
}

/// Takes or updates a backup, and prints a summary of its content.
///
/// # Errors
/// When no backup was written, or its audit has findings that were not accepted.
pub async fn back_up(
    (file, force, terms): (&Path, bool, &CopyTerms),
    account: &str,
    config: &Config,
    world: &Arc<dyn World>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let existing = if force { Existing::Replace } else { Existing::Keep };
    let begin = if terms.incremental { Begin::Update } else { Begin::Empty(existing) };
    let unfinished = Unfinished::begin(file, begin)?;
    let partial = unfinished.partial().to_owned();
    if unfinished.is_continued() {
        writeln!(out, "continuing the interrupted backup {}", partial.display())?;
    }
    let source = format!("azure:{account}/{}", config.name_prefix);
    let started = world.uptime();
    let copied = fill(&partial, &source, terms, config, world).await.with_context(|| {
        format!("no backup was written; {} is kept, and the next run continues it", partial.display())
    })?;
    let Copied { totals, taken_at, audited, findings } = copied;
    for finding in findings.iter().take(FINDINGS_SHOWN) {
        writeln!(out, "finding [{}] {finding}", finding.kind.code())?;
    }
    let is_accepted = (audited.findings == 0 && totals.damaged == 0) || terms.accept_findings;
    ensure!(
        is_accepted,
        "the audit of the copy has {} findings, and {} rows could not be read: run `postonce-web verify` on the store. The \
         copy stays as {}; --accept-findings gives it its name",
        audited.findings,
        totals.damaged,
        partial.display()
    );
    let bar = Bar::new();
    let taken = unfinished.publish(taken_at, &mut |progress| bar.show(progress));
    bar.clear();
    let on = AuditTarget::one("file", file.display());
    // Recorded only in the log, because a backup must not write to the store.
    Event::of_command("store.backup", on, &taken).log();
    let TakenBackup { bytes, contents } = taken?;
    let size = HumanBytes(bytes);
    let took = seconds(world.uptime().saturating_sub(started));
    let findings = match audited.findings {
        0 => "checked".to_owned(),
        findings => format!("with {findings} findings"),
    };
    writeln!(out, "backed up {source} to {}: {size} in {took} s, {findings}", file.display())?;
    tell(&totals, out)?;
    writeln!(
        out,
        "  audited {} accounts, compared {} with an anchor",
        audited.accounts, audited.anchored_accounts
    )?;
    describe(&contents, out)
}

async fn fill(
    partial: &Path,
    source_name: &str,
    terms: &CopyTerms,
    config: &Config,
    world: &Arc<dyn World>,
) -> anyhow::Result<Copied> {
    let source =
        store::open_to_read(config, Arc::clone(world)).await.context("the store cannot be opened")?;
    let enqueue: Enqueue = Arc::new(|_| Vec::new());
    let target = SqliteStore::open(partial, enqueue, Arc::clone(world))?;
    if terms.incremental && CopyState::read(&target).await?.is_none() {
        // `partial` is a copy of the file, which itself is kept.
        drop(target);
        std::fs::remove_file(partial).context("the unfinished backup cannot be removed")?;
        bail!(
            "the file is not a backup of a store on Azure, and cannot be updated: take a new one with --force"
        );
    }
    let mut accepted = terms.public_keys.clone();
    if accepted.is_empty() {
        accepted.extend(config.anchors.signing_key().map(|key| key.public()));
    }
    let options = CopyOptions {
        source: source_name.to_owned(),
        operations_per_second: terms.operations_per_second.unwrap_or(OPERATIONS_PER_SECOND),
        overlap: Duration::from_secs(terms.overlap_s.unwrap_or(OVERLAP_S)),
        values: FinalValues::OfSource,
        meters_target: false,
    };
    let bar = CopyBar::new(world);
    let copied = Copier::new((&source, &target), world, options, &bar).run(&accepted).await;
    bar.clear();
    Ok(copied?)
}

fn tell(totals: &CopyTotals, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let CopyTotals { passes, accounts, pages, transactions, payloads, damaged, operations, .. } = totals;
    Ok(writeln!(
        out,
        "  copied in {passes} passes: {accounts} accounts, {pages} pages, {transactions} transactions, {payloads} payloads; \
         left out: {damaged} damaged rows; storage operations: {operations}"
    )?)
}

fn seconds(time: Duration) -> String {
    format!("{}.{}", time.as_secs(), time.subsec_millis().div_euclid(100))
}

/// Decisions of the operator about a restore.
#[derive(Debug)]
pub struct RestoreTerms<'a> {
    /// Path of the backup.
    pub file: &'a PathBuf,
    /// Whether to carry out the plan.
    pub yes: bool,
    /// Whether to only print the plan.
    pub dry_run: bool,
    /// The gap of order numbers, if it is given, and whether the gate is held.
    pub plan: (Option<u64>, bool),
    /// Maximum number of storage operations per second.
    pub operations_per_second: NonZeroU32,
}

/// Prints the plan of a restore into an empty store on Azure, and carries it out if requested.
///
/// # Errors
/// When the backup cannot be used, the store is not empty, or `--yes` is missing.
pub async fn restore(
    terms: &RestoreTerms<'_>,
    config: &Config,
    world: &Arc<dyn World>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let started = world.uptime();
    let bar = Bar::new();
    let plan = ElsewherePlan::make(terms.file, terms.plan, &**world, &mut |progress| bar.show(progress));
    let plan = plan.inspect_err(|_| bar.clear())?;
    bar.clear();
    let opened = store::open_bank(config, Arc::clone(world)).await;
    let (bank, _) = opened.context("the bank cannot be opened")?;
    let state = CopyState::read(&bank.store).await?;
    let is_continued = state.is_some_and(|state| state.source == plan.source() && !state.finished);
    explain(&plan, is_continued, out)?;
    if !is_continued {
        let found = inventory(&bank.store).await?;
        ensure!(
            found.is_empty(),
            "nothing was changed: the store is not empty. It has {}. Choose another name-prefix, or remove its tables, queues \
             and containers",
            found.join(", ")
        );
    }
    refuse_running(&bank.store, world).await?;
    if terms.dry_run {
        writeln!(out, "nothing was changed")?;
        return Ok(());
    }
    ensure!(terms.yes, "nothing was changed: use --yes to restore, or --dry-run to only check");
    let restored = copy_back(&plan, terms, &bank, world).await;
    let on = AuditTarget::one("file", terms.file.display());
    let event = Event::of_command("store.restore", on, &restored);
    bank.audit.name_operator(identity());
    if event.outcome == Outcome::Done {
        bank.audit.record(&event).await;
    } else {
        event.log();
    }
    let totals = restored.context("the restore is not complete: run it again, and it continues")?;
    let enqueued = bank.repair.recover(RecoveryScope::Unqueued).await;
    let noted = anchor_restore(&bank, config).await;
    writeln!(out, "restored into the store in {} s", seconds(world.uptime().saturating_sub(started)))?;
    tell(&totals, out)?;
    match enqueued {
        Ok(recovered) => writeln!(out, "  enqueued {} accepted transactions", recovered.enqueued)?,
        Err(fault) => {
            let why = chain(&fault);
            writeln!(out, "  accepted transactions are not enqueued yet, run `postonce-web recover`: {why}")?;
        }
    }
    if let Some(line) = noted {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "start the service, and check it with `postonce-web verify`")?;
    Ok(())
}

async fn copy_back(
    plan: &ElsewherePlan,
    terms: &RestoreTerms<'_>,
    bank: &Bank,
    world: &Arc<dyn World>,
) -> anyhow::Result<CopyTotals> {
    let source = SqliteStore::open_to_read(&plan.file, Arc::clone(world))?;
    let options = CopyOptions {
        source: plan.source(),
        operations_per_second: terms.operations_per_second,
        overlap: Duration::from_secs(OVERLAP_S),
        values: FinalValues::Advanced(plan.values.clone()),
        meters_target: true,
    };
    let bar = CopyBar::new(world);
    let copier = Copier::new((&source, &bank.store), world, options, &bar);
    copier.begin().await?;
    // Holds the gate, so that a process that starts too early posts nothing before the copy is complete.
    Gate::new(&bank.store, world).hold_if_unset_by(&GateAct::of_restore()).await?;
    let copied = copier.pass().await;
    bar.clear();
    copied?;
    Ok(copier.totals())
}

fn explain(plan: &ElsewherePlan, is_continued: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let backup = &plan.backup;
    writeln!(out, "the backup {} is valid", plan.file.display())?;
    writeln!(out, "  taken at {}, schema version {}", time(backup.taken_at), backup.schema_version)?;
    writeln!(out, "  {}", counted(backup))?;
    if is_continued {
        writeln!(out, "an interrupted restore of this backup is continued")?;
    }
    writeln!(out, "a restore copies the backup into the empty store:")?;
    explain_loss(backup, out)?;
    writeln!(
        out,
        "- order numbers continue at {}, {} after the highest one known to be reserved",
        plan.next_number, plan.gap
    )?;
    writeln!(out, "- the gate: {}", gate(plan.gate))?;
    explain_working_keys(&plan.keys_working, out)
}

/// Refuses a store that is in use by a process.
async fn refuse_running(store: &Store, world: &Arc<dyn World>) -> anyhow::Result<()> {
    let now = world.now();
    let mut processes = store.process_registry.list().await?;
    processes.retain(|process| !process.is_stale(now));
    let named: Vec<String> =
        processes.iter().map(|it| format!("{} at {}", it.kind.code(), it.address)).collect();
    ensure!(named.is_empty(), "nothing was changed: the store is in use by {}", named.join(", "));
    Ok(())
}
