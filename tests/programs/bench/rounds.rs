//! Rounds of all arms in turns (A B, A B, …). Only rounds in which the machine kept its speed count.

use std::collections::BTreeMap;

use crate::bench::figures::decimal;
use crate::bench::machine::{self, Machine, Speed};

/// Discarded rounds that are allowed for each round that is requested.
const DISCARDED_PER_ROUND_MAX: usize = 2;

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// A rate per second.
    PerSecond,
    /// Microseconds.
    Microseconds,
    /// Hundredths of a count, such as of operations.
    Hundredths,
    /// KiB.
    Kibibytes,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
}

/// A measured figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Measure {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
}

impl Measure {
    /// A figure.
    pub const fn of(name: &'static str, unit: Unit) -> Self {
        Self { name, unit }
    }
}

/// The figures of a run.
pub type Sample = BTreeMap<Measure, u64>;

/// The results of all rounds.
pub struct Series {
    /// The arms, those of the bank first.
    pub arms: Vec<&'static str>,
    /// The sample of each arm, for each round that counts.
    pub kept: Vec<Vec<Sample>>,
    /// The number of rounds in which the machine changed.
    pub discarded: usize,
    /// The probes of the machine in the rounds that count.
    pub speeds: Vec<Speed>,
}

impl Series {
    /// One round, with samples that were taken one after the other.
    pub fn of_round(samples: Vec<(&'static str, Sample)>) -> Self {
        let (arms, round) = samples.into_iter().unzip();
        Self { arms, kept: vec![round], discarded: 0, speeds: Vec::new() }
    }

    /// The values of a figure of an arm, round by round.
    pub fn figures(&self, arm: usize, measure: Measure) -> Vec<u64> {
        let of = |round: &Vec<Sample>| round.get(arm)?.get(&measure).copied();
        self.kept.iter().filter_map(of).collect()
    }

    /// The ratios of an arm's figure to another arm's, round by round, in hundredths.
    pub fn ratios(&self, arm: usize, other: usize, measure: Measure) -> Vec<u64> {
        let of = |round: &Vec<Sample>| {
            let figure = round.get(arm)?.get(&measure)?;
            figure.saturating_mul(100).checked_div(*round.get(other)?.get(&measure)?)
        };
        self.kept.iter().filter_map(of).collect()
    }

    /// The figures that any arm has.
    pub fn measures(&self) -> Vec<Measure> {
        let all = self.kept.iter().flatten().flat_map(Sample::keys).copied();
        let mut all: Vec<Measure> = all.collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Runs all arms one after the other, for the requested number of rounds. Rounds with a change of the machine
/// are repeated, a limited number of times.
pub async fn interleave<A>(
    name: &str,
    rounds: usize,
    arms: &[(&'static str, A)],
    machine: &Machine,
    mut run: impl AsyncFnMut(&A) -> Sample,
) -> Series {
    let names = arms.iter().map(|(name, _)| *name).collect();
    let mut series = Series { arms: names, kept: Vec::new(), discarded: 0, speeds: Vec::new() };
    let discarded_max = rounds.saturating_mul(DISCARDED_PER_ROUND_MAX);
    while series.kept.len() < rounds && series.discarded <= discarded_max {
        let mut speeds = vec![machine.probe()];
        let mut round = Vec::new();
        for (arm, it) in arms {
            let sample = run(it).await;
            let shown: Vec<String> = sample.iter().map(|(it, value)| shown(*it, *value)).collect();
            eprintln!(
                "{name}, round {} of {rounds}, {arm}: {}",
                series.kept.len().saturating_add(1),
                shown.join(", ")
            );
            round.push(sample);
            speeds.push(machine.probe());
        }
        match machine::change(&speeds) {
            Some(change) => {
                eprintln!("{name}: this round does not count: {change}");
                series.discarded = series.discarded.saturating_add(1);
            }
            None => {
                series.kept.push(round);
                series.speeds.extend(speeds);
            }
        }
    }
    series
}

/// A figure as text.
fn shown(measure: Measure, value: u64) -> String {
    format!("{} {}", measure.name, measure.unit.shown(value))
}

impl Unit {
    /// A value with its unit.
    pub fn shown(self, value: u64) -> String {
        match self {
            Self::PerSecond => format!("{value}/s"),
            Self::Microseconds => format!("{} ms", decimal(value.div_euclid(10))),
            Self::Hundredths => decimal(value),
            Self::Kibibytes => {
                format!(
                    "{}.{} MiB",
                    value.div_euclid(1024),
                    value.rem_euclid(1024).saturating_mul(10).div_euclid(1024)
                )
            }
            Self::Bytes => format!("{value} bytes"),
            Self::Nanoseconds => format!("{value} ns"),
        }
    }
}

/// Minimum, median and maximum; `None` if there is no value.
pub fn spread(mut values: Vec<u64>) -> Option<[u64; 3]> {
    values.sort_unstable();
    let median = *values.get(values.len().div_euclid(2))?;
    Some([*values.first()?, median, *values.last()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Measure = Measure::of("rate", Unit::PerSecond);

    #[test]
    fn ratios_are_of_figures_of_one_round() {
        let sample = |rate| Sample::from([(RATE, rate)]);
        let kept = vec![vec![sample(100), sample(50)], vec![sample(300), sample(100)]];
        let series = Series { arms: vec!["ours", "theirs"], kept, discarded: 0, speeds: Vec::new() };
        assert_eq!(series.ratios(0, 1, RATE), [200, 300]);
        assert_eq!(series.ratios(1, 0, RATE), [50, 33]);
        assert_eq!(series.figures(0, RATE), [100, 300]);
        assert_eq!(spread(series.figures(1, RATE)), Some([50, 100, 100]));
        assert_eq!(spread(Vec::new()), None);
        assert_eq!(Unit::Microseconds.shown(12_345), "12.34 ms");
    }
}
