//! Current figures, and the routes by which transactions were posted.

use maud::{Markup, html};
use postonce_schemas::json::{Overview, OverviewActivity, OverviewCosts, OverviewProcess};

use super::{depth, is_held, is_late, lacks_workers, last_minute};
use crate::console::addresses::Section;
use crate::console::html::components::{Tone, card_with, empty, progress, tile, tiles, time, toned_tile};
use crate::console::html::format::{self, counted, decimal, plural};
use crate::console::viewer::Viewer;

/// Minimum and maximum number of decimals of a price.
const DECIMALS: (usize, usize) = (2, 4);

/// Returns the current figures.
pub fn figures(overview: &Overview, viewer: &Viewer) -> Markup {
    let rates = &overview.per_second;
    let rate = |label, rate: &str| {
        tile(label, &decimal(rate), Some("per second"), Some("Transactions, over the last 10 s"))
    };
    tiles(&[
        rate("Accepted", &rates.accepted),
        rate("Posted", &rates.posted),
        rate("Rejected", &rates.rejected),
        oldest_work(overview),
        waiting_messages(overview),
        receivers(overview),
        workers(overview),
        dead_letters(overview, viewer),
        errors(
            "Failed requests",
            &overview.activity,
            &overview.activity.request_errors,
            "In the last minute, status 5xx",
        ),
        errors(
            "Storage errors",
            &overview.activity,
            &overview.activity.storage_errors,
            "In the last minute; most are repeated",
        ),
        price(&overview.costs),
    ])
}

/// Returns how many transactions were posted by each route in the last minute of the activity.
pub fn ways(activity: &OverviewActivity) -> Markup {
    let sum = |counts: &[u64]| last_minute(activity, counts);
    let (immediate, queued) = (sum(&activity.posted_immediately), sum(&activity.posted_queued));
    let in_batches = sum(&activity.posted_in_batches);
    let total = immediate.saturating_add(queued).saturating_add(in_batches);
    let bar = |label, part: u64| {
        let text = format!("{} ({})", format::count(part), format::percent(part, total));
        progress(label, format::permille(part, total), &text)
    };
    let body = html! {
        @if total == 0 {
            (empty("Nothing was posted", html! { "No transaction was posted in this minute, on any way." }))
        } @else {
            (bar("Immediately, when the request arrived", immediate))
            (bar("From the queue", queued))
            (bar("In batches", in_batches))
        }
    };
    let until = html! { "The minute until " (time(&activity.until)) };
    card_with("Ways of posting", until, body)
}

/// Describes the age of the oldest message.
pub fn oldest_age(overview: &Overview) -> String {
    match overview.oldest_open_age_s {
        None => "Not known".to_owned(),
        Some(_) if depth(overview) == 0 => "None".to_owned(),
        Some(age_s) => format::duration_s(age_s),
    }
}

fn oldest_work(overview: &Overview) -> Markup {
    let target = format!("Target: {}", format::duration_s(overview.scale.posting_age_target_s));
    let (tone, note) = if is_late(overview) {
        (Tone::Warning, target)
    } else if overview.oldest_open_age_s.is_none() {
        (Tone::Neutral, "Workers hold all messages".to_owned())
    } else if is_held(&overview.gate) {
        (Tone::Neutral, "It waits for the gate".to_owned())
    } else {
        (Tone::Neutral, target)
    };
    toned_tile(tone, "Oldest open work", &oldest_age(overview), None, Some(&note))
}

fn waiting_messages(overview: &Overview) -> Markup {
    let note = format!("Read at {}", format::instant(&overview.queues_read_at));
    let depth = depth(overview);
    tile("In the queues", &format::count(depth), Some(plural(depth, "message", "messages")), Some(&note))
}

fn receivers(overview: &Overview) -> Markup {
    let sum = |of: fn(&OverviewProcess) -> u32| {
        overview.processes.iter().fold(0, |sum: u64, process| sum.saturating_add(of(process).into()))
    };
    let (active, max) = (sum(|process| process.active_receivers), sum(|process| process.receivers_max));
    let of_max = format!("of {}", format::count(max));
    tile(
        "Receivers active",
        &format::count(active),
        Some(&of_max),
        Some("They grow with the work that waits"),
    )
}

fn workers(overview: &Overview) -> Markup {
    let tone = if lacks_workers(overview) { Tone::Warning } else { Tone::Neutral };
    let running = format::count(overview.workers_running.into());
    let note = format!("{} wanted", format::count(overview.scale.workers_wanted.into()));
    toned_tile(tone, "Workers running", &running, None, Some(&note))
}

fn dead_letters(overview: &Overview, viewer: &Viewer) -> Markup {
    let (tone, value, note) = match overview.dead_letters_open {
        None => (Tone::Neutral, "Not known".to_owned(), html! { "Not counted yet" }),
        Some(0) => (Tone::Neutral, format::count(0), html! { "None waits for a decision" }),
        Some(number) => {
            let help = viewer.link(Section::DeadLetters, "Decide about them");
            (Tone::Warning, format::count(number), help)
        }
    };
    // Same as a tile, but the note is a link.
    html! {
        .tile data-tone=(tone.code()) {
            dt { "Dead letters open" }
            dd.tile-value { (value) }
            dd.tile-note { span { (note) } }
        }
    }
}

fn errors(label: &str, activity: &OverviewActivity, counts: &[u64], note: &str) -> Markup {
    let number = last_minute(activity, counts);
    let tone = if number > 0 { Tone::Warning } else { Tone::Neutral };
    toned_tile(tone, label, &format::count(number), None, Some(note))
}

fn price(costs: &OverviewCosts) -> Markup {
    let label = "A million postings";
    match &costs.price_usd_per_million_postings {
        None => tile(label, "Not known", None, Some("Nothing was posted since the start")),
        Some(price) => {
            let note = format!(
                "Storage, at the rate of {} since the start",
                counted(costs.postings, "posting", "postings")
            );
            tile(label, &short_usd(price), None, Some(&note))
        }
    }
}

/// Formats an amount of US dollars with two to four decimals. Further decimals are cut off.
fn short_usd(price: &str) -> String {
    let (min, max) = DECIMALS;
    let Some((whole, decimals)) = price.split_once('.') else {
        return format::usd(price);
    };
    let kept = decimals.get(..max).unwrap_or(decimals).trim_end_matches('0');
    format::usd(&format!("{whole}.{kept:0<min$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::pages::overview::sample::well;

    #[test]
    fn prices_are_short() {
        let prices =
            [("1.030500000", "$1.0305"), ("2.000000000", "$2.00"), ("0.000000000", "$0.00"), ("3", "$3")];
        for (price, text) in prices {
            assert_eq!(short_usd(price), text);
        }
    }

    #[test]
    fn only_the_last_steps_count() {
        let activity = OverviewActivity { step_s: 10, ..well().activity };
        let counts: Vec<u64> = (1..=100).collect();
        assert_eq!(last_minute(&activity, &counts), 95 + 96 + 97 + 98 + 99 + 100);
        assert_eq!(last_minute(&activity, &[7]), 7);
    }

    #[test]
    fn the_ways_are_parts_of_what_was_posted() {
        let busy = ways(&well().activity).into_string();
        assert!(busy.contains(r#"<progress max="1000" value="857">6 (85.7 %)</progress>"#), "{busy}");
        let idle = OverviewActivity { posted_immediately: vec![], posted_queued: vec![0], ..well().activity };
        assert!(ways(&idle).into_string().contains("Nothing was posted"));
    }
}
