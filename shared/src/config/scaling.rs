//! The settings that say how many workers are wanted, and what storage costs.

use std::time::Duration;

use super::ConfigError;
use super::sources::Found;
use crate::oversight::prices::{PRICE_DECIMALS_MAX, PRICE_USD_MAX, Price, Prices};
use crate::oversight::scaling::{ScalingPolicy, Schedule, TimeZone};

/// Most workers that may be configured.
const WORKERS_LIMIT: u64 = 1000;

/// Finds a setting by its name.
pub(super) type Find<'a> = &'a dyn Fn(&str) -> Option<Found>;

/// How many workers are wanted, and when.
pub(super) fn scaling(find: Find<'_>) -> Result<ScalingPolicy, ConfigError> {
    let (min, workers_min) = count(find, "workers-min", 0, WORKERS_LIMIT)?;
    let (_, workers_max) = count(find, "workers-max", 1, WORKERS_LIMIT)?;
    if workers_min > workers_max {
        return Err(min.refuse(format!("must be at most workers-max, which is {workers_max}")));
    }
    let seconds = |name, least, most| with_default(find, name).number(least, most).map(Duration::from_secs);
    Ok(ScalingPolicy {
        age_target: seconds("posting-age-target-s", 1, 86_400)?,
        worker_rate: count(find, "worker-rate", 1, 1_000_000)?.1,
        workers_min,
        workers_max,
        floors: floors(find, workers_max)?,
        down_delay: seconds("scale-down-delay-s", 0, 3600)?,
    })
}

fn floors(find: Find<'_>, workers_max: u32) -> Result<Schedule, ConfigError> {
    let found = with_default(find, "time-zone");
    let zone = TimeZone::named(&found.value).ok_or_else(|| {
        found.refuse("must be a time zone of the IANA database, such as UTC or Europe/Berlin")
    })?;
    let Some(found) = find("workers-floor") else { return Ok(Schedule::default()) };
    let floors = Schedule::parse(&found.value, &zone).map_err(|invalid| {
        found.refuse(format!(
            "must be cron expressions with numbers, such as \"* 7-9 * * MON = 4; * * 24-31 12 * = 6\", but {invalid}"
        ))
    })?;
    if floors.highest() > workers_max {
        return Err(found.refuse(format!("must ask for at most workers-max, which is {workers_max}")));
    }
    Ok(floors)
}

/// What storage operations cost.
pub(super) fn prices(find: Find<'_>) -> Result<Prices, ConfigError> {
    let price = |name| {
        let found = with_default(find, name);
        Price::parse(&found.value).ok_or_else(|| {
            found.refuse(format!(
                "must be US dollars for 10000 operations, from 0 to {PRICE_USD_MAX} with at most \
                 {PRICE_DECIMALS_MAX} decimals, such as 0.00036"
            ))
        })
    };
    Ok(Prices {
        table: price("price-table")?,
        table_batch: price("price-table-batch")?,
        queue: price("price-queue")?,
        blob_write: price("price-blob-write")?,
        blob_read: price("price-blob-read")?,
    })
}

fn count(find: Find<'_>, name: &str, least: u64, most: u64) -> Result<(Found, u32), ConfigError> {
    let found = with_default(find, name);
    let count = u32::try_from(found.number(least, most)?).unwrap_or(u32::MAX);
    Ok((found, count))
}

/// A setting that the table has a default for.
fn with_default(find: Find<'_>, name: &str) -> Found {
    find(name).unwrap_or_else(|| unreachable!("{name} has a default"))
}
