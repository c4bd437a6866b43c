//! Error responses of the proxy, in the form that Azure Storage uses.

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::request::Service;

const ERROR_CODE: HeaderName = HeaderName::from_static("x-ms-error-code");

/// A complete response.
#[derive(Debug, Clone)]
pub(crate) struct ProxiedResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// An error of a service: a status, a code and a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StorageError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: &'static str,
}

impl StorageError {
    /// Creates an error with status 400.
    pub(crate) const fn bad_request(code: &'static str, message: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code, message }
    }

    /// Returns the error as a response of a service.
    pub(crate) fn response(self, service: Service) -> ProxiedResponse {
        let Self { status, code, message } = self;
        let (kind, body) = match service {
            Service::Table => ("application/json", self.odata("")),
            Service::Queue | Service::Blob => {
                ("application/xml", format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>"))
            }
        };
        let mut headers = plain_headers(kind);
        headers.insert(ERROR_CODE, HeaderValue::from_static(code));
        ProxiedResponse { status, headers, body: body.into() }
    }

    /// Returns the response to a batch whose operation at this index fails. The status is 202, and the error is in the body.
    pub(crate) fn response_to_batch(self, index: usize) -> ProxiedResponse {
        let body = format!(
            "--batchresponse_invented\r\n\
             Content-Type: multipart/mixed; boundary=changesetresponse_invented\r\n\r\n\
             --changesetresponse_invented\r\n\
             Content-Type: application/http\r\n\
             Content-Transfer-Encoding: binary\r\n\r\n\
             HTTP/1.1 {}\r\n\
             X-Content-Type-Options: nosniff\r\n\
             DataServiceVersion: 3.0;\r\n\
             Content-Type: application/json;odata=minimalmetadata;charset=utf-8\r\n\r\n\
             {}\r\n--changesetresponse_invented--\r\n\
             --batchresponse_invented--\r\n",
            self.status,
            self.odata(&format!("{index}:"))
        );
        ProxiedResponse {
            status: StatusCode::ACCEPTED,
            headers: plain_headers("multipart/mixed; boundary=batchresponse_invented"),
            body: body.into(),
        }
    }

    fn odata(self, prefix: &str) -> String {
        let Self { code, message, .. } = self;
        format!(
            r#"{{"odata.error":{{"code":"{code}","message":{{"lang":"en-US","value":"{prefix}{message}"}}}}}}"#
        )
    }
}

/// The service is overloaded.
pub(crate) const BUSY: StorageError = StorageError {
    status: StatusCode::SERVICE_UNAVAILABLE,
    code: "ServerBusy",
    message: "The server is busy.",
};

/// The service failed.
pub(crate) const FAILED: StorageError = StorageError {
    status: StatusCode::INTERNAL_SERVER_ERROR,
    code: "InternalError",
    message: "Server encountered an internal error. Please try again after some time.",
};

/// The service did not end the operation in time.
pub(crate) const TIMED_OUT: StorageError = StorageError {
    status: StatusCode::INTERNAL_SERVER_ERROR,
    code: "OperationTimedOut",
    message: "Operation could not be completed within the specified time.",
};

/// Returns the response to a request whose condition does not hold.
pub(crate) fn stale(service: Service, is_batch: bool) -> ProxiedResponse {
    let (code, message) = match service {
        Service::Table => (
            "UpdateConditionNotSatisfied",
            "The update condition specified in the request was not satisfied.",
        ),
        Service::Queue | Service::Blob => ("ConditionNotMet", "The condition specified was not met."),
    };
    let error = StorageError { status: StatusCode::PRECONDITION_FAILED, code, message };
    if is_batch { error.response_to_batch(0) } else { error.response(service) }
}

/// Returns the headers of every response, which clients of the service require. The server adds the date.
pub(crate) fn plain_headers(content_type: &'static str) -> HeaderMap {
    let others = [
        ("x-ms-version", "2020-10-02"),
        ("x-ms-request-id", "00000000-0000-4000-8000-000000000000"),
        ("server", "proxy"),
    ];
    let others = others.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    others.into_iter().chain([(CONTENT_TYPE, HeaderValue::from_static(content_type))]).collect()
}
