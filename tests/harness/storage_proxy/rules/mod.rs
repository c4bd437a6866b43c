//! The documented rules of Azure Storage that Azurite does not check, or not completely. Each rule names the page of Microsoft's
//! REST reference that specifies it.
//!
//! A request that violates a rule gets the response of Azure, and is not forwarded. The size of a row after a merge is unknown
//! here: only the properties in a request are checked.

pub(crate) mod batch;
pub(crate) mod entity;
pub(crate) mod headers;
mod queue;
pub(crate) mod table;

use postonce_shared::domain::time::Timestamp;

use super::error_responses::{ProxiedResponse, StorageError};
use super::request::{ProxiedRequest, Service};

/// A violated rule: the error of the service, and the problem of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    error: StorageError,
    /// The index of the operation in a batch, to which the error then belongs.
    operation: Option<usize>,
    detail: String,
}

impl Refusal {
    const fn new(error: StorageError, detail: String) -> Self {
        Self { error, operation: None, detail }
    }

    fn in_operation(self, index: usize) -> Self {
        Self { operation: Some(index), detail: format!("operation {index}: {}", self.detail), ..self }
    }

    /// Returns the response of the service.
    pub(crate) fn response(&self, service: Service) -> ProxiedResponse {
        match self.operation {
            Some(index) => self.error.response_to_batch(index),
            None => self.error.response(service),
        }
    }

    /// Returns the message with which the test fails.
    pub(crate) fn finding(&self, request: &ProxiedRequest) -> String {
        let Self { error, detail, .. } = self;
        let StorageError { status, code, .. } = error;
        format!(
            "the bank sent a request that Azure refuses: {} {}: {} {code}: {detail}",
            request.method,
            request.target,
            status.as_u16()
        )
    }
}

/// What a request consumes of the rate limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cost {
    /// One request to the account.
    Request,
    /// One request, and this number of rows of a partition, which is named with its table.
    Entities { partition: String, count: u32 },
    /// One request, and one message of a queue.
    Message { queue: String },
}

/// Checks a request against all rules.
pub(crate) fn check(service: Service, request: &ProxiedRequest, now: Timestamp) -> Result<Cost, Refusal> {
    headers::check(service, request, now)?;
    match service {
        Service::Table => table::check(request),
        Service::Queue => queue::check(request),
        Service::Blob => Ok(Cost::Request),
    }
}
