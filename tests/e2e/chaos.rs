//! A short chaos run on each store: at least ten kills, every kind of storage fault, two batches, and an audit without
//! findings. The command `chaos` runs for any time.

use std::time::Duration;

use postonce_tests::chaos::process_group::ProcessSpec;
use postonce_tests::chaos::report::Report;
use postonce_tests::chaos::results::{Counts, ProcessKind};
use postonce_tests::chaos::{BatchPlan, ChaosConfig};
use postonce_tests::scenario::StoreKind;
use postonce_tests::storage_proxy::storage_fault::StorageFault;

/// The variable with the seed of a run to repeat.
const SEED_VARIABLE: &str = "POSTONCE_TESTS_SEED";
/// Minimum number of kills of a short run.
const KILLS_MIN: u64 = 10;
/// The batches of a short run.
const BATCHES: BatchPlan = BatchPlan { batches: 2, items: 1500 };
/// Longest fault phase, on a machine that is busy with other tests.
const FAULT_PHASE_MAX: Duration = Duration::from_secs(180);

on_both_stores![everything_acknowledged_is_final_exactly_once_after_kills_and_storage_faults];

async fn everything_acknowledged_is_final_exactly_once_after_kills_and_storage_faults(store_kind: StoreKind) {
    let short = ChaosConfig::on(store_kind, seed(), Duration::from_secs(15));
    let course = ChaosConfig {
        kills_min: KILLS_MIN,
        every_kind: true,
        duration_max: FAULT_PHASE_MAX,
        batches: BATCHES,
        ..short
    };
    let report = course.run(|_: &Report| {}).await;
    println!("{report}");
    assert_eq!(report.findings, Vec::<String>::new());
    let Counts {
        webs_killed,
        workers_killed,
        suspensions,
        locks_held,
        transactions,
        posted_at_once,
        refusals,
        batches,
        batch_items,
        ..
    } = report.counts;
    assert!(report.counts.kills() >= KILLS_MIN, "{report}");
    assert!(webs_killed > 0 && workers_killed > 0 && suspensions > 0, "{report}");
    assert!(transactions > 0 && refusals > 0 && posted_at_once > 0, "{report}");
    assert_eq!((batches, batch_items), (2, 3000), "{report}");
    match store_kind {
        StoreKind::Azurite => {
            let missing: Vec<_> =
                StorageFault::ALL.into_iter().filter(|fault| !report.faults.contains_key(fault)).collect();
            assert!(missing.is_empty(), "faults that did not occur: {missing:?}\n{report}");
        }
        StoreKind::Sqlite => assert!(locks_held > 0, "{report}"),
    }
}

/// Chaos detects a faulty worker. Only workers are killed and no other faults are injected, so that all
/// losses are caused by the workers.
#[tokio::test]
async fn a_worker_that_deletes_before_it_commits_is_detected() {
    // Long enough for some transactions between the kills, also on a slow machine.
    let quiet = ChaosConfig::on(StoreKind::Azurite, seed(), Duration::from_secs(20));
    let course = ChaosConfig {
        kills_min: KILLS_MIN,
        duration_max: FAULT_PHASE_MAX,
        processes: vec![
            ProcessSpec::web(),
            ProcessSpec::early_deleting_worker(),
            ProcessSpec::early_deleting_worker(),
        ],
        killed_kind: Some(ProcessKind::Worker),
        every_fault: false,
        ..quiet
    };
    let report = course.run(|_: &Report| {}).await;
    println!("{report}");
    let lost =
        report.findings.iter().filter(|finding| finding.contains("was acknowledged and does not exist"));
    assert!(lost.count() > 0, "the faulty worker was not detected\n{report}");
}

fn seed() -> u64 {
    let seed = std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("seed {seed} (set {SEED_VARIABLE} to repeat it)");
    seed
}
