//! The actions of Azure Storage, the requests that need them, and the built-in roles that include them ("Permissions for
//! calling data operations" and "Azure built-in roles for storage", Microsoft).

use Action::{
    AddMessages, ChangeContainers, ChangeQueues, ChangeTables, DeleteMessages, ProcessMessages, ReadBlobs,
    ReadEntities, ReadMessages, ReadQueues, ReadTables, WriteBlobs, WriteEntities, WriteMessages,
};

use crate::storage_proxy::Service;

/// An action on the storage. Reading includes listing; writing includes deleting where all roles have both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    ReadTables,
    ChangeTables,
    ReadEntities,
    WriteEntities,
    ReadQueues,
    ChangeQueues,
    ReadMessages,
    AddMessages,
    WriteMessages,
    DeleteMessages,
    ProcessMessages,
    ChangeContainers,
    ReadBlobs,
    WriteBlobs,
}

/// A built-in role of Azure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Storage Table Data Contributor.
    TableContributor,
    /// Storage Table Data Reader.
    TableReader,
    /// Storage Blob Data Contributor.
    BlobContributor,
    /// Storage Blob Data Reader.
    BlobReader,
    /// Storage Queue Data Contributor.
    QueueContributor,
    /// Storage Queue Data Reader.
    QueueReader,
    /// Storage Queue Data Message Sender.
    MessageSender,
    /// Storage Queue Data Message Processor.
    MessageProcessor,
}

impl Role {
    /// Returns its name in Azure.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TableContributor => "Storage Table Data Contributor",
            Self::TableReader => "Storage Table Data Reader",
            Self::BlobContributor => "Storage Blob Data Contributor",
            Self::BlobReader => "Storage Blob Data Reader",
            Self::QueueContributor => "Storage Queue Data Contributor",
            Self::QueueReader => "Storage Queue Data Reader",
            Self::MessageSender => "Storage Queue Data Message Sender",
            Self::MessageProcessor => "Storage Queue Data Message Processor",
        }
    }

    const fn actions(self) -> &'static [Action] {
        match self {
            Self::TableContributor => &[ReadTables, ChangeTables, ReadEntities, WriteEntities],
            Self::TableReader => &[ReadTables, ReadEntities],
            Self::BlobContributor => &[ChangeContainers, ReadBlobs, WriteBlobs],
            Self::BlobReader => &[ReadBlobs],
            Self::QueueContributor => {
                &[ReadQueues, ChangeQueues, ReadMessages, WriteMessages, DeleteMessages, ProcessMessages]
            }
            Self::QueueReader => &[ReadQueues, ReadMessages],
            Self::MessageSender => &[AddMessages],
            Self::MessageProcessor => &[ReadMessages, ProcessMessages],
        }
    }
}

/// Returns the actions of which a request needs at least one.
pub(super) fn needed(service: Service, method: &str, path: &str, query: &str) -> &'static [Action] {
    match service {
        Service::Table => match method {
            "POST" if path.ends_with("/Tables") => &[ChangeTables],
            "GET" if path.ends_with("/Tables") => &[ReadTables],
            "GET" => &[ReadEntities],
            _ => &[WriteEntities],
        },
        Service::Queue => {
            let of_messages = path.contains("/messages");
            match method {
                "GET" if of_messages && query.contains("peekonly=true") => &[ReadMessages],
                "GET" if of_messages => &[ProcessMessages],
                "POST" => &[AddMessages, WriteMessages],
                "PUT" if of_messages => &[WriteMessages],
                // Clears all messages of the queue.
                "DELETE" if path.ends_with("/messages") => &[DeleteMessages],
                "DELETE" if of_messages => &[DeleteMessages, ProcessMessages],
                "GET" => &[ReadQueues],
                _ => &[ChangeQueues],
            }
        }
        Service::Blob => match method {
            "PUT" | "DELETE" if query.contains("restype=container") => &[ChangeContainers],
            "GET" | "HEAD" => &[ReadBlobs],
            _ => &[WriteBlobs],
        },
    }
}

/// Returns whether one of the roles includes one of the actions.
pub(super) fn are_included(actions: &[Action], roles: &[Role]) -> bool {
    roles.iter().any(|role| role.actions().iter().any(|action| actions.contains(action)))
}
