//! Metrics of the process: its build, its log, and its use of CPU, memory and files. The latter have the standard names
//! (<https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>).

use std::fmt;

use postonce_shared::telemetry::lines_lost;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;

use super::family::{Family, in_base_unit};
use crate::build;

static BUILD: Family =
    Family::gauge("build_info", &["version", "commit"], "Always 1; the labels are version and commit");
static LOG_LINES_LOST: Family = Family::counter(
    "log_lines_lost",
    &[],
    "Lines of the log that were lost, because its output did not take them",
);
static CPU: Family =
    Family::counter("process_cpu_seconds", &[], "CPU time in user and system mode").standard();
static OPEN_FILES: Family = Family::gauge("process_open_fds", &[], "Open file descriptors").standard();
static FILES_MAX: Family =
    Family::gauge("process_max_fds", &[], "Largest number of open file descriptors").standard();
static VIRTUAL: Family =
    Family::gauge("process_virtual_memory_bytes", &[], "Size of the virtual memory").standard();
static RESIDENT: Family =
    Family::gauge("process_resident_memory_bytes", &[], "Size of the memory in use").standard();
static STARTED: Family =
    Family::gauge("process_start_time_seconds", &[], "Start of the process, as a Unix time").standard();
static THREADS: Family = Family::gauge("process_threads", &[], "Threads").standard();

pub(super) static FAMILIES: [&Family; 9] =
    [&BUILD, &LOG_LINES_LOST, &CPU, &OPEN_FILES, &FILES_MAX, &VIRTUAL, &RESIDENT, &STARTED, &THREADS];

/// Collects version and commit.
#[derive(Debug)]
pub struct BuildCollector;

impl Collector for BuildCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = BUILD.begin(&mut encoder)?;
        let labels = [("version", build::VERSION), ("commit", build::COMMIT)];
        ConstGauge::new(1_u64).encode(family.encode_family(&labels)?)
    }
}

/// Collects the number of lost log lines.
#[derive(Debug)]
pub struct LogCollector;

impl Collector for LogCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        LOG_LINES_LOST.count(&mut encoder, lines_lost())
    }
}

/// Collects the use of CPU, memory and files, where the operating system reports it.
#[derive(Debug)]
pub struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(usage) = usage() else { return Ok(()) };
        CPU.count(&mut encoder, in_base_unit(usage.cpu_ms, 1000))?;
        for (family, value) in usage.gauges {
            family.measure(&mut encoder, value)?;
        }
        Ok(())
    }
}

struct Usage {
    cpu_ms: i64,
    gauges: [(&'static Family, u64); 6],
}

/// Reads the resource usage of this process; `None` if the operating system does not report it.
#[cfg(target_os = "linux")]
fn usage() -> Option<Usage> {
    use procfs::process::{LimitValue, Process};

    let process = Process::myself().ok()?;
    let (stat, limits) = (process.stat().ok()?, process.limits().ok()?);
    let ticks_per_second = procfs::ticks_per_second();
    let cpu_ticks = stat.utime.saturating_add(stat.stime);
    let cpu_ms = cpu_ticks.saturating_mul(1000).checked_div(ticks_per_second)?;
    let started =
        procfs::boot_time_secs().ok()?.saturating_add(stat.starttime.checked_div(ticks_per_second)?);
    let files_max = match limits.max_open_files.soft_limit {
        LimitValue::Value(files_max) => files_max,
        LimitValue::Unlimited => u64::MAX,
    };
    let gauges = [
        (&OPEN_FILES, u64::try_from(process.fd_count().ok()?).ok()?),
        (&FILES_MAX, files_max),
        (&VIRTUAL, stat.vsize),
        (&RESIDENT, stat.rss.saturating_mul(procfs::page_size())),
        (&STARTED, started),
        (&THREADS, u64::try_from(stat.num_threads).ok()?),
    ];
    Some(Usage { cpu_ms: i64::try_from(cpu_ms).ok()?, gauges })
}

#[cfg(not(target_os = "linux"))]
fn usage() -> Option<Usage> {
    None
}
