//! Export of traces over OTLP.

use std::sync::Arc;

use anyhow::Context as _;
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::adapters::otlp::{ExportError, ExportHeaders, Exporting, OtlpExport};
use postonce_shared::bank::Bank;
use postonce_shared::config::Config;
use postonce_shared::files::read_regular;
use postonce_shared::ports::spans::Spans;
use postonce_shared::text::without_mark_of_file;
use tokio::task::spawn_blocking;

use crate::build;

/// Maximum size of the file of trusted certificate authorities, in bytes.
const AUTHORITIES_BYTES_MAX: u64 = 1 << 20;

/// The trace export of a process, if it is configured.
#[derive(Debug)]
pub struct TraceExport(Option<Arc<OtlpExport>>);

impl TraceExport {
    /// Starts the export if a collector is configured. The traces contain `service` as the name of the process.
    ///
    /// # Errors
    /// Fails if the exporter cannot be created; the error names the setting. The collector need not be available.
    pub fn start(
        service: &'static str,
        config: &Config,
        bank: &Bank,
        network: &PeerNetwork,
    ) -> anyhow::Result<Self> {
        let Some(endpoint) = &config.traces.otlp_endpoint else { return Ok(Self(None)) };
        let authorities = config.traces.otlp_ca.as_ref().map(|file| {
            let content = read_regular(file, AUTHORITIES_BYTES_MAX);
            let content = content.with_context(|| format!("otlp-ca: {} cannot be read", file.display()))?;
            anyhow::Ok(without_mark_of_file(&content).to_vec())
        });
        let process = Exporting {
            service,
            version: build::VERSION,
            headers: config.traces.otlp_headers.clone(),
            authorities: authorities.transpose()?,
            instance: network.id.to_string(),
            is_embedded: config.storage.is_embedded(),
        };
        check_headers_of_environment();
        let started = OtlpExport::start(endpoint, process, &bank.world);
        let setting_of = |error: &ExportError| match error {
            ExportError::Authorities => "otlp-ca",
            ExportError::Client(_) => "otlp-endpoint",
        };
        let export = Arc::new(started.map_err(|error| {
            let setting = setting_of(&error);
            anyhow::Error::new(error).context(setting)
        })?);
        let spans: Arc<dyn Spans> = Arc::<OtlpExport>::clone(&export);
        bank.tracer.export_to(spans, config.traces.trace_sampling);
        Ok(Self(Some(export)))
    }

    /// Sends the remaining spans, within a short time limit.
    pub async fn close(self) {
        if let Some(export) = self.0
            && let Err(failure) = spawn_blocking(move || export.close()).await
        {
            tracing::warn!("The last traces are lost: {failure}");
        }
    }
}

/// Warns if a standard variable has a header that cannot be sent, which the exporter leaves out without a word.
fn check_headers_of_environment() {
    let variables = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
    let mut set = variables.into_iter().filter_map(|name| Some((name, std::env::var(name).ok()?)));
    if let Some((name, text)) = set.next().filter(|(_, text)| !text.is_empty())
        && let Err(rule) = ExportHeaders::parse(text.trim_end_matches(','))
    {
        tracing::warn!("{name} {rule}: what is not is not sent");
    }
}
