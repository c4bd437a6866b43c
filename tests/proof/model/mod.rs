//! Tests of `postonce_tests::model`: every state within the small bounds, and every rule broken once.
//! `cargo run --release --bin postonce-tests -- model-check` has larger bounds.

mod protocol;
mod ranges;

use std::io::Write as _;

use postonce_tests::model::bounds::SMALL;
use postonce_tests::model::explore::Figures;

#[test]
fn every_property_holds_within_the_small_bounds() {
    let mut total = Figures::default();
    for run in SMALL {
        match run.exhaust(2, |_| {}) {
            Ok(figures) => {
                println!("{}: {figures}", run.description);
                total = total.with(&figures);
            }
            Err(findings) => panic!("{}: {findings}\n{:?}", run.description, run.subject),
        }
    }
    // Written to stderr directly, so that the size of the proof is visible without `--nocapture`.
    writeln!(std::io::stderr(), "model check, {} runs: {total}", SMALL.len()).expect("stderr is writable");
}
