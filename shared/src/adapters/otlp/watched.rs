//! Counts the exported spans, and logs when the collector becomes unavailable or available again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as Exporter};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::{info, warn};

use super::EXPORT_TIME_MAX;
use crate::ports::world::World;

/// An exporter that counts the spans it exported.
pub(super) struct Watched {
    exporter: SpanExporter,
    exported: Arc<AtomicU64>,
    world: Arc<dyn World>,
    /// Provides timers, because the thread of the exporter has no runtime.
    runtime: Handle,
    /// Since when exports have failed, by [`World::uptime`]; `None` while they succeed.
    failing_since: Mutex<Option<Duration>>,
}

impl Watched {
    /// Wraps an exporter. Must be called within the runtime.
    pub(super) fn new(exporter: SpanExporter, exported: Arc<AtomicU64>, world: Arc<dyn World>) -> Self {
        Self { exporter, exported, world, runtime: Handle::current(), failing_since: Mutex::new(None) }
    }

    fn note(&self, result: &OTelSdkResult, spans: usize) {
        let mut failing_since = self.failing_since.lock();
        match result {
            Ok(()) => {
                self.exported.fetch_add(u64::try_from(spans).unwrap_or(u64::MAX), Ordering::Relaxed);
                if let Some(since) = failing_since.take() {
                    let length = self.world.uptime().saturating_sub(since).as_secs();
                    info!("The collector takes traces again, after {length} s");
                }
            }
            Err(fault) if failing_since.is_none() => {
                *failing_since = Some(self.world.uptime());
                warn!("Traces are lost until the collector takes them again: {fault}");
            }
            Err(_) => {}
        }
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The exporter is omitted, because its headers are secret.
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl Exporter for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let limited = {
            let _entered = self.runtime.enter();
            timeout(EXPORT_TIME_MAX, self.exporter.export(batch))
        };
        let result = limited.await.unwrap_or(Err(OTelSdkError::Timeout(EXPORT_TIME_MAX)));
        self.note(&result, spans);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
