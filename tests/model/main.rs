//! The models of `postonce_tests::model`: every state within the small bounds, and every rule broken
//! once. `cargo run --release -p postonce-tests --bin model-check` has larger bounds.

mod protocol;
mod ranges;

use postonce_tests::model::bounds::SMALL;

#[test]
fn every_state_within_the_small_bounds_keeps_every_promise() {
    for run in SMALL {
        match run.exhaust(2, |_| {}) {
            Ok(figures) => println!("{}: {figures}", run.about),
            Err(findings) => panic!("{}: {findings}\n{:?}", run.about, run.subject),
        }
    }
}
