//! The latency of a storage service in the same region: mostly 3 to 30 ms, with a tail.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

/// Number of requests, per thousand, with a latency in each range of milliseconds.
const LATENCIES: [(u32, RangeInclusive<u64>); 5] =
    [(600, 3..=6), (300, 6..=15), (85, 15..=30), (13, 30..=150), (2, 150..=800)];

/// Draws the latency of a request.
pub(super) fn draw(rng: &mut StdRng) -> Duration {
    let mut ticket: u32 = rng.random_range(0..1000);
    let range = LATENCIES.into_iter().find(|(per_mille, _)| match ticket.checked_sub(*per_mille) {
        Some(rest) => {
            ticket = rest;
            false
        }
        None => true,
    });
    let (_, range) = range.expect("the shares add up to a thousand");
    Duration::from_millis(rng.random_range(range))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn most_latencies_are_3_to_30_ms_and_a_few_are_longer() {
        let mut rng = StdRng::seed_from_u64(1);
        let drawn: Vec<u128> = (0..10_000).map(|_| draw(&mut rng).as_millis()).collect();
        let usual = drawn.iter().filter(|ms| (3..=30).contains(*ms)).count();
        assert!((9_750..9_950).contains(&usual), "{usual}");
        assert!(drawn.iter().all(|ms| (3..=800).contains(ms)));
        assert!(drawn.iter().any(|ms| *ms > 150), "a tail");
    }
}
