//! The build of the process, and its use of CPU, memory and files. The names of the latter are those of all Prometheus clients
//! (<https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;

use super::family::Family;
use crate::build;

static BUILD: Family =
    Family::gauge("build_info", &["version", "commit"], "Always 1; the labels are version and commit");
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

/// The families of this file.
pub(super) static FAMILIES: [&Family; 8] =
    [&BUILD, &CPU, &OPEN_FILES, &FILES_MAX, &VIRTUAL, &RESIDENT, &STARTED, &THREADS];

/// Collects the build.
#[derive(Debug)]
pub struct BuildCollector;

impl Collector for BuildCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = BUILD.begin(&mut encoder)?;
        let labels = [("version", build::VERSION), ("commit", build::COMMIT)];
        ConstGauge::new(1_u64).encode(family.encode_family(&labels)?)
    }
}

/// Collects the use of CPU, memory and files, as far as the operating system reports it.
#[derive(Debug)]
pub struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let read = metrics_process::collector::collect();
        if let Some(seconds) = read.cpu_seconds_total {
            CPU.count(&mut encoder, seconds)?;
        }
        let gauges = [
            (&OPEN_FILES, read.open_fds),
            (&FILES_MAX, read.max_fds),
            (&VIRTUAL, read.virtual_memory_bytes),
            (&RESIDENT, read.resident_memory_bytes),
            (&STARTED, read.start_time_seconds),
            (&THREADS, read.threads),
        ];
        for (family, value) in gauges {
            let Some(value) = value else { continue };
            family.measure(&mut encoder, value)?;
        }
        Ok(())
    }
}
