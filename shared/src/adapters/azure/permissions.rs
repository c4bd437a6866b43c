//! Maps requests to the rights that they need, so that errors can name a missing right («Permissions for calling data
//! operations» and «Azure built-in roles for storage», Microsoft).

use crate::ports::operations::Service;

/// A right, and the least privileged built-in role that includes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Right {
    /// The action or data action, relative to `Microsoft.Storage/storageAccounts/`.
    pub(super) action: &'static str,
    pub(super) role: &'static str,
}

/// The role with all data rights on queues.
pub(super) const QUEUES: &str = "Storage Queue Data Contributor";

pub(super) fn needed(service: Service, name: &str) -> Right {
    const TABLES: &str = "Storage Table Data Contributor";
    const BLOBS: &str = "Storage Blob Data Contributor";
    let (action, role) = match (service, name) {
        (Service::Table, "create") => ("tableServices/tables/write", TABLES),
        (Service::Table, "get" | "query") => ("tableServices/tables/entities/read", TABLES),
        (Service::Table, "delete") => ("tableServices/tables/entities/delete", TABLES),
        (Service::Table, _) => ("tableServices/tables/entities/write", TABLES),
        (Service::Queue, "send") => {
            ("queueServices/queues/messages/add/action", "Storage Queue Data Message Sender")
        }
        (Service::Queue, "peek") => ("queueServices/queues/messages/read", "Storage Queue Data Reader"),
        (Service::Queue, "metadata") => ("queueServices/queues/read", "Storage Queue Data Reader"),
        (Service::Queue, "receive" | "delete") => {
            ("queueServices/queues/messages/process/action", "Storage Queue Data Message Processor")
        }
        // This operation renews the lease on a message. The role Message Processor does not include it.
        (Service::Queue, "update") => ("queueServices/queues/messages/write", QUEUES),
        (Service::Queue, _) => ("queueServices/queues/write", QUEUES),
        (Service::Blob, "create") => ("blobServices/containers/write", BLOBS),
        (Service::Blob, "get" | "list") => ("blobServices/containers/blobs/read", BLOBS),
        (Service::Blob, "delete") => ("blobServices/containers/blobs/delete", BLOBS),
        (Service::Blob, _) => ("blobServices/containers/blobs/write", BLOBS),
    };
    Right { action, role }
}
