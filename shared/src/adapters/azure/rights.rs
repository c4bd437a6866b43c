//! Determines which rights on the storage account this process lacks, with probes that cannot change anything.
//!
//! Each probe is a request that the process needs later, to the same table, queue or container, so that roles assigned on these
//! resources count too. But it addresses a row, message or blob that cannot exist, or lacks the required body. The service
//! first checks the right, and responds with 403 if it is missing. Otherwise it responds that the object does not exist or that
//! the body is malformed. The same holds if the table, queue or container does not exist yet. Probes create nothing.
//!
//! There is no probe for receiving, because it would hide messages. It needs the rights of [`Probe::Delete`] and
//! [`Probe::Peek`], or fewer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_storage_blobs::prelude::ContainerClient;
use azure_storage_queues::{PopReceipt, PopReceiptClient};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::join_all;
use reqwest::header::{CONTENT_LENGTH, HeaderValue};
use serde_json::Map;

use super::attempt::{RequestFault, Retries};
use super::client::Queues;
use super::keys::Key;
use super::permissions::{self, Right};
use super::table::{Properties, Table};
use super::transport::{FORBIDDEN, UNAUTHORIZED};
use super::wire::{Wire, WireFault, WireRequest, WireResponse};
use crate::domain::account::Revision;
use crate::ports::fault::StoreFault;
use crate::ports::operations::Service;
use crate::ports::queue::QueueName;
use crate::ports::rights::{QueueUse, StoreRights};
use crate::ports::world::World;

/// Name of a row that no process writes.
const NO_ROW: &str = "rights-probe";
/// Name of a blob that no process writes. A condition of a role assignment may require this prefix of payload names.
const NO_BLOB: &str = "work-rights-probe";
/// A revision that no row has, because the service did not exist at that time.
const NEVER: &str = "W/\"datetime'2000-01-01T00%3A00%3A00.0000000Z'\"";
/// Id and pop receipt of a message that no queue has, in the format of the service.
const NO_MESSAGE: (&str, &str) = ("00000000-0000-0000-0000-000000000000", "AgAAAAMAAAAAAAAAAAAAAAAAAAA=");
/// The error codes for a missing right: no role includes the operation, or the signature does not permit the operation,
/// the service or the resource type («Common REST API error codes», Microsoft). Others concern networks or credentials.
const NOT_PERMITTED: [&str; 3] =
    ["AuthorizationPermissionMismatch", "AuthorizationServiceMismatch", "AuthorizationResourceTypeMismatch"];

/// A probe: a request that needs a right and cannot change anything.
#[derive(Debug, Clone, Copy)]
enum Probe {
    ReadRow,
    ChangeRow,
    ReadBlob,
    ChangeBlob,
    ReadQueue,
    Peek,
    Send,
    Renew,
    Delete,
    DeleteBlob,
}

impl Probe {
    /// The probes of every process.
    const SENDING: &[Self] = &[
        Self::ReadRow,
        Self::ChangeRow,
        Self::ReadBlob,
        Self::ChangeBlob,
        Self::ReadQueue,
        Self::Peek,
        Self::Send,
    ];
    /// The additional probes of processes that receive messages.
    const PROCESSING: &[Self] = &[Self::Renew, Self::Delete, Self::DeleteBlob];

    /// Returns the operation as it is counted.
    const fn operation(self) -> (Service, &'static str) {
        match self {
            Self::ReadRow => (Service::Table, "get"),
            Self::ChangeRow => (Service::Table, "merge"),
            Self::ReadBlob => (Service::Blob, "get"),
            Self::ChangeBlob => (Service::Blob, "put"),
            Self::DeleteBlob => (Service::Blob, "delete"),
            Self::ReadQueue => (Service::Queue, "metadata"),
            Self::Peek => (Service::Queue, "peek"),
            Self::Send => (Service::Queue, "send"),
            Self::Renew => (Service::Queue, "update"),
            Self::Delete => (Service::Queue, "delete"),
        }
    }
}

/// The check of the rights on one store.
pub(super) struct AzureRights {
    pub(super) world: Arc<dyn World>,
    pub(super) table: Table,
    /// Clients over [`WithoutBody`], which sends no bodies.
    pub(super) queues: Queues,
    pub(super) container: ContainerClient,
    /// Whether rights are granted by roles, and not by a shared access signature.
    pub(super) have_roles: bool,
}

impl AzureRights {
    fn message(&self, queue: &QueueName) -> PopReceiptClient {
        let (id, receipt) = NO_MESSAGE;
        self.queues.client(queue).pop_receipt_client(PopReceipt::new(id, receipt))
    }

