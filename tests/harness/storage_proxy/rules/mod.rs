//! The documented rules of Azure Storage that Azurite does not check, or not completely. Each rule names the page of
//! Microsoft's REST reference that states it.
//!
//! A request that violates a rule is answered as Azure answers it, and is not forwarded. The size of a row after a
//! merge is not known here: only the properties that a request sends are checked.

pub(crate) mod batch;
pub(crate) mod entity;
pub(crate) mod headers;
mod queue;
pub(crate) mod table;

use postonce_shared::domain::time::Timestamp;

use super::error_responses::{ProxiedResponse, StorageError};
use super::request::{ProxiedRequest, Service};

/// A violated rule: the error of the service, and what is wrong with the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    error: StorageError,
    /// The index of the operation of a batch, which is then the place of the error.
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

    /// The response of the service.
    pub(crate) fn response(&self, service: Service) -> ProxiedResponse {
        match self.operation {
            Some(index) => self.error.response_to_batch(index),
            None => self.error.response(service),
        }
    }

    /// The message with which a test fails.
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

/// What a request costs of the limits on rates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cost {
    /// One request to the account.
    Request,
    /// The same, and so many rows of a partition, which is named with its table.
    Entities { partition: String, count: u32 },
    /// The same, and one message of a queue.
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
