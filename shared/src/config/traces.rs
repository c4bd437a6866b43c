//! Settings for the export of traces.

use std::path::PathBuf;

use clap::Args;

use super::group::InvalidSetting;
use crate::adapters::otlp::{Endpoint, ExportHeaders};
use crate::tracer::Sampling;

/// Where and how traces are exported.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Traces")]
pub struct TraceTerms {
    /// URL of an OpenTelemetry collector to which the process sends the spans of sampled requests with OTLP over HTTP
    /// (http/protobuf), such as http://127.0.0.1:4318, to which /v1/traces is added; by default none, and nothing is recorded
    #[arg(long, value_name = "URL", value_parser = Endpoint::parse)]
    pub otlp_endpoint: Option<Endpoint>,
    /// Headers of the requests to otlp-endpoint, which are secret, such as authorization=Bearer%20KEY: name=value, separated by
    /// commas, with percent-encoded values; in addition to those in OTEL_EXPORTER_OTLP_HEADERS, and before them
    #[arg(long, value_name = "HEADERS", hide_env_values = true, value_parser = ExportHeaders::parse)]
    pub otlp_headers: Option<ExportHeaders>,
    /// PEM file with the authorities that the certificate of the collector is checked against, read at the start; by default the
    /// public ones
    #[arg(long, value_name = "FILE")]
    pub otlp_ca: Option<PathBuf>,
    /// Part of the requests whose traces are sent to otlp-endpoint, from 0 to 1 with at most 6 decimals; the last digits of the
    /// trace id decide, and a decision of the client has no effect
    #[arg(long, value_name = "PART", default_value = "0.1", value_parser = sampling)]
    pub trace_sampling: Sampling,
}

impl TraceTerms {
    pub(super) fn check(&self) -> Result<(), InvalidSetting> {
        let endpoint = self.otlp_endpoint.as_ref();
        if self.otlp_ca.is_some() && !endpoint.is_some_and(Endpoint::is_secure) {
            let allowed = "needs an otlp-endpoint that begins with https://";
            return Err(InvalidSetting::new("otlp-ca", &["otlp-endpoint"], allowed));
        }
        if self.otlp_headers.is_some() && endpoint.is_none() {
            let allowed = "needs otlp-endpoint as well: the collector that gets the headers";
            return Err(InvalidSetting::new("otlp-headers", &["otlp-endpoint"], allowed));
        }
        Ok(())
    }
}

fn sampling(text: &str) -> Result<Sampling, String> {
    Sampling::parse(text).ok_or_else(|| "must be a number from 0 to 1 with at most 6 decimals".to_owned())
}
