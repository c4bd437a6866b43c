//! Error responses of the proxy, in the form in which Azure Storage sends them.

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::proxy::{ProxiedResponse, Service};

const ERROR_CODE: HeaderName = HeaderName::from_static("x-ms-error-code");

/// An error of the service itself.
pub(super) fn error(service: Service, status: StatusCode) -> ProxiedResponse {
    let (code, words) = if status == StatusCode::SERVICE_UNAVAILABLE {
        ("ServerBusy", "The server is busy.")
    } else {
        ("InternalError", "Server encountered an internal error. Please try again after some time.")
    };
    refusal(service, status, code, words)
}

/// A condition that does not hold.
pub(super) fn stale(service: Service, is_batch: bool) -> ProxiedResponse {
    let status = StatusCode::PRECONDITION_FAILED;
    match (service, is_batch) {
        (Service::Table, true) => stale_batch(),
        (Service::Table, false) => {
            refusal(service, status, "UpdateConditionNotSatisfied", "The update condition was not satisfied.")
        }
        (Service::Queue | Service::Blob, _) => {
            refusal(service, status, "ConditionNotMet", "The condition specified was not met.")
        }
    }
}

fn refusal(service: Service, status: StatusCode, code: &'static str, words: &str) -> ProxiedResponse {
    let (kind, body) = match service {
        Service::Table => (
            "application/json",
            format!(
                r#"{{"odata.error":{{"code":"{code}","message":{{"lang":"en-US","value":"{words}"}}}}}}"#
            ),
        ),
        Service::Queue | Service::Blob => {
            ("application/xml", format!("<Error><Code>{code}</Code><Message>{words}</Message></Error>"))
        }
    };
    let mut headers = plain_headers(kind);
    headers.insert(ERROR_CODE, HeaderValue::from_static(code));
    ProxiedResponse { status, headers, body: body.into() }
}

/// A batch is answered with 202; its result is in the body.
fn stale_batch() -> ProxiedResponse {
    const BODY: &str = concat!(
        "--batchresponse_invented\r\n",
        "Content-Type: multipart/mixed; boundary=changesetresponse_invented\r\n\r\n",
        "--changesetresponse_invented\r\n",
        "Content-Type: application/http\r\n",
        "Content-Transfer-Encoding: binary\r\n\r\n",
        "HTTP/1.1 412 Precondition Failed\r\n",
        "X-Content-Type-Options: nosniff\r\n",
        "DataServiceVersion: 3.0;\r\n",
        "Content-Type: application/json;odata=minimalmetadata;charset=utf-8\r\n\r\n",
        r#"{"odata.error":{"code":"UpdateConditionNotSatisfied","message":{"lang":"en-US","#,
        r#""value":"0:The update condition specified in the request was not satisfied."}}}"#,
        "\r\n--changesetresponse_invented--\r\n",
        "--batchresponse_invented--\r\n",
    );
    ProxiedResponse {
        status: StatusCode::ACCEPTED,
        headers: plain_headers("multipart/mixed; boundary=batchresponse_invented"),
        body: BODY.into(),
    }
}

fn plain_headers(content_type: &'static str) -> HeaderMap {
    let version = (HeaderName::from_static("x-ms-version"), HeaderValue::from_static("2020-10-02"));
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type)), version])
}
