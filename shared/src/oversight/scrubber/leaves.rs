//! Anchors made by rounds. Leaves are collected when the account rows are read, and written in parts. The state contains
//! the progress of the list together with the place, so that another process can continue both.
//!
//! Leaves after the saved place stay in memory until the place has passed them, because a process that continues there
//! collects them again. The account row comes first among the rows of an account, so each leaf is collected exactly once.
//!
//! Two processes can scrub for a while and write parts of the same list. The list is therefore read again before it is
//! signed.

use std::time::Duration;

use tracing::{error, info, warn};

use super::state::Interruption;
use super::state::Round;
use super::{Claimed, SAVE_INTERVAL, Scrubber};
use crate::domain::account::Account;
use crate::domain::anchor::Leaf;
use crate::oversight::anchors::{
    AnchorFolder, AnchorSigner, Contradiction, ListProgress, Occasion, PART_LEAVES_MAX, Signing,
    SigningOutcome,
};
use crate::oversight::verify::{Finding, FindingKind};
use crate::ports::fault::{EVIDENCE, StoreFault, chain};

/// What a process needs to make anchors.
pub struct Anchoring {
    /// Signs the anchors.
    pub signer: AnchorSigner,
    /// The folder in which anchors are written as files.
    pub folder: Option<AnchorFolder>,
}

/// Collected leaves that are not written yet.
#[derive(Default)]
pub(super) struct Collected {
    leaves: Vec<Leaf>,
    /// Number of leaves before the place.
    before_place: usize,
}

impl Collected {
    pub(super) fn add(&mut self, account: &Account) {
        self.leaves.push(Leaf::of(account));
    }

    /// Records that the place is now after all leaves.
    pub(super) const fn reach_place(&mut self) {
        self.before_place = self.leaves.len();
    }

    /// Returns the next part, if at least `min` leaves before the place are left.
    fn part(&self, min: usize) -> Option<&[Leaf]> {
        let leaves = self.leaves.get(..self.before_place.min(PART_LEAVES_MAX))?;
        (!leaves.is_empty() && leaves.len() >= min).then_some(leaves)
    }

    fn remove(&mut self, count: usize) {
        self.leaves.drain(..count);
        self.before_place = self.before_place.saturating_sub(count);
    }
}

impl Scrubber {
    /// Makes the rounds of this scrubber also make anchors.
    pub fn make_anchors(&mut self, anchoring: Anchoring) {
        self.anchoring = Some(anchoring);
    }

    /// Starts a list with a round if an anchor is due.
    pub(super) async fn begin_list(&self) -> Option<ListProgress> {
        let begun = self.anchoring.as_ref()?.signer.begin_if_due().await;
        begun.unwrap_or_else(|fault| {
            warn!("This round makes no anchor, because the last one cannot be read: {}", chain(&fault));
            None
        })
    }

    /// Drops the list of the round if this process has no key and does not collect leaves.
    pub(super) fn drop_list_without_key(&self, claimed: &mut Claimed) {
        if self.anchoring.is_none()
            && let Some(round) = &mut claimed.state.round
        {
            round.list = None;
        }
    }

    /// Writes full parts. At the end of a round, also writes the rest and makes the anchor. Returns the pause to make
    /// after it.
    pub(super) async fn continue_list(&self, claimed: &mut Claimed, is_end: bool) -> Duration {
        let Some(anchoring) = &self.anchoring else { return Duration::ZERO };
        let written = if is_end {
            claimed.walk.iter_mut().for_each(|active| active.collected.reach_place());
            self.write_parts(claimed, 1).await
        } else {
            self.write_parts(claimed, PART_LEAVES_MAX).await
        };
        match written {
            Ok(()) if is_end => {
                let list = claimed.state.round.as_mut().and_then(|round| round.list.take());
                if let Some(list) = list {
                    self.sign(anchoring, claimed, &list).await;
                }
                fill_folder(anchoring).await;
            }
            Ok(()) => {}
            // Before the end of the round, a later step writes the part.
            Err(fault) => warn!("The leaves of an anchor were not written: {}", chain(&fault)),
        }
        let operations = anchoring.signer.take_operations();
        self.status.operations.add(operations);
        if let Some(round) = &mut claimed.state.round {
            round.operations = round.operations.saturating_add(operations);
        }
        // A large list takes many operations at once, but the claim must be renewed meanwhile.
        let interval = self.interval.unwrap_or_default();
        interval.saturating_mul(u32::try_from(operations).unwrap_or(u32::MAX)).min(SAVE_INTERVAL)
    }

    pub(super) async fn write_leaves_before_place(&self, claimed: &mut Claimed) -> Result<(), Interruption> {
        Ok(self.write_parts(claimed, 1).await?)
    }

    /// Writes parts of at least `min` leaves.
    async fn write_parts(&self, claimed: &mut Claimed, min: usize) -> Result<(), StoreFault> {
        let (Some(anchoring), Some(active)) = (&self.anchoring, &mut claimed.walk) else { return Ok(()) };
        let Some(Round { list: Some(list), .. }) = &mut claimed.state.round else {
            // The round makes no anchor.
            active.collected = Collected::default();
            return Ok(());
        };
        while let Some(part) = active.collected.part(min) {
            anchoring.signer.lists().append_part(list, part).await?;
            let count = part.len();
            active.collected.remove(count);
        }
        Ok(())
    }

    async fn sign(&self, anchoring: &Anchoring, claimed: &mut Claimed, list: &ListProgress) {
        let Signing { outcome, not_compared } = match anchoring.signer.sign(list, Occasion::Round).await {
            Ok(signing) => signing,
            Err(fault) => {
                return warn!("The round has made no anchor; the next one tries again: {}", chain(&fault));
            }
        };
        let unprovable = |why| Finding::of(FindingKind::AnchorUnprovable, None).finding(why);
        let mut findings: Vec<Finding> = not_compared.into_iter().map(unprovable).collect();
        match outcome {
            SigningOutcome::Appended(anchor) => {
                let (sequence, count) = (anchor.statement.sequence, anchor.statement.leaves.count);
                info!("Made the anchor {sequence} of {count} accounts");
            }
            SigningOutcome::Contradicted(contradictions, count) => {
                error!("No anchor was made: {count} accounts contradict the last one");
                findings.extend(contradictions.into_iter().map(|contradiction| {
                    let Contradiction { account, expected, found } = contradiction;
                    let finding = Finding::of(FindingKind::AnchoredAccount, Some(account));
                    finding.expecting(expected).finding(found)
                }));
            }
            SigningOutcome::Changed(why) => {
                warn!("No anchor was made, because another process has changed its list: {why}");
            }
            SigningOutcome::Overtaken => info!("No anchor was made: another one was appended meanwhile"),
        }
        self.add_findings(claimed, findings);
    }

    /// Adds findings to the state and to the current round.
    pub(super) fn add_findings(&self, claimed: &mut Claimed, findings: Vec<Finding>) {
        for finding in findings {
            self.status.findings.add(1);
            error!(target: EVIDENCE, kind = finding.kind.code(), "The scrubber found: {finding}");
            if let Some(round) = &mut claimed.state.round {
                round.findings = round.findings.saturating_add(1);
            }
            claimed.state.add_finding(&finding, self.world.now());
        }
    }
}

async fn fill_folder(anchoring: &Anchoring) {
    let Anchoring { signer, folder: Some(folder) } = anchoring else { return };
    if let Err(fault) = folder.write_missing(signer.log(), signer.lists()).await {
        warn!("Anchors were not written to their folder; the next round tries again: {}", chain(&fault));
    }
}
