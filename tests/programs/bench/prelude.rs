//! The names that most scenarios use.

pub(super) use crate::bench::arm::{Arm, Source};
pub(super) use crate::bench::figures::{micros, per_second};
pub(super) use crate::bench::load::{Target, Traffic, Until, Way};
pub(super) use crate::bench::machine::Machine;
pub(super) use crate::bench::report::{Goal, GoalOf, Report};
pub(super) use crate::bench::rounds::{Measure, Sample, Series, Unit, interleave};
pub(super) use crate::bench::throughput::{LASTING, POSTED, PROCESSOR, throughput};
pub(super) use crate::bench::{Options, arms};
