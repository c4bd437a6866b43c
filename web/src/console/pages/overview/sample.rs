//! Overviews for tests.

use postonce_schemas::json::{Overview, OverviewProcess, OverviewQueue};
use serde_json::{Value, json};

/// Returns a bank without problems: the gate is released, two processes answer, and little work waits.
pub fn well() -> Overview {
    let activity = json!({
        "step_s": 2, "until": "2026-11-23T06:00:00.000Z", "accepted": [4, 5], "posted_immediately": [3, 3],
        "posted_queued": [1, 0], "posted_in_batches": [0, 0], "rejected": [0, 1], "storage_errors": [0, 0],
        "request_errors": [0, 0],
    });
    let scale = json!({
        "workers_wanted": 1, "workers_for_backlog": 1, "workers_floor": 0, "workers_min": 1, "workers_max": 8, "depth": 12,
        "waiting": 5, "oldest_age_s": 2, "batch_items": 0, "batch_chunks": 0, "posting_age_target_s": 10, "worker_rate": 200,
    });
    let overview = json!({
        "at": "2026-11-23T06:00:02.500Z",
        "gate": {"state": "released", "epoch": 7, "since": "2026-11-23T05:00:00.000Z", "by": "partner=ops key=9f86"},
        "processes": [], "activity": activity,
        "per_second": {"accepted": "2.5", "posted": "12345.4", "rejected": "0.1"},
        "queues": [], "queues_read_at": "2026-11-23T05:59:58.000Z", "oldest_open_age_s": 2, "dead_letters_open": 0,
        "scale": scale, "workers_running": 1,
        "costs": {
            "postings": 2_000_000, "immediate_postings": 1_500_000, "operations": 4_000_000, "price_usd": "2.061000000",
            "price_usd_per_million_postings": "1.030500000",
        },
    });
    let mut overview: Overview = serde_json::from_value(overview).unwrap();
    overview.processes = vec![process("a1", "web"), process("b2", "worker")];
    overview.queues = vec![queue("work-0", 12)];
    overview
}

/// Returns the same bank with a held gate and 12 345 waiting messages.
pub fn held() -> Overview {
    let mut overview = well();
    overview.gate.state = "held".into();
    overview.gate.reason = Some("nightly <script>close</script>".to_owned());
    overview.processes.iter_mut().for_each(|process| process.gate_held = Some(true));
    overview.queues = vec![queue("work-0", 12_000), queue("work-1", 345)];
    overview.oldest_open_age_s = Some(900);
    overview
}

/// Returns a process that answers.
pub fn process(id: &str, kind: &str) -> OverviewProcess {
    let process: Value = json!({
        "id": id, "address": "http://10.0.0.7:8081", "kind": kind, "version": "0.1.0", "commit": "3f1c2d9a7b60",
        "started_at": "2026-11-23T05:00:00.000Z", "seen_at": "2026-11-23T05:50:00.000Z", "answers": true, "gate_epoch": 7,
        "gate_held": false, "acknowledged": true, "active_receivers": 3, "receivers_max": 16, "not_ready": [],
    });
    serde_json::from_value(process).unwrap()
}

/// Returns a process that does not answer.
pub fn silent(id: &str) -> OverviewProcess {
    OverviewProcess {
        version: None,
        commit: None,
        answers: false,
        gate_epoch: None,
        gate_held: None,
        acknowledged: false,
        active_receivers: 0,
        receivers_max: 0,
        ..process(id, "worker")
    }
}

/// Returns a queue of this depth.
pub fn queue(name: &str, depth: u64) -> OverviewQueue {
    OverviewQueue {
        name: name.to_owned(),
        depth,
        oldest_age_s: u64::from(depth > 0).saturating_mul(2),
        oldest_age_known: true,
        active_receivers: 3,
        receivers_max: 16,
        messages_leased: depth.min(9),
        assigned_to: Vec::new(),
    }
}
