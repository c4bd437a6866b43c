//! The report: a table for people, and JSON for tools.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bench::prelude::*;
use crate::bench::rounds::{Measure, Series, Unit, spread};

/// The goal of a figure of an arm: the name of the arm, the figure, and the goal.
pub type GoalOf = (&'static str, Measure, Goal);

/// A goal.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// At least that many hundredths of the figure of the arm with that name, which comes later in the series.
    TimesTheOther(&'static str, u64),
    /// At most that many hundredths of it.
    TimesTheOtherAtMost(&'static str, u64),
    /// At least that value.
    AtLeast(u64),
    /// At most that value.
    AtMost(u64),
    /// At least that value, or that many hundredths of the figure of the arm with that name if this is less.
    AtLeastOrTimes(u64, &'static str, u64),
}

/// The median ratios of a figure to those of other arms, by their names, in hundredths.
type Ratios<'a> = [(&'a str, u64)];

impl Goal {
    /// The goal and whether it is met. `None` if it is relative to an arm that was not measured.
    fn verdict(self, unit: Unit, figure: u64, ratios: &Ratios<'_>) -> Option<String> {
        let times = |other: &str| ratios.iter().find(|(name, _)| *name == other).map(|(_, ratio)| *ratio);
        let hundredths = |value| Unit::Hundredths.shown(value);
        let (goal, is_met) = match self {
            Self::TimesTheOther(other, least) => {
                (format!("≥ {}× {other}", hundredths(least)), times(other)? >= least)
            }
            Self::TimesTheOtherAtMost(other, most) => {
                (format!("≤ {}× {other}", hundredths(most)), times(other)? <= most)
            }
            Self::AtLeast(least) => (format!("≥ {}", unit.shown(least)), figure >= least),
            Self::AtLeastOrTimes(least, other, part) => (
                format!("≥ {} or ≥ {}× {other}", unit.shown(least), hundredths(part)),
                figure >= least || times(other).is_some_and(|times| times >= part),
            ),
            Self::AtMost(most) => (format!("≤ {}", unit.shown(most)), figure <= most),
        };
        Some(format!("{goal} {}", if is_met { "met" } else { "**missed**" }))
    }
}

/// The results of a scenario.
pub struct Report {
    scenario: &'static str,
    lines: Vec<String>,
    entries: Vec<Value>,
}

impl Report {
    /// An empty one.
    pub const fn of(scenario: &'static str) -> Self {
        Self { scenario, lines: Vec::new(), entries: Vec::new() }
    }

    /// Adds the results of a phase, with the goals of its figures. Each arm is compared with the arms after it.
    pub fn add(&mut self, phase: &str, series: &Series, goals: &[GoalOf]) {
        for measure in series.measures() {
            for arm in 0..series.arms.len() {
                self.lines.extend(line(phase, series, measure, arm, goals));
            }
        }
        if series.kept.is_empty() {
            self.lines.push(format!("| {phase} | no round counts: the machine changed in each | | | | |"));
        }
        let arms: Vec<Value> = series
            .arms
            .iter()
            .enumerate()
            .map(|(arm, name)| {
                let figures = series.measures().into_iter();
                let figures: serde_json::Map<String, Value> =
                    figures.map(|it| (it.name.to_owned(), json!(series.figures(arm, it)))).collect();
                json!({"arm": name, "rounds": figures})
            })
            .collect();
        let units: serde_json::Map<String, Value> = series
            .measures()
            .into_iter()
            .map(|it| (it.name.to_owned(), json!(format!("{:?}", it.unit))))
            .collect();
        let disk: Vec<u64> = series.speeds.iter().map(|it| micros(it.disk)).collect();
        let processor: Vec<u64> = series.speeds.iter().map(|it| micros(it.processor)).collect();
        self.entries.push(json!({
            "phase": phase, "arms": arms, "units": units, "rounds_discarded": series.discarded,
            "fdatasync_us": disk, "hashing_4_mib_us": processor,
        }));
    }

    /// Prints the table, and writes all figures as JSON beside the stores of the measurements.
    pub fn finish(self, machine: &Machine) {
        println!("\n## {}\n", self.scenario);
        println!("| phase | figure | arm | median (range) | ratios | goals |");
        println!("|---|---|---|---|---|---|");
        self.lines.iter().for_each(|line| println!("{line}"));
        let path: PathBuf = machine.directory().join(format!("{}.json", self.scenario));
        let all = json!({
            "scenario": self.scenario, "machine": machine.described(), "phases": self.entries,
        });
        let text = serde_json::to_string_pretty(&all).expect("valid JSON");
        std::fs::write(&path, text).expect("write the results");
        println!("\nAll rounds: {}", path.display());
    }
}

/// The line of a figure of an arm; `None` if the arm does not have the figure.
fn line(phase: &str, series: &Series, measure: Measure, arm: usize, goals: &[GoalOf]) -> Option<String> {
    let name = *series.arms.get(arm)?;
    let [least, median, most] = spread(series.figures(arm, measure))?;
    let others = series.arms.iter().enumerate().skip(arm.saturating_add(1));
    let ratios: Vec<(&str, [u64; 3])> = others
        .filter_map(|(other, name)| Some((*name, spread(series.ratios(arm, other, measure))?)))
        .collect();
    let shown = |unit: Unit, [least, median, most]: [u64; 3]| {
        format!("{} ({}–{})", unit.shown(median), unit.shown(least), unit.shown(most))
    };
    let compared: Vec<String> = ratios
        .iter()
        .map(|(other, ratio)| format!("{} × {other}", shown(Unit::Hundredths, *ratio)))
        .collect();
    let medians: Vec<(&str, u64)> = ratios.iter().map(|(other, [_, median, _])| (*other, *median)).collect();
    let verdicts: Vec<String> = goals
        .iter()
        .filter(|(of, figure, _)| *of == name && *figure == measure)
        .filter_map(|(_, _, goal)| goal.verdict(measure.unit, median, &medians))
        .collect();
    Some(format!(
        "| {phase} | {} | {name} | {} | {} | {} |",
        measure.name,
        shown(measure.unit, [least, median, most]),
        compared.join(", "),
        verdicts.join(", "),
    ))
}

#[cfg(test)]
mod tests {
    use crate::bench::rounds::Sample;

    use super::*;

    const RATE: Measure = Measure::of("posted", Unit::PerSecond);

    #[test]
    fn each_arm_is_compared_with_the_arms_after_it() {
        let round = [300, 200, 100].map(|rate| Sample::from([(RATE, rate)])).to_vec();
        let arms = vec!["waiting", "queued", "PostgreSQL"];
        let series = Series { arms, kept: vec![round], discarded: 0, speeds: Vec::new() };
        let check = |arm, goal: Goal, expected: &str| {
            let name = *series.arms.get(arm).unwrap();
            let line = line("p", &series, RATE, arm, &[(name, RATE, goal), ("another", RATE, goal)]).unwrap();
            assert_eq!(line, format!("| p | posted | {name} | {expected} |"));
        };
        let (three, two, one) = ("300/s (300/s–300/s)", "200/s (200/s–200/s)", "100/s (100/s–100/s)");
        let ratios = "1.50 (1.50–1.50) × queued, 3.00 (3.00–3.00) × PostgreSQL";
        let times = |hundredths| Goal::TimesTheOther("PostgreSQL", hundredths);
        check(0, times(300), &format!("{three} | {ratios} | ≥ 3.00× PostgreSQL met"));
        check(0, times(301), &format!("{three} | {ratios} | ≥ 3.01× PostgreSQL **missed**"));
        let at_most = Goal::TimesTheOtherAtMost("PostgreSQL", 199);
        let ratio = "2.00 (2.00–2.00) × PostgreSQL";
        check(1, at_most, &format!("{two} | {ratio} | ≤ 1.99× PostgreSQL **missed**"));
        check(1, Goal::AtLeast(201), &format!("{two} | {ratio} | ≥ 201/s **missed**"));
        check(
            1,
            Goal::AtLeastOrTimes(201, "PostgreSQL", 200),
            &format!("{two} | {ratio} | ≥ 201/s or ≥ 2.00× PostgreSQL met"),
        );
        // Relative to an arm that was not measured.
        check(2, Goal::TimesTheOther("none", 1), &format!("{one} |  | "));
        check(2, Goal::AtMost(100), &format!("{one} |  | ≤ 100/s met"));
    }
}