    async fn attempt(&self, probe: Probe, queue: &QueueName) -> Result<(), RequestFault> {
        let row = || Key::new("value", NO_ROW);
        let blob = || self.container.blob_client(NO_BLOB);
        match probe {
            Probe::ReadRow => self.table.get(&row()).await.map(drop),
            Probe::ChangeRow => {
                let nothing: Properties = Map::new();
                self.table.merge(&row(), &nothing, &Revision::new(NEVER)).await.map(drop)
            }
            Probe::ReadBlob => {
                let read = blob().get().into_stream().next().await.transpose();
                read.map(drop).map_err(RequestFault::from)
            }
            Probe::ChangeBlob => blob().set_metadata().await.map(drop).map_err(RequestFault::from),
            Probe::DeleteBlob => blob().delete().await.map(drop).map_err(RequestFault::from),
            Probe::ReadQueue => {
                self.queues.client(queue).get_metadata().await.map(drop).map_err(RequestFault::from)
            }
            Probe::Peek => {
                self.queues.client(queue).peek_messages().await.map(drop).map_err(RequestFault::from)
            }
            Probe::Send => {
                self.queues.client(queue).put_message("").await.map(drop).map_err(RequestFault::from)
            }
            Probe::Renew => {
                let renewed = self.message(queue).update("", Duration::ZERO).await;
                renewed.map(drop).map_err(RequestFault::from)
            }
            Probe::Delete => self.message(queue).delete().await.map(drop).map_err(RequestFault::from),
        }
    }

    async fn is_permitted(&self, probe: Probe, queue: &QueueName) -> Result<bool, RequestFault> {
        let mut retries = Retries::new(&self.world);
        judged(retries.retry_read(|| self.attempt(probe, queue)).await)
    }

    /// Describes the role or permission that would grant the right.
    fn grant(&self, probe: Probe, queue: &QueueName, queue_use: QueueUse) -> String {
        let (service, name) = probe.operation();
        let place = match service {
            Service::Table => format!("table {}", self.table.name()),
            Service::Queue => format!("queue {}", self.queues.client(queue).queue_name()),
            Service::Blob => format!("container {}", self.container.container_name()),
        };
        if !self.have_roles {
            return format!("permission of the shared access signature to {name} on {place}");
        }
        let Right { role, .. } = permissions::needed(service, name);
        // One role includes all queue rights that processing needs.
        let role = match (service, queue_use) {
            (Service::Queue, QueueUse::Process) => permissions::QUEUES,
            _ => role,
        };
        format!("{role} on {place}")
    }
}

/// Returns whether a probe was permitted. Any response shows that, unless it concerns rights or credentials.
fn judged(answer: Result<(), RequestFault>) -> Result<bool, RequestFault> {
    match answer {
        Err(RequestFault::Answered(answer))
            if answer.status == FORBIDDEN && NOT_PERMITTED.iter().any(|code| answer.has_code(code)) =>
        {
            Ok(false)
        }
        Err(RequestFault::Answered(answer)) if ![UNAUTHORIZED, FORBIDDEN].contains(&answer.status) => {
            Ok(true)
        }
        Err(failure) => Err(failure),
        Ok(()) => Ok(true),
    }
}

#[async_trait]
impl StoreRights for AzureRights {
    async fn lacking(&self, queue: &QueueName, queue_use: QueueUse) -> Result<Vec<String>, StoreFault> {
        let further = match queue_use {
            QueueUse::Send => &[],
            QueueUse::Process => Probe::PROCESSING,
        };
        let probes = Probe::SENDING.iter().chain(further);
        let answers = probes.map(|probe| async { (*probe, self.is_permitted(*probe, queue).await) });
        let (mut lacking, mut failed) = (BTreeSet::new(), None);
        for (probe, answer) in join_all(answers).await {
            match answer {
                Ok(true) => {}
                Ok(false) => drop(lacking.insert(self.grant(probe, queue, queue_use))),
                Err(failure) => failed = Some(failure),
            }
        }
        match failed {
            // Rights that are known to be missing are reported even if another probe failed.
            Some(failure) if lacking.is_empty() => {
                Err(failure.into_fault("checking the rights at the storage"))
            }
            Some(_) | None => Ok(lacking.into_iter().collect()),
        }
    }
}

/// Removes the bodies of requests. A message without a body is malformed and is not stored.
#[derive(Debug)]
pub(super) struct WithoutBody(pub(super) Arc<dyn Wire>);

#[async_trait]
impl Wire for WithoutBody {
    async fn send(&self, mut request: WireRequest) -> Result<WireResponse, WireFault> {
        request.body = Bytes::new();
        request.headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        self.0.send(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_about_permissions_show_that_a_right_is_missing_and_failures_show_nothing() {
        let judge = |status, code: Option<&str>| {
            judged(Err(RequestFault::of_status(status, code.map(str::to_owned)))).ok()
        };
        for code in NOT_PERMITTED {
            assert_eq!(judge(403, Some(code)), Some(false), "{code}");
        }
        for (status, code) in [
            (404, "QueueNotFound"),
            (404, "MessageNotFound"),
            (400, "InvalidXmlDocument"),
            (411, "MissingContentLengthHeader"),
            (412, "ConditionNotMet"),
        ] {
            assert_eq!(judge(status, Some(code)), Some(true), "{status} {code}");
        }
        assert_eq!(judge(400, None), Some(true));
        for (status, code) in [
            (403, Some("AuthorizationFailure")),
            (403, Some("AuthenticationFailed")),
            (403, None),
            (401, Some("InvalidAuthenticationInfo")),
            (429, Some("TooManyRequests")),
            (500, Some("InternalError")),
            (503, Some("ServerBusy")),
        ] {
            assert_eq!(judge(status, code), None, "{status} {code:?}");
        }
    }
}
