//! Compares external copies of anchors with the anchors in the store, and finds the newest anchor that both have. Its
//! leaves are then compared with the accounts.
//!
//! A restore can also remove anchors from the store. The signed statement of the restore then declares their copies as
//! discarded. It covers only copies made before the restore, so a later replacement of the store by an older copy is
//! detected.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;

use super::finding::{Finding, FindingKind};
use super::leaves::AnchoredLeaves;
use super::{Extent, Verifier};
use crate::domain::anchor::signed::{AnchorPublicKey, SignedAnchor};
use crate::domain::anchor::{AnchorKind, AuditPosition, Hash, Statement};
use crate::oversight::anchors::{AnchorLog, LeafLists, ListFault, StoredAnchor};
use crate::oversight::audit::AuditTrail;
use crate::ports::fault::{StoreFault, causes, chain};

const ANCHORS_LIMIT: usize = 1000;

/// Copies of anchors, and the keys that are accepted as their signers.
#[derive(Debug, Clone)]
pub struct AnchorCopies {
    /// The copies, in any order.
    pub copies: Vec<SignedAnchor>,
    /// The accepted keys.
    pub accepted: Vec<AnchorPublicKey>,
}

fn about(kind: FindingKind, sequence: u64, detail: impl std::fmt::Display) -> Finding {
    Finding::of(kind, None).finding(format!("anchor {sequence}: {detail}"))
}

