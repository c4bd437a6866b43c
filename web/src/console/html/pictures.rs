//! Pictures: plots over time, which `console.js` draws, and ranges of order numbers, which need no scripts.

use std::iter;

use maud::{Markup, PreEscaped, html};
use serde_json::Number;

use super::components::{Tone, time};
use super::format;

/// Width of the picture of a range, in its own units.
const SCALE: u64 = 1_000;
/// Smallest width of a range, so that it is seen.
const WIDTH_MIN: u64 = 6;

/// Dashes of the lines of a plot, so that they differ by more than their colors. The stylesheet has as many colors.
const DASHES: [&str; 6] = ["none", "8 4", "3 3", "10 3 3 3", "14 4", "2 5"];

/// One line of a plot.
#[derive(Debug)]
pub struct Series<'a> {
    /// What its values are.
    pub title: &'a str,
    /// A value for each of the times of the plot; `None` where there is none.
    pub values: Vec<Option<Number>>,
}

/// A range of order numbers in a picture.
#[derive(Debug, Clone, Copy)]
pub struct RangeBar<'a> {
    /// Who holds it.
    pub label: &'a str,
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
    /// When it was reserved, in RFC 3339 and UTC.
    pub since: &'a str,
}

/// Returns a picture of ranges on one scale, from the first number of all to the last, and each range in words.
pub fn ranges(bars: &[RangeBar<'_>]) -> Markup {
    let first = bars.iter().map(|bar| bar.first).min().unwrap_or_default();
    let last = bars.iter().map(|bar| bar.last).max().unwrap_or_default();
    html! {
        ul.ranges {
            @for bar in bars {
                li data-tone=(Tone::Neutral.code()) {
                    .range-head { code.id { (bar.label) } }
                    (picture(bar, first, last))
                    .range-foot {
                        span { (format::count(bar.first)) "\u{2013}" (format::count(bar.last)) }
                        span { "since " (time(bar.since)) }
                    }
                }
            }
        }
        @if !bars.is_empty() {
            p.range-scale { span { (format::count(first)) } span { (format::count(last)) } }
        }
    }
}

fn picture(bar: &RangeBar<'_>, first: u64, last: u64) -> Markup {
    let span = last.saturating_sub(first).max(1);
    let place = |number: u64| {
        let units = u128::from(number.saturating_sub(first)).saturating_mul(u128::from(SCALE));
        let units = units.checked_div(u128::from(span)).unwrap_or_default();
        u64::try_from(units).unwrap_or(SCALE).min(SCALE)
    };
    let start = place(bar.first);
    let width = place(bar.last).saturating_sub(start).max(WIDTH_MIN);
    let start = start.min(SCALE.saturating_sub(width));
    html! {
        svg.range viewBox="0 0 1000 12" preserveAspectRatio="none" width="100%" height="12" aria-hidden="true" {
            rect.range-track width="1000" height="12" {}
            rect.range-part x=(start) width=(width) height="12" {}
        }
    }
}

/// Returns a plot of the last hour, of at most six series, at these times in seconds since 1970, ascending. The name must be unique on
/// the page; events named `plot` with this name append points.
///
/// Below the plot stand the latest values, which are all that is shown without scripts, and what assistive technology reads.
pub fn plot(name: &str, label: &str, series: &[Series<'_>], times: &[i64]) -> Markup {
    let at = times.last().and_then(|at| u64::try_from(*at).ok());
    let at = at.map_or_else(|| "No values yet".to_owned(), |at| format!("At {}", format::time_of_day(at)));
    let label_id = format!("plot-{name}-label");
    html! {
        figure.plot data-plot=(name) aria-labelledby=(label_id) {
            figcaption id=(label_id) { (label) }
            .plot-area aria-hidden="true" {}
            ul.plot-legend {
                @for (index, Series { title, values }) in series.iter().enumerate() {
                    li {
                        (key(index))
                        span.plot-series { (title) }
                        span.plot-value data-value { (text_of(values.last().and_then(Option::as_ref))) }
                    }
                }
            }
            p.plot-time data-time { (at) }
            script type="application/json" { (PreEscaped(columns(times, series))) }
        }
    }
}

/// Returns a piece of the line of a series. `console.js` draws the line with the same color and the same dashes.
fn key(index: usize) -> Markup {
    let dashes = DASHES.get(index).copied();
    html! {
        svg.plot-key viewBox="0 0 24 8" width="24" height="8" aria-hidden="true" data-series=(index) {
            path d="M0 4h24" stroke-dasharray=[dashes] {}
        }
    }
}

/// Returns the data of a plot for `console.js`: an array of the times, and one of the values of each series. Numbers contain nothing
/// that could end the script element.
fn columns(times: &[i64], series: &[Series<'_>]) -> String {
    let values = series.iter().map(|series| serde_json::to_string(&series.values));
    let columns = iter::once(serde_json::to_string(times)).chain(values);
    format!("[{}]", columns.map(Result::unwrap_or_default).collect::<Vec<_>>().join(","))
}

/// Returns the latest value of a plot.
fn text_of(value: Option<&Number>) -> String {
    let whole = value.and_then(Number::as_u64).map(format::count);
    whole.or_else(|| value.map(Number::to_string)).unwrap_or_else(|| "\u{2013}".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: RangeBar<'_> = RangeBar { label: "a", first: 0, last: 0, since: "2026-11-23T06:00:00Z" };

    fn rect(bars: &[RangeBar<'_>], index: usize) -> String {
        let html = ranges(bars).into_string();
        let part = html.split("range-part\" ").skip(1).nth(index).unwrap();
        part.split(" height").next().unwrap().to_owned()
    }

    #[test]
    fn ranges_share_a_scale() {
        let bars =
            [RangeBar { first: 100, last: 199, ..PLAIN }, RangeBar { first: 1_000, last: 1_100, ..PLAIN }];
        assert_eq!(rect(&bars, 0), r#"x="0" width="99""#);
        assert_eq!(rect(&bars, 1), r#"x="900" width="100""#);
    }

    #[test]
    fn ranges_stay_in_the_picture() {
        let small = [
            RangeBar { first: 0, last: u64::MAX, ..PLAIN },
            RangeBar { first: u64::MAX, last: u64::MAX, ..PLAIN },
        ];
        assert_eq!(rect(&small, 0), r#"x="0" width="1000""#);
        assert_eq!(rect(&small, 1), r#"x="994" width="6""#);
        assert_eq!(rect(&[PLAIN], 0), r#"x="0" width="6""#);
        assert!(!ranges(&[]).into_string().contains("range-scale"));
    }

    #[test]
    fn a_plot_has_its_latest_values_as_text() {
        let number = |text: &str| text.parse::<Number>().ok();
        let series = |title, values| Series { title, values };
        let lines = [
            series("a", vec![Some(4.into()), Some(12_345.into())]),
            series("b", vec![number("0.5"), None]),
            series("c", vec![Some(1.into()), number("2.5")]),
        ];
        let plot = plot("rate", "Postings", &lines, &[1_795_413_722, 1_795_413_723]).into_string();
        for text in [
            "data-value>12\u{202f}345<",
            "data-value>\u{2013}<",
            "data-value>2.5<",
            "At 06:02:03 UTC",
            ">[[1795413722,1795413723],[4,12345],[0.5,null],[1,2.5]]<",
        ] {
            assert!(plot.contains(text), "{text}");
        }
        let empty = super::plot("rate", "Postings", &[series("a", Vec::new())], &[]).into_string();
        assert!(empty.contains("No values yet") && empty.contains(">[[],[]]<"), "{empty}");
    }
}
