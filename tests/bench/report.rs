//! The report: a table for people, and JSON for tools.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::figures::micros;
use crate::machine::Machine;
use crate::rounds::{Measure, Series, Unit, spread};

/// The goal of a figure.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// At least that many hundredths of the other arm's figure.
    TimesTheOther(u64),
    /// At most that many hundredths of the other arm's figure.
    TimesTheOtherAtMost(u64),
    /// At least that value.
    AtLeast(u64),
    /// At most that value.
    AtMost(u64),
}

impl Goal {
    fn shown(self, unit: Unit) -> String {
        match self {
            Self::TimesTheOther(hundredths) => format!("≥ {}×", Unit::Hundredths.shown(hundredths)),
            Self::TimesTheOtherAtMost(hundredths) => format!("≤ {}×", Unit::Hundredths.shown(hundredths)),
            Self::AtLeast(value) => format!("≥ {}", unit.shown(value)),
            Self::AtMost(value) => format!("≤ {}", unit.shown(value)),
        }
    }

    /// The goal and whether it is met. A relative goal without another arm cannot be compared.
    fn verdict(self, unit: Unit, ours: u64, ratio: Option<u64>) -> String {
        let is_met = match self {
            Self::TimesTheOther(hundredths) => ratio.map(|ratio| ratio >= hundredths),
            Self::TimesTheOtherAtMost(hundredths) => ratio.map(|ratio| ratio <= hundredths),
            Self::AtLeast(value) => Some(ours >= value),
            Self::AtMost(value) => Some(ours <= value),
        };
        let verdict = is_met.map_or("nothing to compare", |is_met| if is_met { "met" } else { "**missed**" });
        format!("{} {verdict}", self.shown(unit))
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

    /// Adds the results of a phase, with the goals of its figures. All other arms are compared with the first
    /// one.
    pub fn add(&mut self, phase: &str, series: &Series, goals: &[(Measure, Goal)]) {
        for measure in series.measures() {
            let Some(ours) = spread(series.figures(0, measure)) else { continue };
            let others: Vec<usize> = (1..series.arms.len()).collect();
            let compared =
                if others.is_empty() { vec![None] } else { others.into_iter().map(Some).collect() };
            for other in compared {
                self.add_line(phase, series, measure, ours, other, goals);
            }
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

    fn add_line(
        &mut self,
        phase: &str,
        series: &Series,
        measure: Measure,
        ours: [u64; 3],
        other: Option<usize>,
        goals: &[(Measure, Goal)],
    ) {
        let shown = |values: Option<[u64; 3]>, unit: Unit| {
            values.map_or_else(String::new, |[least, median, most]| {
                format!("{} ({}–{})", unit.shown(median), unit.shown(least), unit.shown(most))
            })
        };
        let theirs = other.and_then(|arm| spread(series.figures(arm, measure)));
        let ratio = other.and_then(|arm| spread(series.ratios(arm, measure)));
        let name = other.and_then(|arm| series.arms.get(arm)).copied().unwrap_or_default();
        let [_, median, _] = ours;
        let verdicts = goals
            .iter()
            .filter(|(goal_of, _)| *goal_of == measure)
            .map(|(_, goal)| goal.verdict(measure.unit, median, ratio.map(|[_, median, _]| median)));
        self.lines.push(format!(
            "| {phase} | {} | {} | {name} {} | {} | {} |",
            measure.name,
            shown(Some(ours), measure.unit),
            shown(theirs, measure.unit),
            shown(ratio, Unit::Hundredths),
            verdicts.collect::<Vec<_>>().join(", "),
        ));
    }

    /// Prints the table, and writes all figures as JSON beside the stores of the measurements.
    pub fn finish(self, machine: &Machine) {
        println!("\n## {}\n", self.scenario);
        println!("| phase | figure | postonce: median (range) | other: median (range) | ratio | goal |");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_shown_with_its_verdict() {
        let twice = Goal::TimesTheOther(200);
        assert_eq!(twice.verdict(Unit::PerSecond, 500, Some(200)), "≥ 2.00× met");
        assert_eq!(twice.verdict(Unit::PerSecond, 500, Some(199)), "≥ 2.00× **missed**");
        assert_eq!(twice.verdict(Unit::PerSecond, 500, None), "≥ 2.00× nothing to compare");
        assert_eq!(Goal::TimesTheOtherAtMost(120).verdict(Unit::Bytes, 500, Some(121)), "≤ 1.20× **missed**");
        assert_eq!(Goal::AtMost(64).verdict(Unit::Bytes, 64, None), "≤ 64 bytes met");
        assert_eq!(Goal::AtLeast(65).verdict(Unit::PerSecond, 64, None), "≥ 65/s **missed**");
    }
}
