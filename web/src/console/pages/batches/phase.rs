//! Phases of batches in words, rights to batches, and texts that their pages share.

use postonce_schemas::json::BatchPhase;
use postonce_shared::domain::time::Timestamp;

use crate::access::scopes::Scope;
use crate::console::html::components::Tone;
use crate::console::html::format;
use crate::console::viewer::Viewer;

/// Returns whether a key may read and cancel a batch of a partner.
pub fn may_cancel(viewer: &Viewer, partner: &str) -> bool {
    viewer.may(Scope::Operate) || (viewer.may(Scope::Batch) && viewer.partner == partner)
}

/// Returns whether a key may read the results of a batch of a partner, which contain balances.
pub fn may_read_results(viewer: &Viewer, partner: &str) -> bool {
    viewer.may(Scope::Admin) || (viewer.may(Scope::Batch) && viewer.partner == partner)
}

/// Meaning of a phase for an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseWords {
    /// Tone of the phase.
    pub tone: Tone,
    /// Description of the phase.
    pub meaning: &'static str,
    /// Whether the batch can be cancelled.
    pub is_cancellable: bool,
}

impl PhaseWords {
    /// Returns the meaning of a phase.
    pub fn of(phase: &BatchPhase) -> Self {
        let open = |meaning, is_cancellable| Self { tone: Tone::Notice, meaning, is_cancellable };
        let ended = |tone, meaning| Self { tone, meaning, is_cancellable: false };
        match phase {
            BatchPhase::Received => open("the document is stored, and waits to be split", true),
            BatchPhase::Splitting => {
                open("the document is being divided into parts that are posted side by side", true)
            }
            BatchPhase::Posting => open("its items are being posted", false),
            BatchPhase::Completed => ended(Tone::Good, "all items are final"),
            BatchPhase::Cancelled => {
                ended(Tone::Neutral, "it was cancelled before anything of it was posted")
            }
            BatchPhase::Other(_) => open("a newer version of the service knows this phase", false),
        }
    }
}

/// Describes the time from now until a time in RFC 3339; `None` if it is not in the future.
pub fn until(rfc3339: &str, now: Timestamp) -> Option<String> {
    let seconds = Timestamp::parse(rfc3339)?.since(now).as_secs();
    (seconds > 0).then(|| format::duration_s(seconds))
}

#[cfg(test)]
pub mod tests {
    use postonce_schemas::json::PartnerBatch;
    use serde_json::{Value, json};

    use super::*;
    use crate::console::viewer::tests::viewer;

    /// Returns a batch of the partner `shop` in the phase `posting`, with changed members.
    pub fn batch(changes: &Value) -> PartnerBatch {
        let mut batch = json!({
            "batch_id": "1c1d6c9e-5d3e-4c0e-9a51-1b7a4a4e2f10", "phase": "posting", "on_invalid": "skip", "items": 4_000,
            "posted": 1_500, "rejected": 20, "refused": 3, "replayed": 7, "invalid": 1,
            "sums": [{ "currency": "EUR", "type": "deposit", "posted": "1250.00" }],
            "operations_per_item": "0.021", "usd_per_million_items": "0.210000000",
            "received_at": "2026-11-21T07:00:00.000Z", "items_per_second": 1_200,
            "estimated_end": "2026-11-21T08:00:02.000Z"
        });
        batch.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let batch = serde_json::from_value(batch).unwrap();
        PartnerBatch { partner_id: "shop".to_owned(), batch }
    }

    #[test]
    fn items_with_an_outcome_are_counted() {
        let found = batch(&json!({}));
        assert_eq!(found.batch.done(), 1_531);
    }

    #[test]
    fn times_are_for_people() {
        let now = viewer(&[]).now;
        assert_eq!(until("2026-11-21T08:04:12.000Z", now).as_deref(), Some("4 min 12 s"));
        assert_eq!((until("2026-11-21T07:00:00.000Z", now), until("soon", now)), (None, None));
    }

    #[test]
    fn rights_depend_on_the_scope_and_the_partner() {
        let only_own = viewer(&[Scope::Batch]);
        assert!(may_cancel(&only_own, "ops") && may_read_results(&only_own, "ops"));
        assert!(!may_cancel(&only_own, "shop") && !may_read_results(&only_own, "shop"));
        let operator = viewer(&[Scope::Operate]);
        assert!(may_cancel(&operator, "shop") && !may_read_results(&operator, "shop"));
    }
}
