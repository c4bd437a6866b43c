//! The report of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::results::Counts;
use crate::scenario::StoreKind;
use crate::storage_proxy::Service;
use crate::storage_proxy::storage_fault::StorageFault;

/// The counts and findings of a run, so far or at its end.
#[derive(Debug, Clone)]
pub struct Report {
    /// The store of the run.
    pub store_kind: StoreKind,
    /// The seed of the run.
    pub seed: u64,
    /// The duration so far.
    pub elapsed: Duration,
    /// The counts of processes and partners.
    pub counts: Counts,
    /// Requests to the storage through the proxies, by service.
    pub requests: BTreeMap<Service, u64>,
    /// Faults injected into these requests.
    pub faults: BTreeMap<StorageFault, u64>,
    /// The findings.
    pub findings: Vec<String>,
}

impl Report {
    /// Returns the number of requests to the storage with a fault.
    pub fn storage_fault_count(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Returns the progress as one line.
    pub fn line(&self) -> String {
        let Counts { transactions, .. } = self.counts;
        format!(
            "{} s, {} kills, {transactions} transactions, {} storage faults, {} findings",
            self.elapsed.as_secs(),
            self.counts.kills(),
            self.storage_fault_count(),
            self.findings.len()
        )
    }

    fn write_storage(&self, locks_held: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.store_kind == StoreKind::Sqlite {
            return writeln!(f, "  storage       another connection held the lock {locks_held} times");
        }
        let by_service: Vec<String> =
            self.requests.iter().map(|(service, count)| format!("{} {count}", service.name())).collect();
        writeln!(
            f,
            "  storage       {} requests through the proxy ({}), {} with a fault:",
            self.requests.values().sum::<u64>(),
            by_service.join(", "),
            self.storage_fault_count()
        )?;
        for (fault, count) in &self.faults {
            writeln!(f, "    {count:>7}     {}", fault.description())?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = match self.store_kind {
            StoreKind::Sqlite => "SQLite",
            StoreKind::Azurite => "Azurite",
        };
        let Counts {
            webs_killed,
            workers_killed,
            killed_together,
            drained,
            restarts,
            gates_held,
            suspensions,
            locks_held,
            accounts,
            transactions,
            waited,
            posted_at_once,
            posted,
            rejected,
            unavailable,
            unanswered,
            replays,
            refusals,
            reads,
            batches,
            batch_items,
            replayed_letters,
        } = &self.counts;
        writeln!(f, "chaos on {store}, seed {}, {} s", self.seed, self.elapsed.as_secs())?;
        writeln!(
            f,
            "  processes     {} killed ({webs_killed} web, {workers_killed} worker; {killed_together} times several at once), \
             {suspensions} suspended, {drained} drained, {restarts} restarts",
            self.counts.kills()
        )?;
        self.write_storage(*locks_held, f)?;
        writeln!(f, "  gate          held and released {gates_held} times")?;
        writeln!(
            f,
            "  transactions  {transactions} acknowledged on {accounts} accounts; {posted} posted, {rejected} rejected"
        )?;
        writeln!(f, "  batches       {batches} acknowledged; the results of {batch_items} items were read")?;
        let share = posted_at_once.saturating_mul(100).checked_div(*waited).unwrap_or(0);
        writeln!(
            f,
            "  at once       {waited} clients waited for the outcome; at least {posted_at_once} transactions \
             ({share} %) were posted or rejected at once"
        )?;
        writeln!(
            f,
            "  partners      sent again after 503 {unavailable} times, without an answer {unanswered} times; \
             {replays} replays, {refusals} refusals, {reads} reads"
        )?;
        match replayed_letters {
            0 => writeln!(f, "  dead letters  none to replay")?,
            count => {
                writeln!(f, "  dead letters  {count} after attempts that were killed; they were replayed")?
            }
        }
        match self.findings.as_slice() {
            [] => write!(f, "  findings      none"),
            findings => write!(f, "  findings      {}:\n{}", findings.len(), findings.join("\n")),
        }
    }
}
