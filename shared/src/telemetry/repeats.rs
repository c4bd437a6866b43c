//! Limits how often the same warning is written: an outage fails every request, and thousands of equal lines hide the first
//! one and fill the disk.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, warn};
use tracing_subscriber::layer::{Context, Filter};

use crate::oversight::audit;
use crate::ports::world::World;

/// Number of lines of one kind in a [`WINDOW`].
const LINES_MAX: u32 = 10;
/// Time after which the lines are counted again.
const WINDOW: Duration = Duration::from_secs(60);

/// Filter for warnings and errors that are written at the same place of the program: the first ones of each minute pass, and the
/// number of the others is logged at the end of it. Audit rows always pass.
#[derive(Clone)]
pub(super) struct RepeatLimit {
    shared: Arc<Shared>,
    world: Arc<dyn World>,
}

#[derive(Debug, Default)]
struct Shared {
    places: Mutex<HashMap<Identifier, Place>>,
    left_out: Condvar,
}

/// The lines of one place of the program.
#[derive(Debug)]
struct Place {
    since: Duration,
    lines: u32,
    left_out: u64,
    /// The first line that was left out.
    example: String,
}

impl RepeatLimit {
    /// Creates the limit of a process.
    pub(super) fn new(world: Arc<dyn World>) -> Self {
        Self { shared: Arc::default(), world }
    }

    /// Starts the thread that logs how many lines were left out. It sleeps while none is.
    pub(super) fn report(&self) {
        let shared = Arc::clone(&self.shared);
        let report = move || {
            loop {
                let mut places = shared.places.lock();
                while places.values().all(|place| place.left_out == 0) {
                    shared.left_out.wait(&mut places);
                }
                drop(places);
                std::thread::sleep(WINDOW);
                for (left_out, example) in shared.take() {
                    warn!(left_out, "{left_out} more lines in the last minute like this one: {example}");
                }
            }
        };
        // Without the thread, the numbers are not told.
        let _started = std::thread::Builder::new().name("log-repeats".into()).spawn(report);
    }

    /// Returns whether an event of this place passes. `example` is its text.
    fn passes(&self, place: Identifier, now: Duration, example: impl FnOnce() -> String) -> bool {
        let mut places = self.shared.places.lock();
        let place = places.entry(place).or_insert_with(|| Place::new(now));
        if place.left_out == 0 && now.saturating_sub(place.since) >= WINDOW {
            *place = Place::new(now);
        }
        if place.lines < LINES_MAX {
            place.lines = place.lines.saturating_add(1);
            return true;
        }
        if place.left_out == 0 {
            place.example = example();
            self.shared.left_out.notify_all();
        }
        place.left_out = place.left_out.saturating_add(1);
        false
    }
}

impl Shared {
    /// Returns the numbers of lines that were left out, and begins to count again.
    fn take(&self) -> Vec<(u64, String)> {
        let mut places = self.places.lock();
        let left_out = places.extract_if(|_, place| place.left_out > 0);
        left_out.map(|(_, place)| (place.left_out, place.example)).collect()
    }
}

impl Place {
    const fn new(since: Duration) -> Self {
        Self { since, lines: 0, left_out: 0, example: String::new() }
    }
}

impl<S: Subscriber> Filter<S> for RepeatLimit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn callsite_enabled(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::always()
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN || metadata.target() == audit::TARGET {
            return true;
        }
        self.passes(metadata.callsite(), self.world.uptime(), || {
            let mut message = Message(String::new());
            event.record(&mut message);
            message.0
        })
    }
}

/// The text of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // Writing to a string never fails.
            let _written = fmt::write(&mut self.0, format_args!("{value:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Callsite;

    use super::*;
    use crate::adapters::memory::world::TestWorld;

    #[test]
    fn the_first_lines_of_a_minute_pass_and_the_others_are_counted() {
        struct At(u8);
        impl Callsite for At {
            fn set_interest(&self, _: Interest) {}

            fn metadata(&self) -> &Metadata<'_> {
                unreachable!("it is only identified")
            }
        }
        static FIRST: At = At(1);
        static SECOND: At = At(2);
        assert_ne!(FIRST.0, SECOND.0, "different statics have different addresses");
        let limit = RepeatLimit::new(Arc::new(TestWorld::new(1)));
        let passes = |place: &'static At, second| {
            let now = Duration::from_secs(second);
            limit.passes(Identifier(place), now, || format!("line of second {second}"))
        };
        let passed = (0..25).filter(|second| passes(&FIRST, *second)).count();
        assert_eq!(passed, 10);
        assert!(passes(&SECOND, 25), "another place has its own lines");
        assert_eq!(limit.shared.take(), [(15, "line of second 10".to_owned())]);
        assert_eq!(limit.shared.take(), []);
        assert!(passes(&FIRST, 26), "counted again");
        assert_eq!((27..34).filter(|second| passes(&SECOND, *second)).count(), 7);
        assert_eq!((85..120).filter(|second| passes(&SECOND, *second)).count(), 10, "a new minute begins");
    }
}
