//! Faults of the sources of tokens. None of them contains a token or an assertion.

use std::path::PathBuf;

/// The configured identity cannot be used. Found at the start of a process.
#[derive(Debug, thiserror::Error)]
pub enum InvalidIdentity {
    /// The platform did not set a variable.
    #[error("azure-identity = {identity} needs the variable {variable}, {meaning}")]
    NoVariable {
        /// The identity.
        identity: &'static str,
        /// The variable.
        variable: &'static str,
        /// Its meaning, and which component sets it.
        meaning: &'static str,
    },
    /// A variable of the platform has an invalid value.
    #[error("the variable {variable} {allowed}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// The allowed values, as the end of a sentence.
        allowed: &'static str,
    },
    /// The connection string contains no secret.
    #[error("storage contains neither an AccountKey nor a SharedAccessSignature")]
    NoSecret,
    /// The connection string does not fit the identity.
    #[error("storage {0}")]
    Storage(&'static str),
    /// The connection string of a running process names another account.
    #[error("storage has other endpoints than before, for which the process has to be restarted")]
    OtherAccount,
    /// The shared access signature cannot be read.
    #[error("the SharedAccessSignature of storage is not a query such as sv=…&sig=…")]
    Signature,
    /// The file with authorities cannot be used.
    #[error("azure-ca is {}, which cannot be used", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The HTTP client cannot be created.
    #[error("the HTTP client for tokens cannot be created")]
    NoClient(#[source] reqwest::Error),
}

/// A token cannot be obtained now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// No complete answer arrived.
    #[error("{endpoint} cannot be reached: {reason}")]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// Why.
        reason: String,
    },
    /// The endpoint refused the request.
    #[error("{endpoint} answered {status}: {reason}")]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// The error that the endpoint describes.
        reason: String,
    },
    /// The answer contains no token.
    #[error("{endpoint} answered without a token that can be used: {reason}")]
    Unusable {
        /// The endpoint.
        endpoint: String,
        /// What is wrong with the answer.
        reason: &'static str,
    },
    /// The file with the token of the pod cannot be read.
    #[error("the file {path}, which AZURE_FEDERATED_TOKEN_FILE names, cannot be read: {reason}")]
    File {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The Azure CLI gave no token.
    #[error("the Azure CLI gave no token: {0}")]
    Cli(String),
}
