//! The figures of a run, for people.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::mishap::Mishap;
use super::proxy::Service;
use super::tally::Counts;
use crate::scenario::Stand;

/// What a run counted and found, so far or in the end.
#[derive(Debug, Clone)]
pub struct Report {
    /// The store.
    pub stand: Stand,
    /// What it can be repeated with.
    pub seed: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// What processes and partners did.
    pub counts: Counts,
    /// Requests to the storage, through the proxies.
    pub requests: BTreeMap<Service, u64>,
    /// What befell them.
    pub mishaps: BTreeMap<Mishap, u64>,
    /// What must not be.
    pub findings: Vec<String>,
}

impl Report {
    /// Requests to the storage that something befell.
    pub fn mishap_count(&self) -> u64 {
        self.mishaps.values().sum()
    }

    /// One line, for while it goes on.
    pub fn line(&self) -> String {
        let Counts { transactions, .. } = self.counts;
        format!(
            "{} s, {} kills, {transactions} transactions, {} storage faults, {} findings",
            self.elapsed.as_secs(),
            self.counts.kills(),
            self.mishap_count(),
            self.findings.len()
        )
    }

    /// What happened to the storage.
    fn write_storage(&self, locks_held: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stand == Stand::Sqlite {
            return writeln!(f, "  storage       {locks_held} times somebody else held the lock");
        }
        let by_service: Vec<String> =
            self.requests.iter().map(|(service, count)| format!("{} {count}", service.word())).collect();
        writeln!(
            f,
            "  storage       {} requests through the proxy ({}), {} with a fault:",
            self.requests.values().sum::<u64>(),
            by_service.join(", "),
            self.mishap_count()
        )?;
        for (mishap, count) in &self.mishaps {
            writeln!(f, "    {count:>7}     {}", mishap.words())?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = match self.stand {
            Stand::Sqlite => "SQLite",
            Stand::Azurite => "Azurite",
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
            posted,
            rejected,
            unavailable,
            unanswered,
            replays,
            refusals,
            reads,
            replayed_letters,
        } = &self.counts;
        writeln!(f, "chaos on {store}, seed {}, {} s", self.seed, self.elapsed.as_secs())?;
        writeln!(
            f,
            "  processes     {} killed ({webs_killed} web, {workers_killed} worker; {killed_together} times several at once), \
             {suspensions} stood still, {drained} drained, {restarts} restarts",
            self.counts.kills()
        )?;
        self.write_storage(*locks_held, f)?;
        writeln!(f, "  gate          held and released {gates_held} times")?;
        writeln!(
            f,
            "  transactions  {transactions} acknowledged on {accounts} accounts; {posted} posted, {rejected} rejected"
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
