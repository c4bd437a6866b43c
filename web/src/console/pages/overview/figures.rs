//! The figures of the moment, and on which ways transactions were posted.

use maud::{Markup, html};
use postonce_schemas::json::{Overview, OverviewActivity, OverviewCosts, OverviewProcess};

use super::measures::{depth, is_held, is_late, lacks_workers, last_minute, sum_of_last};
use super::words::{counted, link, plural};
use crate::console::html::components::{Tone, card_with, empty, progress, tile, tiles, time, toned_tile};
use crate::console::html::format;
use crate::console::html::shell::Section;

/// Length of the time whose ways of posting are shown, in seconds.
const WAYS_S: u32 = 600;
/// Smallest and largest number of decimals of a price in a figure.
const DECIMALS: (usize, usize) = (2, 4);

/// Returns the figures of the moment.
pub fn figures(overview: &Overview, sections: &[Section]) -> Markup {
    let rates = &overview.per_second;
    let rate = |label, rate: &str| {
        tile(label, &grouped(rate), Some("per second"), Some("Transactions, over the last 10 s"))
    };
    tiles(&[
        rate("Accepted", &rates.accepted),
        rate("Posted", &rates.posted),
        rate("Rejected", &rates.rejected),
        oldest_work(overview),
        waiting_messages(overview),
        receivers(overview),
        workers(overview),
        dead_letters(overview, sections),
        storage_errors(&overview.activity),
        price(&overview.costs),
    ])
}

/// Returns on which ways transactions were posted in the last ten minutes of the activity.
pub fn ways(activity: &OverviewActivity) -> Markup {
    let sum = |counts: &[u64]| sum_of_last(activity, counts, WAYS_S);
    let (immediate, queued) = (sum(&activity.posted_immediately), sum(&activity.posted_queued));
    let in_batches = sum(&activity.posted_in_batches);
    let total = immediate.saturating_add(queued).saturating_add(in_batches);
    let bar = |label, part: u64| {
        let permille = permille(part, total);
        progress(label, permille, &format!("{} ({})", format::count(part), percent(permille, part)))
    };
    let body = html! {
        @if total == 0 {
            (empty("Nothing was posted", html! { "No transaction was posted in these ten minutes, on any way." }))
        } @else {
            (bar("Immediately, when the request arrived", immediate))
            (bar("From the queue", queued))
            (bar("In batches", in_batches))
        }
    };
    let until = html! { "Ten minutes until " (time(&activity.until)) };
    card_with("Ways of posting", until, body)
}

/// Returns the age of the oldest message in words.
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

fn dead_letters(overview: &Overview, sections: &[Section]) -> Markup {
    let (tone, value, note) = match overview.dead_letters_open {
        None => (Tone::Neutral, "Not known".to_owned(), html! { "Not counted yet" }),
        Some(0) => (Tone::Neutral, format::count(0), html! { "None waits for a decision" }),
        Some(number) => {
            let help = link(sections, Section::DeadLetters, "Decide about them");
            (Tone::Warning, format::count(number), help)
        }
    };
    // A tile whose note is a link.
    html! {
        .tile data-tone=(tone.code()) {
            dt { "Dead letters open" }
            dd.tile-value { (value) }
            dd.tile-note { span { (note) } }
        }
    }
}

fn storage_errors(activity: &OverviewActivity) -> Markup {
    let number = last_minute(activity, &activity.storage_errors);
    let tone = if number > 0 { Tone::Warning } else { Tone::Neutral };
    toned_tile(
        tone,
        "Storage errors",
        &format::count(number),
        None,
        Some("In the last minute; most are repeated"),
    )
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

/// Returns a decimal number with the digits before the point in groups of three.
pub fn grouped(decimal: &str) -> String {
    let (whole, decimals) = decimal.split_once('.').unwrap_or((decimal, ""));
    match whole.parse() {
        Ok(whole) if !decimals.is_empty() => format!("{}.{decimals}", format::count(whole)),
        Ok(whole) => format::count(whole),
        Err(_) => decimal.to_owned(),
    }
}

/// Returns an amount of US dollars with two to four decimals; what is below them is cut off.
fn short_usd(price: &str) -> String {
    let (min, max) = DECIMALS;
    let Some((whole, decimals)) = price.split_once('.') else {
        return format::usd(price);
    };
    let kept = decimals.get(..max).unwrap_or(decimals).trim_end_matches('0');
    format::usd(&format!("{whole}.{kept:0<min$}"))
}

/// Returns a part of a total in thousandths, rounded down.
fn permille(part: u64, total: u64) -> u16 {
    let thousandths = u128::from(part).saturating_mul(1000).checked_div(total.into()).unwrap_or_default();
    u16::try_from(thousandths).unwrap_or(1000)
}

fn percent(permille: u16, part: u64) -> String {
    if permille == 0 && part > 0 {
        return "less than 0.1 %".to_owned();
    }
    format!("{}.{} %", permille.div_euclid(10), permille.rem_euclid(10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::pages::overview::sample::well;

    #[test]
    fn numbers_are_short_and_grouped() {
        assert_eq!(grouped("12345.4"), "12\u{202f}345.4");
        assert_eq!(grouped("0.0"), "0.0");
        assert_eq!(grouped("?"), "?");
        let prices =
            [("1.030500000", "$1.0305"), ("2.000000000", "$2.00"), ("0.000000000", "$0.00"), ("3", "$3")];
        for (price, text) in prices {
            assert_eq!(short_usd(price), text);
        }
        for (part, total, text) in
            [(0, 5, "0.0 %"), (1, 5000, "less than 0.1 %"), (982, 1000, "98.2 %"), (5, 5, "100.0 %")]
        {
            assert_eq!(percent(permille(part, total), part), text);
        }
        assert_eq!(permille(0, 0), 0);
    }

    #[test]
    fn only_the_last_steps_count() {
        let activity = OverviewActivity { step_s: 10, ..well().activity };
        let counts: Vec<u64> = (1..=100).collect();
        assert_eq!(last_minute(&activity, &counts), 95 + 96 + 97 + 98 + 99 + 100);
        assert_eq!(sum_of_last(&activity, &counts, WAYS_S), (41..=100).sum::<u64>());
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
