//! The models of `postonce_tests::model`: every state within the small bounds, and every rule broken
//! once. `cargo run --release -p postonce-tests --bin model-check` has larger bounds.

mod protocol;
mod ranges;

use std::io::Write as _;

use postonce_tests::model::bounds::SMALL;
use postonce_tests::model::explore::Figures;

#[test]
fn every_state_within_the_small_bounds_keeps_every_promise() {
    let mut total = Figures::default();
    for run in SMALL {
        match run.exhaust(2, |_| {}) {
            Ok(figures) => {
                println!("{}: {figures}", run.about);
                total = total.with(&figures);
            }
            Err(findings) => panic!("{}: {findings}\n{:?}", run.about, run.subject),
        }
    }
    // Past the capture of the test runner: how much was proved belongs to the result.
    writeln!(std::io::stderr(), "model check, {} runs: {total}", SMALL.len()).expect("stderr takes a line");
}