impl Verifier<'_> {
    /// Checks copies and stored anchors, and returns the leaves of the newest anchor that both have.
    pub(super) async fn check_anchors(&self, extent: Extent) -> Result<Option<AnchoredLeaves>, StoreFault> {
        let Some(AnchorCopies { copies, accepted }) = &self.copies else { return Ok(None) };
        let stored = self.read_anchors(accepted).await?;
        let mut newest: Option<&StoredAnchor> = None;
        for (copy, statement) in self.check_copies(copies, accepted) {
            let same_sequence = stored.get(&statement.sequence);
            let same = same_sequence.filter(|stored| stored.signed.statement == copy.statement);
            if let Some(notice) = given_up(&statement, same.is_some(), &stored, accepted) {
                self.report(&notice);
                continue;
            }
            match same {
                Some(stored) if newest.is_none_or(|it| it.statement.sequence < statement.sequence) => {
                    newest = Some(stored);
                }
                Some(_) => {}
                None => {
                    let kind =
                        same_sequence.map_or(FindingKind::AnchorMissing, |_| FindingKind::AnchorDiffers);
                    self.report(&about(kind, statement.sequence, format!("made at {}", statement.made_at)));
                }
            }
        }
        let Some(anchor) = newest else {
            let why = "no anchor of the file is in the store";
            self.report(&Finding::of(FindingKind::AnchorUnprovable, None).finding(why));
            return Ok(None);
        };
        if extent.account.is_none() {
            self.check_audit_position(&anchor.statement).await?;
        }
        let lists = LeafLists::new(self.store, &self.world);
        match AnchoredLeaves::check(lists, anchor).await {
            Ok(leaves) => Ok(Some(leaves)),
            Err(ListFault::Store(fault)) => Err(fault),
            Err(ListFault::Unprovable(why)) => {
                let sequence = anchor.statement.sequence;
                self.report(&about(FindingKind::AnchorUnprovable, sequence, why));
                Ok(None)
            }
        }
    }

    /// Reports a list of leaves that became unreadable.
    pub(super) fn report_list(&self, fault: ListFault) -> Result<(), StoreFault> {
        match fault {
            ListFault::Store(fault) => Err(fault),
            ListFault::Unprovable(why) => {
                self.report(&Finding::of(FindingKind::AnchorUnprovable, None).finding(why));
                Ok(())
            }
        }
    }

    /// Reads the anchors of the store, and checks their signatures and their chain.
    async fn read_anchors(
        &self,
        accepted: &[AnchorPublicKey],
    ) -> Result<BTreeMap<u64, StoredAnchor>, StoreFault> {
        let (log, mut stored) = (AnchorLog::new(self.store, &self.world), BTreeMap::new());
        let mut after: Option<String> = None;
        loop {
            let read = || log.list_stored(after.as_deref(), ANCHORS_LIMIT).boxed();
            let rows = self.reader.read(read).await?;
            let is_end = rows.len() < ANCHORS_LIMIT;
            after = rows.last().map(|row| row.id.clone());
            for row in rows {
                match (row.sequence, row.anchor) {
                    (Some(sequence), Ok(anchor)) => drop(stored.insert(sequence, anchor)),
                    (sequence, anchor) => {
                        let cause = anchor.err().map(|error| chain(&error)).unwrap_or_default();
                        let sequence = sequence.unwrap_or_default();
                        self.report(&about(FindingKind::AnchorSignature, sequence, cause));
                    }
                }
            }
            if is_end {
                break;
            }
        }
        let (mut expected, mut previous) = (1_u64, Some(Hash::ZERO));
        for (sequence, anchor) in &stored {
            if expected < *sequence {
                let missing = Finding::of(FindingKind::AnchorMissing, None);
                let last = sequence.saturating_sub(1);
                self.report(&missing.expecting(format!("anchors {expected} to {last}")).finding("nothing"));
                previous = None;
            }
            if previous.is_some_and(|previous| previous != anchor.statement.previous) {
                self.report(&about(FindingKind::AnchorChain, *sequence, "in the store"));
            }
            if !anchor.signed.is_signed_by(accepted) {
                self.report(&about(FindingKind::AnchorSignature, *sequence, "in the store"));
            }
            (expected, previous) = (sequence.saturating_add(1), Some(anchor.signed.hash()));
        }
        Ok(stored)
    }

    /// Returns the copies with a valid signature, and their statements.
    fn check_copies<'c>(
        &self,
        copies: &'c [SignedAnchor],
        accepted: &[AnchorPublicKey],
    ) -> Vec<(&'c SignedAnchor, Statement)> {
        let mut sound = Vec::new();
        for (copy, line) in copies.iter().zip(1_u64..) {
            let finding = Finding::of(FindingKind::AnchorSignature, None);
            match copy.decode() {
                Ok(statement) if copy.is_signed_by(accepted) => sound.push((copy, statement)),
                Ok(statement) => {
                    let sequence = statement.sequence;
                    self.report(&finding.finding(format!("anchor {sequence} in line {line} of the file")));
                }
                Err(error) => {
                    self.report(&finding.finding(format!("line {line} of the file: {}", chain(&error))));
                }
            }
        }
        // After a restore, the file can contain several anchors with the same sequence.
        let mut hashes: BTreeMap<u64, Vec<Hash>> = BTreeMap::from([(0, vec![Hash::ZERO])]);
        for (copy, statement) in &sound {
            hashes.entry(statement.sequence).or_default().push(copy.hash());
        }
        for (_, statement) in &sound {
            let before = statement.sequence.checked_sub(1).and_then(|before| hashes.get(&before));
            if before.is_some_and(|before| !before.contains(&statement.previous)) {
                self.report(&about(FindingKind::AnchorChain, statement.sequence, "in the file"));
            }
        }
        sound
    }

    /// Checks that the audit trail still contains the row that was its last one when the anchor was made.
    async fn check_audit_position(&self, statement: &Statement) -> Result<(), StoreFault> {
        let Some(AuditPosition { sequence, hash }) = statement.audit else { return Ok(()) };
        let trail = AuditTrail::new(self.store, Arc::clone(&self.world));
        let read = || trail.list(sequence.checked_add(1), 1).boxed();
        let found = match self.reader.read(read).await {
            Ok(rows) => rows.first().filter(|row| row.sequence == sequence).map(|row| row.hash.to_string()),
            Err(fault @ StoreFault::Corrupt { .. }) => Some(causes(&fault)),
            Err(fault) => return Err(fault),
        };
        if found.as_ref() != Some(&hash.to_string()) {
            let finding = Finding::of(FindingKind::AnchoredAudit, None).of_audit_row(sequence);
            self.report(&finding.expecting(hash).finding(found.as_deref().unwrap_or("nothing")));
        }
        Ok(())
    }
}

/// Returns a notice if a restore in the store discarded a copy that was made before the restore, and after the anchor
/// to which the store returned.
fn given_up(
    copy: &Statement,
    is_stored: bool,
    stored: &BTreeMap<u64, StoredAnchor>,
    accepted: &[AnchorPublicKey],
) -> Option<Finding> {
    let gives_up = |restore: &&StoredAnchor| match restore.statement.kind {
        AnchorKind::Round => false,
        AnchorKind::Restore { returned_to } => {
            let is_before = if is_stored {
                copy.sequence < restore.statement.sequence
            } else {
                copy.made_at <= restore.statement.made_at
            };
            is_before
                && copy.sequence > returned_to.map_or(0, |anchor| anchor.sequence)
                && restore.signed.is_signed_by(accepted)
        }
    };
    let Statement { sequence, made_at, .. } = &stored.values().find(gives_up)?.statement;
    let by = format!("given up by the restore in anchor {sequence} of {made_at}");
    Some(about(FindingKind::AnchorGivenUp, copy.sequence, by))
}
