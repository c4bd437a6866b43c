//! The report of the scrubber in response bodies.

use postonce_schemas::json as wire;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::scrubber::{RecoveryReport, RoundReport, ScrubberFinding, ScrubberReport};

/// Converts the report of the scrubber.
pub fn scrubber(report: ScrubberReport) -> wire::Scrubber {
    let text = |time: Timestamp| time.to_string();
    let round = |round: RoundReport| wire::ScrubberRound {
        started_at: text(round.started_at),
        ended_at: round.ended_at.map(text),
        expected_end: round.expected_end.map(text),
        progress_permille: round.progress,
        accounts: round.accounts,
        rows: round.rows,
        operations: round.operations,
        findings: round.findings,
        accepted: round.accepted,
        enqueued: round.enqueued,
    };
    let recovery = |recovery: RecoveryReport| wire::ScrubberRecovery {
        requested_at: text(recovery.requested_at),
        ended_at: text(recovery.ended_at),
        examined: recovery.examined,
        enqueued: recovery.enqueued,
        damaged: recovery.damaged,
    };
    let finding =
        |ScrubberFinding { at, kind, text }| wire::ScrubberFinding { at: at.to_string(), kind, text };
    wire::Scrubber {
        operations_per_day: report.operations_per_day,
        process: report.process.map(|process| process.simple()),
        round: report.round.map(round),
        last_round: report.last_round.map(round),
        oldest_accepted_at: report.oldest_accepted_at.map(text),
        recovery_requested_at: report.recovery_requested_at.map(text),
        last_recovery: report.last_recovery.map(recovery),
        findings: report.findings.into_iter().map(finding).collect(),
    }
}
