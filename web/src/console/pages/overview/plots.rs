//! The plots of the last hour, and the points that events append to them.

use maud::Markup;
use postonce_schemas::json::OverviewActivity;
use postonce_shared::domain::time::Timestamp;
use serde_json::{Number, Value, json};

use crate::console::html::pictures::{Series, plot};

const MS_PER_S: i64 = 1000;

/// A plot: its name, its title, and the titles of its series.
struct Plot {
    name: &'static str,
    title: &'static str,
    series: &'static [&'static str],
    /// Returns the counts of each series.
    counts: fn(&OverviewActivity) -> Vec<Vec<u64>>,
}

const PLOTS: [Plot; 3] = [
    Plot {
        name: "decided",
        title: "Transactions per second",
        series: &["Accepted", "Posted", "Rejected"],
        counts: |activity| vec![activity.accepted.clone(), posted(activity), activity.rejected.clone()],
    },
    Plot {
        name: "ways",
        title: "Posted per second, by way",
        series: &["Immediately", "From the queue", "In batches"],
        counts: |activity| {
            let OverviewActivity { posted_immediately, posted_queued, posted_in_batches, .. } = activity;
            vec![posted_immediately.clone(), posted_queued.clone(), posted_in_batches.clone()]
        },
    },
    Plot {
        name: "errors",
        title: "Errors per second",
        series: &["Requests answered with 5xx", "Storage operations that failed"],
        counts: |activity| vec![activity.request_errors.clone(), activity.storage_errors.clone()],
    },
];

/// Returns the plots of the activity.
pub fn plots(activity: &OverviewActivity) -> [Markup; 3] {
    let times = times(activity);
    PLOTS.map(|of| plot(of.name, of.title, &lines(&of, activity, times.len()), &times))
}

/// Returns the newest point of each plot, as the script of the console appends it.
pub fn newest(activity: &OverviewActivity) -> Vec<Value> {
    let Some(t) = times(activity).pop() else {
        return Vec::new();
    };
    let point = |Plot { name, counts, .. }: &Plot| {
        let last = |counts: &Vec<u64>| counts.last().map(|count| rate(*count, activity.step_s));
        let values: Vec<Option<Number>> = counts(activity).iter().map(last).collect();
        json!({"name": name, "t": t, "values": values})
    };
    PLOTS.iter().map(point).collect()
}

/// Returns the lines of a plot, with a value for each of so many steps.
fn lines(of: &Plot, activity: &OverviewActivity, steps: usize) -> Vec<Series<'static>> {
    let line = |(title, counts): (&&'static str, Vec<u64>)| {
        let of_step = |step: usize| counts.get(step).map(|count| rate(*count, activity.step_s));
        Series { title, values: (0..steps).map(of_step).collect() }
    };
    of.series.iter().zip((of.counts)(activity)).map(line).collect()
}

/// Returns the ends of the steps in seconds since 1970, the oldest first.
fn times(activity: &OverviewActivity) -> Vec<i64> {
    let Some(until) = Timestamp::parse(&activity.until) else {
        return Vec::new();
    };
    let (until_s, step_s) = (until.unix_ms().div_euclid(MS_PER_S), i64::from(activity.step_s));
    let steps = i64::try_from(activity.accepted.len()).unwrap_or_default();
    let end = |back: i64| until_s.saturating_sub(back.saturating_mul(step_s));
    (0..steps).rev().map(end).collect()
}

fn posted(activity: &OverviewActivity) -> Vec<u64> {
    let OverviewActivity { posted_immediately, posted_queued, posted_in_batches, .. } = activity;
    let with_queued = posted_immediately.iter().zip(posted_queued);
    let all = with_queued.zip(posted_in_batches);
    all.map(|((immediately, queued), batch)| immediately.saturating_add(*queued).saturating_add(*batch))
        .collect()
}

/// Returns the number per second of what was counted in a step, with up to three decimals.
fn rate(count: u64, step_s: u32) -> Number {
    let step_s = u64::from(step_s.max(1));
    let (whole, rest) = (count.div_euclid(step_s), count.rem_euclid(step_s));
    if rest == 0 {
        return whole.into();
    }
    let thousandths = rest.saturating_mul(1000).div_euclid(step_s);
    format!("{whole}.{thousandths:03}").parse().unwrap_or_else(|_| whole.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::pages::overview::sample::well;

    #[test]
    fn values_are_per_second() {
        let rates = [(0, 2, "0"), (5, 2, "2.5"), (20, 10, "2"), (1, 10, "0.1"), (7, 6, "1.166"), (3, 0, "3")];
        for (count, step_s, text) in rates {
            assert_eq!(rate(count, step_s).to_string(), text);
        }
    }

    #[test]
    fn a_plot_has_a_time_for_each_step() {
        // 2026-11-23T06:00:00Z is 1 795 413 600.
        let activity = well().activity;
        let [decided, ways, errors] = &PLOTS;
        assert_eq!(times(&activity), [1_795_413_598, 1_795_413_600]);
        let of = |plot: &Plot| {
            let values = lines(plot, &activity, 2).into_iter().map(|line| line.values);
            serde_json::to_string(&values.collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(of(decided), "[[2,2.5],[2,1.5],[0,0.5]]");
        assert_eq!(of(ways), "[[1.5,1.5],[0.5,0],[0,0]]");
        assert_eq!(of(errors), "[[0,0],[0,0]]");
        let unreadable = OverviewActivity { until: "soon".to_owned(), ..activity };
        assert!(times(&unreadable).is_empty());
        assert!(newest(&unreadable).is_empty());
    }

    #[test]
    fn events_append_the_newest_point() {
        let points = newest(&well().activity);
        assert_eq!(points[0], json!({"name": "decided", "t": 1_795_413_600, "values": [2.5, 1.5, 0.5]}));
        assert_eq!(points[1], json!({"name": "ways", "t": 1_795_413_600, "values": [1.5, 0, 0]}));
    }
}
