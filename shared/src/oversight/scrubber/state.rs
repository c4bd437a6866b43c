//! The state of the scrubber, stored as one shared value, so that another process can continue a round.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::account::{Revision, Versioned};
use crate::domain::ids::AccountKey;
use crate::domain::time::Timestamp;
use crate::oversight::anchors::ListProgress;
use crate::oversight::verify::{Finding, Place};
use crate::ports::fault::StoreFault;
use crate::ports::process_registry::{ProcessId, RegisteredProcess};
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::protocol::recover::{Examination, Recovered};

/// The name of the value in the [`SyncStore`].
pub const NAME: &str = "scrubber";

const VERSION: u32 = 1;
/// Maximum number of findings that are kept. Older ones are dropped.
const FINDINGS_MAX: usize = 20;
/// Maximum length of the text of a finding, in characters.
const FINDING_CHARS_MAX: usize = 400;

pub(super) enum Interruption {
    Fault(StoreFault),
    /// Another process wrote the state, so the claim is lost.
    Displaced,
}

impl From<StoreFault> for Interruption {
    fn from(fault: StoreFault) -> Self {
        Self::Fault(fault)
    }
}

/// The stored state. Times are in milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    v: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<Claim>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round: Option<Round>,
    /// The last completed round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_round: Option<Round>,
    /// When the pending recovery was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recovery_requested: Option<i64>,
    /// The last completed recovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_recovery: Option<Recovery>,
    /// When stale registry entries were last searched for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    searched_at: Option<i64>,
    /// All postings before this time were compared with the index of order numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) numbers_compared_until: Option<i64>,
    /// The last findings, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) findings: Vec<FoundRow>,
}

/// The claim of one process to scrub. It saves operations; two processes that scrub do no harm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    process: Uuid,
    until: i64,
}

/// A round: one walk over all rows of the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) started_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended_at: Option<i64>,
    /// The place: the cursor of the store, and the account before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    pub(super) accounts: u64,
    pub(super) rows: u64,
    pub(super) operations: u64,
    pub(super) findings: u64,
    pub(super) accepted: u64,
    pub(super) enqueued: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) oldest: Option<i64>,
    /// When the round passed the transaction with the time `oldest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    oldest_seen: Option<i64>,
    recovered_until: i64,
    /// Whether all postings of the round so far were compared with the index of order numbers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) compares_numbers: bool,
    /// Progress of the leaf list for an anchor; `None` if the round makes no anchor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) list: Option<ListProgress>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recovery {
    pub(super) requested_at: i64,
    pub(super) ended_at: i64,
    pub(super) examined: u64,
    pub(super) enqueued: u64,
    pub(super) damaged: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FoundRow {
    pub(super) at: i64,
    pub(super) kind: String,
    pub(super) text: String,
}

impl Round {
    pub(super) fn begin(now: Timestamp, list: Option<ListProgress>) -> Self {
        let (started_at, compares_numbers) = (now.unix_ms(), true);
        Self { started_at, recovered_until: started_at, list, compares_numbers, ..Self::default() }
    }

    /// Records that accepted transactions were skipped, so that the round proves nothing about them.
    pub(super) fn leaves_out_some(&mut self) {
        self.recovered_until = 0;
    }

    /// Returns the place at which the round continues; `None` at its start.
    pub(super) fn place(&self) -> Option<Place> {
        let account = self.account.as_deref().and_then(|text| {
            let (user, account) = text.split_once('/')?;
            Some(AccountKey { user: user.parse().ok()?, account: account.parse().ok()? })
        });
        self.cursor.as_ref().map(|cursor| Place { cursor: Some(cursor.clone()), account })
    }

    pub(super) fn set_place(&mut self, place: Place) {
        self.cursor = place.cursor;
        self.account = place.account.map(|account| account.to_string());
    }

    /// Returns the completed fraction in thousandths. User ids are random, so the position of a user in id order is the
    /// fraction of accounts before it.
    pub(super) fn progress(&self) -> u16 {
        if self.ended_at.is_some() {
            return 1000;
        }
        let Some(Place { account: Some(account), .. }) = self.place() else { return 0 };
        let [first, second, ..] = *account.user.as_uuid().as_bytes();
        let position = u32::from(u16::from_be_bytes([first, second]));
        u16::try_from(position.saturating_mul(1000) >> 16).unwrap_or(1000)
    }

    pub(super) fn examination(&self) -> Examination {
        let recovered =
            Recovered { examined: self.accepted, enqueued: self.enqueued, damaged: 0, until: None };
        let oldest = self.oldest.map(Timestamp::from_unix_ms);
        Examination { recovered, oldest, until: Timestamp::from_unix_ms(self.recovered_until) }
    }

