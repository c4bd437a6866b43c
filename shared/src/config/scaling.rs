//! Settings for the number of workers.

use std::time::Duration;

use clap::Args;

use super::group::{InvalidSetting, defaults};
use super::values::{number, seconds};
use crate::oversight::scaling::{ScalingPolicy, Schedule, TimeZone};

#[derive(Args)]
#[command(next_help_heading = "Scaling")]
pub(super) struct ScalingSettings {
    /// Target for the age of accepted work when it is posted, in seconds, from 1 to 86400; if the expected age
    /// is higher, more workers are wanted
    #[arg(long = "posting-age-target-s", value_name = "SECONDS")]
    #[arg(default_value = "10", value_parser = seconds(1..=86_400))]
    posting_age_target: Duration,
    /// Number of queue messages that one worker posts per second, from 1 to 1000000; the default is conservative, so
    /// measure your own
    #[arg(long, value_name = "COUNT", default_value = "200", value_parser = number::<u32>(1..=1_000_000))]
    worker_rate: u32,
    /// Minimum number of workers, from 0 to 1000; 0 requires an autoscaler outside of the workers, which
    /// starts one when there is work
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = number::<u32>(0..=1000))]
    workers_min: u32,
    /// Maximum number of workers, from 1 to 1000
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = number::<u32>(1..=1000))]
    workers_max: u32,
    /// Minimum number of workers at known peaks: cron expression = number, in effect in every minute that the
    /// expression matches; several are separated by ;
    #[arg(long, value_name = "SCHEDULE")]
    workers_floor: Option<String>,
    /// Time zone of workers-floor, as a name of the IANA database, such as Europe/Berlin
    #[arg(long, value_name = "NAME", default_value = "UTC", value_parser = time_zone)]
    time_zone: TimeZone,
    /// Time for which fewer workers must be wanted before postonce-worker --scale stops some, in seconds, from
    /// 0 to 3600
    #[arg(long = "scale-down-delay-s", value_name = "SECONDS")]
    #[arg(default_value = "60", value_parser = seconds(0..=3600))]
    scale_down_delay: Duration,
}

impl ScalingSettings {
    pub(super) fn policy(self) -> Result<ScalingPolicy, Vec<InvalidSetting>> {
        let Self { workers_min, workers_max, .. } = self;
        let mut invalid = Vec::new();
        if workers_min > workers_max {
            let allowed = format!("must be at most workers-max, which is {workers_max}");
            invalid.push(InvalidSetting::new("workers-min", &["workers-max"], allowed));
        }
        let floors = self.floors().unwrap_or_else(|contradiction| {
            invalid.push(contradiction);
            Schedule::default()
        });
        if !invalid.is_empty() {
            return Err(invalid);
        }
        Ok(ScalingPolicy {
            age_target: self.posting_age_target,
            worker_rate: self.worker_rate,
            workers_min,
            workers_max,
            floors,
            down_delay: self.scale_down_delay,
        })
    }

    fn floors(&self) -> Result<Schedule, InvalidSetting> {
        let floors = self.workers_floor.as_deref().unwrap_or_default();
        let floors = Schedule::parse(floors, &self.time_zone).map_err(|invalid| {
            let example = "* 7-9 * * MON = 4; * * 24-31 12 * = 6";
            let allowed =
                format!("must be cron expressions with numbers, such as {example:?}, but {invalid}");
            InvalidSetting::new("workers-floor", &[], allowed)
        })?;
        if floors.highest() > self.workers_max {
            let allowed = format!("must require at most workers-max, which is {}", self.workers_max);
            return Err(InvalidSetting::new("workers-floor", &["workers-max"], allowed));
        }
        Ok(floors)
    }
}

impl Default for ScalingPolicy {
    fn default() -> Self {
        let policy = defaults::<ScalingSettings>().policy();
        policy.unwrap_or_else(|_| panic!("the defaults are a valid combination"))
    }
}

fn time_zone(text: &str) -> Result<TimeZone, &'static str> {
    TimeZone::named(text).ok_or("must be a time zone of the IANA database, such as UTC or Europe/Berlin")
}
