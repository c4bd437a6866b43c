//! Negotiation of the format of the metrics.

use actix_web::HttpMessage;
use actix_web::http::header::{Accept, Header as _};

use crate::metrics::Format;

const OPENMETRICS: &str = "application/openmetrics-text";
const PLAIN_TEXT: &str = "text/plain";

/// Returns the format that the `Accept` header prefers; the Prometheus text format if it contains no known one.
pub fn metrics_format(request: &impl HttpMessage) -> Format {
    let ranges = Accept::parse(request).map(|accept| accept.ranked()).unwrap_or_default();
    let known = ranges.iter().find_map(|range| match range.essence_str() {
        OPENMETRICS => Some(Format::OpenMetrics),
        PLAIN_TEXT | "text/*" | "*/*" => Some(Format::Prometheus),
        _ => None,
    });
    known.unwrap_or(Format::Prometheus)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn the_format_is_the_preferred_one_that_is_known() {
        let check = |accept: Option<&str>, expected| {
            let request = TestRequest::default();
            let request = match accept {
                Some(accept) => request.insert_header(("Accept", accept)),
                None => request,
            };
            assert_eq!(metrics_format(&request.to_http_request()), expected, "{accept:?}");
        };
        check(None, Format::Prometheus);
        check(Some("*/*"), Format::Prometheus);
        check(Some("text/plain"), Format::Prometheus);
        check(Some("text/html, image/png"), Format::Prometheus);
        check(Some("no media type"), Format::Prometheus);
        check(Some("application/openmetrics-text"), Format::OpenMetrics);
        check(Some("text/plain;q=0.5, application/openmetrics-text;version=1.0.0"), Format::OpenMetrics);
        check(Some("text/plain, application/openmetrics-text;q=0.9"), Format::Prometheus);
        // Prometheus 3 with its default settings.
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        check(Some(prometheus), Format::OpenMetrics);
        // The same, configured to scrape native histograms, which exist in the protobuf format only.
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7";
        check(Some(&format!("{protobuf},{prometheus}")), Format::OpenMetrics);
        check(Some(protobuf), Format::Prometheus);
    }
}
