//! How long to wait: when the queues are empty, and after a fault. Pure, but for the jitter.

use std::time::Duration;

use postonce_shared::ports::world::{World, WorldExt as _};

/// A wait that doubles from a first one to a longest one, randomized so that many who wait do not
/// come back together.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    steps: u32,
}

impl Backoff {
    /// A fresh wait.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, steps: 0 }
    }

    /// A wait that was repeated so often already.
    pub const fn after(first: Duration, longest: Duration, steps: u32) -> Self {
        Self { first, longest, steps }
    }

    /// The next wait: half of the step for sure, the other half at random.
    pub fn next(&mut self, world: &dyn World) -> Duration {
        let step = step(self.first, self.longest, self.steps);
        self.steps = self.steps.saturating_add(1);
        let half = step.checked_div(2).unwrap_or_default();
        half.saturating_add(world.jitter(step.saturating_sub(half)))
    }

    /// Starts over.
    pub const fn reset(&mut self) {
        self.steps = 0;
    }
}

/// The longest wait after so many steps.
fn step(first: Duration, longest: Duration, steps: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(steps)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let ms = Duration::from_millis;
        let steps: Vec<Duration> = (0..6).map(|steps| step(ms(100), ms(1000), steps)).collect();
        assert_eq!(steps, [ms(100), ms(200), ms(400), ms(800), ms(1000), ms(1000)]);
        assert_eq!(step(ms(100), ms(1000), u32::MAX), ms(1000));
    }
}