    pub(super) fn set_examination(&mut self, examination: &Examination, now: Timestamp) {
        let Examination { recovered: Recovered { examined, enqueued, .. }, oldest, until } = *examination;
        (self.accepted, self.enqueued) = (examined, enqueued);
        let oldest = oldest.map(Timestamp::unix_ms);
        if oldest != self.oldest {
            self.oldest_seen = Some(now.unix_ms());
        }
        (self.oldest, self.recovered_until) = (oldest, until.unix_ms());
    }
}

impl State {
    /// Returns whether a process may scrub, because no other live process holds the claim.
    pub(super) fn is_free_for(
        &self,
        process: ProcessId,
        registered: &[RegisteredProcess],
        now: Timestamp,
    ) -> bool {
        self.claim.as_ref().is_none_or(|claim| {
            let is_alive =
                |entry: &RegisteredProcess| entry.id.as_uuid() == claim.process && !entry.is_stale(now);
            claim.process == process.as_uuid()
                || claim.until <= now.unix_ms()
                || !registered.iter().any(is_alive)
        })
    }

    pub(super) fn claim(&mut self, process: ProcessId, until: Timestamp) {
        self.v = VERSION;
        self.claim = Some(Claim { process: process.as_uuid(), until: until.unix_ms() });
    }

    /// Returns the process that holds the claim, unless it has expired.
    pub fn claimed_by(&self, now: Timestamp) -> Option<ProcessId> {
        let claim = self.claim.as_ref().filter(|claim| claim.until > now.unix_ms());
        claim.map(|claim| ProcessId::from_uuid(claim.process))
    }

    /// Requests a recovery if registry entries became stale since the last call, because their processes crashed. Returns
    /// their number.
    pub(super) fn note_ended(&mut self, registered: &[RegisteredProcess], now: Timestamp) -> usize {
        let before = self.searched_at.replace(now.unix_ms()).map(Timestamp::from_unix_ms);
        let is_new = |entry: &&RegisteredProcess| {
            entry.is_stale(now) && before.is_none_or(|before| !entry.is_stale(before))
        };
        let ended = registered.iter().filter(is_new).count();
        if ended > 0 {
            self.recovery_requested = self.recovery_requested.or(Some(now.unix_ms()));
        }
        ended
    }

    pub(super) fn add_finding(&mut self, finding: &Finding, at: Timestamp) {
        let text: String = finding.to_string().chars().take(FINDING_CHARS_MAX).collect();
        self.findings.push(FoundRow { at: at.unix_ms(), kind: finding.kind.code().to_owned(), text });
        let excess = self.findings.len().saturating_sub(FINDINGS_MAX);
        self.findings.drain(..excess);
    }

    /// Returns the acceptance time of the oldest transaction that was neither final nor a dead letter when a round passed
    /// it, and its age at that moment.
    pub(super) fn oldest(&self) -> Option<(Timestamp, Duration)> {
        let rounds = [&self.round, &self.last_round];
        let oldest =
            rounds.into_iter().flatten().filter_map(|round| Some((round.oldest?, round.oldest_seen)));
        let (oldest, seen) = oldest.min()?;
        let (oldest, seen) = (Timestamp::from_unix_ms(oldest), seen.map(Timestamp::from_unix_ms));
        Some((oldest, seen.map_or(Duration::ZERO, |seen| seen.since(oldest))))
    }
}

#[derive(Clone)]
pub(super) struct StateStore {
    sync: Arc<dyn SyncStore>,
}

impl StateStore {
    pub(super) const fn new(sync: Arc<dyn SyncStore>) -> Self {
        Self { sync }
    }

    /// Reads the state and its revision. A state that cannot be decoded is replaced, because another round finds all of
    /// its contents again.
    pub(super) async fn load(&self) -> Result<(State, Option<Revision>), StoreFault> {
        let Some(Versioned { value, revision }) = self.sync.get(NAME).await? else {
            return Ok((State::default(), None));
        };
        let state = serde_json::from_str::<State>(&value).ok().filter(|state| state.v == VERSION);
        Ok((state.unwrap_or_default(), Some(revision)))
    }

    /// Saves the state if no other process has changed it. Returns the new revision; `None` after a conflict.
    pub(super) async fn save(
        &self,
        state: &State,
        revision: Option<&Revision>,
    ) -> Result<Option<Revision>, StoreFault> {
        let value = serde_json::to_string(state).expect("texts and numbers can always be written as JSON");
        Ok(match self.sync.swap(NAME, revision, &value).await? {
            Swapped::Done(revision) => Some(revision),
            Swapped::Conflict => None,
        })
    }
}

/// Estimates the duration of a round from its operations and progress so far; `None` while unknown.
pub(super) fn round_time(operations: u64, progress: u16, interval: Duration) -> Option<Duration> {
    let whole = operations.checked_mul(1000)?.checked_div(u64::from(progress))?;
    Some(interval.saturating_mul(u32::try_from(whole).unwrap_or(u32::MAX)))
}
