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
    /// The part of a step that is left to chance once it is the longest: one in so many.
    chance_at_longest: u32,
}

/// The part of a step that is left to chance: one in two.
const CHANCE: u32 = 2;
/// The same for waits that cost money when they are shorter than they need be.
const CHANCE_OF_STEADY: u32 = 50;

impl Backoff {
    /// A fresh wait.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, steps: 0, chance_at_longest: CHANCE }
    }

    /// A fresh wait that, once it is the longest, is hardly ever shorter: for polls that are paid for.
    pub const fn steady(first: Duration, longest: Duration) -> Self {
        Self { chance_at_longest: CHANCE_OF_STEADY, ..Self::new(first, longest) }
    }

    /// A wait that was repeated so often already.
    pub const fn after(first: Duration, longest: Duration, steps: u32) -> Self {
        Self { steps, ..Self::new(first, longest) }
    }

    /// The next wait: the step, less a random part of at most half of it.
    pub fn next(&mut self, world: &dyn World) -> Duration {
        let step = step(self.first, self.longest, self.steps);
        self.steps = self.steps.saturating_add(1);
        let chance = if step == self.longest { self.chance_at_longest } else { CHANCE };
        step.saturating_sub(world.jitter(step.checked_div(chance).unwrap_or_default()))
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
    use postonce_shared::adapters::memory::world::TestWorld;

    #[test]
    fn waits_double_up_to_the_longest() {
        let ms = Duration::from_millis;
        let steps: Vec<Duration> = (0..6).map(|steps| step(ms(100), ms(1000), steps)).collect();
        assert_eq!(steps, [ms(100), ms(200), ms(400), ms(800), ms(1000), ms(1000)]);
        assert_eq!(step(ms(100), ms(1000), u32::MAX), ms(1000));
    }

    #[test]
    fn waits_are_random_and_a_steady_one_is_nearly_its_longest() {
        let world = TestWorld::new(1);
        let waits = |mut backoff: Backoff, skip: usize| -> (Duration, Duration) {
            let all: Vec<Duration> = (0..1000).map(|_| backoff.next(&world)).skip(skip).collect();
            (*all.iter().min().unwrap(), *all.iter().max().unwrap())
        };
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(60));
        let (least, most) = waits(Backoff::new(first, longest), 10);
        assert!(least < longest * 6 / 10 && least >= longest / 2 && most <= longest, "{least:?} {most:?}");
        let (least, most) = waits(Backoff::steady(first, longest), 10);
        assert!(least >= longest * 98 / 100 && least < most && most <= longest, "{least:?} {most:?}");
    }
}
