//! Checks the audit trail from the last row to the first: each row contains the hash of the previous row, and none is
//! missing. Rows appended during the audit are not read.
//!
//! An attacker who can write to the store can also append rows, or rewrite the whole trail. A rewrite can only be
//! detected with an earlier head hash that is kept elsewhere.

use std::sync::Arc;

use futures::FutureExt as _;

use super::finding::{Finding, FindingKind};
use super::{Extent, Verifier};
use crate::domain::audit_row::AuditRow;
use crate::domain::journal::PageHash;
use crate::oversight::audit::{AuditHead, AuditTrail, StoredAuditRow};
use crate::ports::fault::{StoreFault, causes, chain};

const ROWS_LIMIT: usize = 1000;

/// The state after the rows read so far.
#[derive(Default)]
struct Position {
    /// The announced last row, until it is read.
    announced: Option<AuditHead>,
    /// The sequence of the row read last, and the hash of the row before it; `None` if the row is unreadable.
    later: Option<(u64, Option<PageHash>)>,
}

impl Verifier<'_> {
    /// Checks the audit trail, unless only one account is audited.
    pub(super) async fn check_audit_trail(&self, extent: Extent) -> Result<(), StoreFault> {
        if extent.account.is_some() {
            return Ok(());
        }
        let trail = AuditTrail::new(self.store, Arc::clone(&self.world));
        // Read before the rows, so that they include the announced one.
        let announced = match self.reader.read(|| trail.announced().boxed()).await {
            Ok(announced) => announced,
            Err(fault @ StoreFault::Corrupt { .. }) => {
                self.report(&Finding::of(FindingKind::AuditHead, None).finding(causes(&fault)));
                None
            }
            Err(fault) => return Err(fault),
        };
        let (mut position, mut after) = (Position { announced, later: None }, None);
        loop {
            let read = || trail.list_stored(after.as_deref(), ROWS_LIMIT).boxed();
            let rows = self.reader.read(read).await?;
            let is_end = rows.len() < ROWS_LIMIT;
            after = rows.last().map(|row| row.id.clone());
            for row in rows {
                let findings = position.read(row);
                findings.iter().for_each(|finding| self.report(finding));
                let totals = &mut self.shared.lock().totals;
                totals.audit_rows = totals.audit_rows.saturating_add(1);
            }
            if is_end {
                break;
            }
        }
        position.end().iter().for_each(|finding| self.report(finding));
        Ok(())
    }
}

impl Position {
    /// Checks the next row in descending order.
    fn read(&mut self, stored: StoredAuditRow) -> Vec<Finding> {
        let StoredAuditRow { id: _, sequence, row } = stored;
        let of = |kind| {
            let finding = Finding::of(kind, None);
            sequence.into_iter().fold(finding, Finding::of_audit_row)
        };
        let mut findings = Vec::new();
        let Some(sequence) = sequence else {
            findings.extend(row.err().map(|error| of(FindingKind::AuditUnreadable).finding(chain(&error))));
            return findings;
        };
        findings.extend(self.missing_after(sequence));
        let announced = self.announced.take_if(|(announced, _)| *announced >= sequence);
        let expected = self.later.filter(|(later, _)| Some(*later) == sequence.checked_add(1));
        let row = match row {
            Ok(row) => row,
            Err(error) => {
                findings.push(of(FindingKind::AuditUnreadable).finding(chain(&error)));
                self.later = Some((sequence, None));
                return findings;
            }
        };
        let AuditRow { hash, previous_hash, .. } = row;
        let content = row.content_hash();
        if content != hash {
            findings.push(of(FindingKind::AuditHash).expecting(hash).finding(content));
        }
        if let Some((later, Some(expected))) = expected
            && expected != hash
        {
            let finding = Finding::of(FindingKind::AuditChain, None).of_audit_row(later);
            findings.push(finding.expecting(hash).finding(expected));
        }
        if let Some((_, announced)) = announced.filter(|(announced, _)| *announced == sequence)
            && announced != hash
        {
            findings.push(of(FindingKind::AuditHead).expecting(announced).finding(hash));
        }
        self.later = Some((sequence, Some(previous_hash)));
        findings
    }

    /// Checks that the first row has no predecessor.
    fn end(self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.missing_after(0).into_iter().collect();
        if let Some((1, Some(previous))) = self.later
            && previous != PageHash::GENESIS
        {
            let finding = Finding::of(FindingKind::AuditChain, None).of_audit_row(1);
            findings.push(finding.expecting(PageHash::GENESIS).finding(previous));
        }
        findings
    }

    /// Returns a finding if rows are missing between this sequence and the rows read so far, or the announced row.
    fn missing_after(&self, sequence: u64) -> Option<Finding> {
        let first = sequence.saturating_add(1);
        let last = match (self.later, self.announced) {
            (Some((later, _)), _) => later.saturating_sub(1),
            (None, Some((announced, _))) => announced,
            (None, None) => return None,
        };
        let missing =
            |rows: String| Finding::of(FindingKind::AuditMissing, None).expecting(rows).finding("nothing");
        (first <= last).then(|| missing(format!("rows {first} to {last}")))
    }
}
