//! A short run of chaos on each store: at least ten kills, every fault of the storage, and an audit
//! without findings. The command `chaos` runs as long as one likes.

use std::time::Duration;

use postonce_tests::chaos::Course;
use postonce_tests::chaos::mishap::Mishap;
use postonce_tests::chaos::report::Report;
use postonce_tests::scenario::Stand;

/// Repeats a run.
const SEED_VARIABLE: &str = "POSTONCE_TESTS_SEED";
/// Kills that a short run survives.
const KILLS_MIN: u64 = 10;
/// Longest rough part, on a machine that is busy with other tests.
const ROUGH_TIME_MAX: Duration = Duration::from_secs(180);

on_both_stands![everything_promised_is_final_exactly_once_after_kills_and_storage_faults];

async fn everything_promised_is_final_exactly_once_after_kills_and_storage_faults(stand: Stand) {
    let seed = std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("seed {seed} (set {SEED_VARIABLE} to repeat it)");
    let short = Course::on(stand, seed, Duration::from_secs(15));
    let course = Course { kills_min: KILLS_MIN, every_mishap: true, duration_max: ROUGH_TIME_MAX, ..short };
    let report = course.run(|_: &Report| {}).await;
    println!("{report}");
    assert_eq!(report.findings, Vec::<String>::new());
    assert!(report.counts.kills() >= KILLS_MIN, "{report}");
    assert!(report.counts.transactions > 0 && report.counts.refusals > 0, "{report}");
    match stand {
        Stand::Azurite => {
            let missing: Vec<_> =
                Mishap::ALL.into_iter().filter(|mishap| !report.mishaps.contains_key(mishap)).collect();
            assert!(missing.is_empty(), "faults that befell nothing: {missing:?}\n{report}");
        }
        Stand::Sqlite => assert!(report.counts.locks_held > 0, "{report}"),
    }
}
