//! The rule by which a worker chooses the number of receivers of a queue.

use std::fmt;
use std::num::NonZeroUsize;

use crate::text::whole_number;

/// Maximum number of steps of a rule.
const STEPS_MAX: usize = 16;
/// Maximum number of receivers in a step, as for `receivers-max`.
const RECEIVERS_MAX: usize = 64;

/// The number of receivers of a queue with work, before `receivers-min` and `receivers-max` limit it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ReceiversRule {
    /// It grows with the number of waiting messages and with the age of the oldest one.
    #[default]
    Adaptive,
    /// It depends on the number of waiting messages only.
    ByDepth(DepthSteps),
}

/// Steps of a rule, in rising order of the depth: at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepthSteps(Vec<DepthStep>);

/// From so many waiting messages, a queue has so many receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DepthStep {
    depth: u64,
    receivers: NonZeroUsize,
}

impl ReceiversRule {
    /// Parses `adaptive`, or steps such as `10:1,50:2,100:4`. Both numbers must rise from step to step.
    ///
    /// # Errors
    /// The violated rule, as the end of a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "adaptive" {
            return Ok(Self::Adaptive);
        }
        let wanted = || {
            format!(
                "must be adaptive, or pairs depth:receivers with rising numbers, separated by commas, such as 10:1,50:2,100:4: at most {STEPS_MAX}, \
                 each with 1 to {RECEIVERS_MAX} receivers"
            )
        };
        let step = |pair: &str| {
            let (depth, receivers) = pair.trim().split_once(':')?;
            let receivers =
                whole_number(receivers).filter(|count: &NonZeroUsize| count.get() <= RECEIVERS_MAX);
            Some(DepthStep { depth: whole_number(depth)?, receivers: receivers? })
        };
        let steps: Option<Vec<DepthStep>> = text.split(',').map(step).collect();
        let rises =
            |steps: &[DepthStep]| steps.is_sorted_by(|a, b| a.depth < b.depth && a.receivers < b.receivers);
        let steps = steps.filter(|steps| steps.len() <= STEPS_MAX && rises(steps)).ok_or_else(wanted)?;
        Ok(Self::ByDepth(DepthSteps(steps)))
    }

    /// Returns the largest number of receivers in the rule; `None` if it has no numbers.
    pub fn most(&self) -> Option<NonZeroUsize> {
        match self {
            Self::Adaptive => None,
            Self::ByDepth(DepthSteps(steps)) => steps.last().map(|step| step.receivers),
        }
    }
}

impl DepthSteps {
    /// Returns the number of receivers for this many waiting messages; `None` below the first step.
    pub fn receivers(&self, depth: u64) -> Option<NonZeroUsize> {
        self.0.iter().rev().find(|step| step.depth <= depth).map(|step| step.receivers)
    }
}

impl fmt::Display for ReceiversRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => f.write_str("adaptive"),
            Self::ByDepth(DepthSteps(steps)) => {
                for (index, DepthStep { depth, receivers }) in steps.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "," };
                    write!(f, "{separator}{depth}:{receivers}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_apply_from_their_depth() {
        let rule = ReceiversRule::parse("10:1, 50:2,100:4").unwrap();
        assert_eq!((rule.to_string().as_str(), rule.most().unwrap().get()), ("10:1,50:2,100:4", 4));
        let ReceiversRule::ByDepth(steps) = rule else { panic!("{rule} has steps") };
        for (depth, expected) in [
            (0, None),
            (9, None),
            (10, Some(1)),
            (49, Some(1)),
            (50, Some(2)),
            (100, Some(4)),
            (u64::MAX, Some(4)),
        ] {
            assert_eq!(steps.receivers(depth).map(NonZeroUsize::get), expected, "{depth}");
        }
        assert_eq!(
            (ReceiversRule::default().to_string().as_str(), ReceiversRule::default().most()),
            ("adaptive", None)
        );
    }

    #[test]
    fn other_rules_are_refused() {
        let many: Vec<String> = (1..=17).map(|step| format!("{step}:{step}")).collect();
        for wrong in [
            "",
            "10",
            "10:0",
            "10:65",
            "10:1,",
            "50:2,10:1",
            "10:2,50:2",
            "10:1,10:2",
            "-1:1",
            "10:1;50:2",
            &many.join(","),
        ] {
            let error = ReceiversRule::parse(wrong).unwrap_err();
            assert!(error.contains("such as 10:1,50:2,100:4"), "{wrong}: {error}");
        }
        assert!(ReceiversRule::parse(&many[..16].join(",")).is_ok());
        assert_eq!(ReceiversRule::parse("adaptive"), Ok(ReceiversRule::Adaptive));
    }
}
