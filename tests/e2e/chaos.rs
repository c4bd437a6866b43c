//! A short run of chaos on each store: at least ten kills, every fault of the storage, and an audit
//! without findings. The command `chaos` runs as long as one likes.

use std::time::Duration;

use postonce_tests::chaos::Course;
use postonce_tests::chaos::fleet::Post;
use postonce_tests::chaos::mishap::Mishap;
use postonce_tests::chaos::report::Report;
use postonce_tests::chaos::tally::{Counts, Kill};
use postonce_tests::scenario::Stand;

/// Repeats a run.
const SEED_VARIABLE: &str = "POSTONCE_TESTS_SEED";
/// Kills that a short run survives.
const KILLS_MIN: u64 = 10;
/// Longest rough part, on a machine that is busy with other tests.
const ROUGH_TIME_MAX: Duration = Duration::from_secs(180);

on_both_stands![everything_promised_is_final_exactly_once_after_kills_and_storage_faults];

async fn everything_promised_is_final_exactly_once_after_kills_and_storage_faults(stand: Stand) {
    let short = Course::on(stand, seed(), Duration::from_secs(15));
    let course = Course { kills_min: KILLS_MIN, every_kind: true, duration_max: ROUGH_TIME_MAX, ..short };
    let report = course.run(|_: &Report| {}).await;
    println!("{report}");
    assert_eq!(report.findings, Vec::<String>::new());
    let Counts { webs_killed, workers_killed, suspensions, locks_held, transactions, refusals, .. } =
        report.counts;
    assert!(report.counts.kills() >= KILLS_MIN, "{report}");
    assert!(webs_killed > 0 && workers_killed > 0 && suspensions > 0, "{report}");
    assert!(transactions > 0 && refusals > 0, "{report}");
    match stand {
        Stand::Azurite => {
            let missing: Vec<_> =
                Mishap::ALL.into_iter().filter(|mishap| !report.mishaps.contains_key(mishap)).collect();
            assert!(missing.is_empty(), "faults that befell nothing: {missing:?}\n{report}");
        }
        Stand::Sqlite => assert!(locks_held > 0, "{report}"),
    }
}

/// The same chaos finds out that a worker is wrong. Only workers are killed, and nothing else happens: what
/// is lost was lost by them.
#[tokio::test]
async fn a_worker_that_deletes_before_it_commits_is_found_out() {
    let quiet = Course::on(Stand::Azurite, seed(), Duration::from_secs(10));
    let course = Course {
        kills_min: KILLS_MIN,
        duration_max: ROUGH_TIME_MAX,
        posts: vec![Post::web(), Post::hasty_worker(), Post::hasty_worker()],
        prey: Some(Kill::Worker),
        every_fault: false,
        ..quiet
    };
    let report = course.run(|_: &Report| {}).await;
    println!("{report}");
    let lost = report.findings.iter().filter(|finding| finding.contains("was promised and is nowhere"));
    assert!(lost.count() > 0, "the wrong worker was not found out\n{report}");
}

fn seed() -> u64 {
    let seed = std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("seed {seed} (set {SEED_VARIABLE} to repeat it)");
    seed
}
