//! Checks the rows of the audit trail, from the last one to the first: each contains the hash of the row before it, and
//! none is missing. Rows that are appended during the audit are not read.
//!
//! Who can write to the store can also append rows, or write the whole trail anew. Only a hash of an earlier head that
//! is kept elsewhere shows the latter.

use std::sync::Arc;

use futures::FutureExt as _;

use super::finding::{Finding, FindingKind};
use super::{Extent, Verifier};
use crate::domain::audit_row::AuditRow;
use crate::domain::journal::PageHash;
use crate::oversight::audit::{AuditHead, AuditTrail, StoredAuditRow};
use crate::ports::fault::{StoreFault, causes, chain};

/// Number of rows per request.
const ROWS_LIMIT: usize = 1000;

/// What is known about the rows before the ones that were read.
#[derive(Default)]
struct Position {
    /// The row that was announced as the last one, until it was read.
    announced: Option<AuditHead>,
    /// The sequence of the row that was read last, and the hash of the row before it, if that row can be read.
    later: Option<(u64, Option<PageHash>)>,
}

impl Verifier<'_> {
    /// Checks the audit trail, unless only one account is audited.
    pub(super) async fn check_audit_trail(&self, extent: Extent) -> Result<(), StoreFault> {
        if extent.account.is_some() {
            return Ok(());
        }
        let trail = AuditTrail::new(self.store, Arc::clone(&self.world));
        // Read before the rows, so that its row is among them.
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
    /// Checks the row before the ones that were read.
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

    /// Checks that nothing is before the first row.
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

    /// Returns a finding if rows are missing between this sequence and the rows that were read, or the announced one.
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
