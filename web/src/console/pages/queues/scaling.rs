//! Explains the wanted number of workers and what to do about it.

use maud::{Markup, html};
use postonce_schemas::json::{Overview, Scale};

use crate::console::html::components::{Tone, badge, card_with, definition};
use crate::console::html::format::{count, counted, duration_s};
use crate::console::pages::overview::is_held;

/// Rule that determines the wanted number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Because {
    Maximum,
    Minimum,
    Schedule,
    Backlog,
    /// No work waits, and no worker is needed.
    Nothing,
}

impl Because {
    fn of(scale: &Scale) -> Self {
        let Scale { workers_for_backlog, workers_floor, workers_min, workers_max, .. } = *scale;
        let needed = workers_for_backlog.max(workers_floor);
        if needed.max(workers_min) > workers_max {
            Self::Maximum
        } else if needed < workers_min {
            Self::Minimum
        } else if workers_floor > workers_for_backlog {
            Self::Schedule
        } else if workers_for_backlog > 0 {
            Self::Backlog
        } else {
            Self::Nothing
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Maximum => "More would be needed, but this is the configured maximum.",
            Self::Minimum => "Fewer would do, but this is the configured minimum.",
            Self::Schedule => "The schedule sets this minimum for the present minute.",
            Self::Backlog => "The work that waits needs them.",
            Self::Nothing => "Nothing waits, and neither the schedule nor the configuration sets a minimum.",
        }
    }
}

/// Explains the wanted number of workers, its reasons, and what to do.
pub fn advice(overview: &Overview) -> Markup {
    let (scale, running) = (&overview.scale, overview.workers_running);
    let wanted = scale.workers_wanted;
    let tone = if wanted > running { Tone::Warning } else { Tone::Good };
    let summary = format!("{} wanted, {} running", count(wanted.into()), count(running.into()));
    let reasons = [
        ("Wanted", html! { (counted(wanted, "worker", "workers")) ". " (Because::of(scale).words()) }),
        ("For the backlog", html! { (backlog(scale)) }),
        ("For the schedule", html! { (schedule(scale)) }),
        (
            "Limits",
            html! { "From " (count(scale.workers_min.into())) " to " (count(scale.workers_max.into())) },
        ),
    ];
    let body = html! {
        p { strong { (what_to_do(overview)) } }
        (definition(&reasons))
        @if scale.batch_items > 0 {
            p.hint {
                (counted(scale.batch_items, "item of an open batch has", "items of open batches have")) " no outcome yet. "
                (counted(scale.batch_chunks, "part", "parts")) " of batches can be posted side by side: more workers than that do \
                 not help them."
            }
        }
    };
    card_with("Workers", badge(tone, &summary), body)
}

fn what_to_do(overview: &Overview) -> String {
    let (wanted, running) = (overview.scale.workers_wanted, overview.workers_running);
    let more = |number: u32| counted(number, "more worker", "more workers");
    if wanted > running && is_held(&overview.gate) {
        return format!(
            "Start {}, so that they are there when the gate is released.",
            more(wanted.saturating_sub(running))
        );
    }
    if wanted > running {
        return format!("Start {}, unless an autoscaler does so.", more(wanted.saturating_sub(running)));
    }
    if wanted < running {
        let spare = counted(running.saturating_sub(wanted), "worker", "workers");
        return format!("{spare} can be stopped: each finishes its work in progress first.");
    }
    "There is nothing to do: as many workers run as are wanted.".to_owned()
}

fn backlog(scale: &Scale) -> String {
    let Scale {
        workers_for_backlog, depth, waiting, oldest_age_s, posting_age_target_s, worker_rate, ..
    } = scale;
    let needed = counted(*workers_for_backlog, "worker", "workers");
    let messages = counted(*depth, "message", "messages");
    let assumed = format!(
        "Target age {}, at {} per second and worker.",
        duration_s(*posting_age_target_s),
        counted(*worker_rate, "message", "messages")
    );
    if *waiting == 0 {
        return format!("{needed}: of {messages}, none waits for another worker. {assumed}");
    }
    let oldest = duration_s(*oldest_age_s);
    format!(
        "{needed}: of {messages}, about {} could be received by another worker; the oldest of them is {oldest} old. {assumed}",
        count(*waiting)
    )
}

fn schedule(scale: &Scale) -> String {
    match scale.workers_floor {
        0 => "No minimum in the present minute".to_owned(),
        floor => format!("At least {} in the present minute", count(floor.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::html::format::THIN_SPACE;
    use crate::console::pages::overview::sample::{held, well};

    fn because(for_backlog: u32, floor: u32, min: u32, max: u32) -> Because {
        let (workers_for_backlog, workers_floor, workers_min, workers_max) = (for_backlog, floor, min, max);
        Because::of(&Scale { workers_for_backlog, workers_floor, workers_min, workers_max, ..well().scale })
    }

    #[test]
    fn the_rule_that_decides_is_named() {
        assert_eq!(because(3, 0, 1, 8), Because::Backlog);
        assert_eq!(because(3, 5, 1, 8), Because::Schedule);
        assert_eq!(because(0, 0, 1, 8), Because::Minimum);
        assert_eq!(because(0, 0, 0, 8), Because::Nothing);
        assert_eq!(because(20, 5, 1, 8), Because::Maximum);
        assert_eq!(because(8, 0, 1, 8), Because::Backlog);
    }

    #[test]
    fn the_advice_says_what_to_do() {
        let with = |workers_wanted: u32, workers_running: u32, bank: Overview| {
            let scale = Scale { workers_wanted, ..bank.scale.clone() };
            advice(&Overview { scale, workers_running, ..bank }).into_string().replace(THIN_SPACE, " ")
        };
        let more = with(3, 1, well());
        assert!(more.contains("Start 2 more workers, unless an autoscaler does so."), "{more}");
        assert!(more.contains("3 wanted, 1 running") && more.contains(r#"data-tone="warning""#));
        assert!(more.contains(
            "1 worker: of 12 messages, about 5 could be received by another worker; the oldest of them is 2 s old."
        ));
        assert!(with(3, 1, held()).contains("when the gate is released"));
        assert!(with(1, 2, well()).contains("1 worker can be stopped"));
        assert!(with(1, 1, well()).contains("There is nothing to do"));
    }

    #[test]
    fn batches_limit_the_number_that_helps() {
        let scale =
            Scale { batch_items: 9_800, batch_chunks: 4, workers_floor: 2, waiting: 0, ..well().scale };
        let text = advice(&Overview { scale, ..well() }).into_string().replace(THIN_SPACE, " ");
        assert!(
            text.contains("9 800 items of open batches have no outcome yet. 4 parts of batches"),
            "{text}"
        );
        assert!(
            text.contains("At least 2 in the present minute")
                && text.contains("none waits for another worker")
        );
    }
}
