//! Faults of token sources. They contain no tokens or assertions.

use std::path::PathBuf;

/// The configured identity cannot be used. Detected when a process starts or its secret is replaced.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A variable that the platform should set is missing.
    #[error("azure-identity = {identity} needs the variable {variable}, {meaning}")]
    NoVariable {
        /// The kind of identity, as in settings.
        identity: &'static str,
        /// The name of the variable.
        variable: &'static str,
        /// The meaning of the variable, and which component sets it.
        meaning: &'static str,
    },
    /// A variable of the platform has an invalid value.
    #[error("the variable {variable} {allowed}")]
    Variable {
        /// The name of the variable.
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
    /// The new connection string names another account or other endpoints.
    #[error("storage has other endpoints than before, for which the process has to be restarted")]
    OtherAccount,
    /// The shared access signature cannot be parsed.
    #[error("the SharedAccessSignature of storage is not a query such as sv=…&sig=…")]
    Signature,
    /// The file with certificate authorities cannot be used.
    #[error("azure-ca is {}, which cannot be used", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The HTTP client cannot be created.
    #[error("the HTTP client for tokens cannot be created")]
    NoClient(#[source] reqwest::Error),
}

/// Why no token can be obtained now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// The endpoint did not send a complete response.
    #[error("{endpoint} cannot be reached: {reason}")]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        reason: String,
    },
    /// The endpoint responded with an error.
    #[error("{endpoint} answered {status}: {reason}")]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// The error description of the endpoint.
        reason: String,
    },
    /// The response contains no usable token.
    #[error("{endpoint} answered without a token that can be used: {reason}")]
    Unusable {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        reason: &'static str,
    },
    /// The file with the Kubernetes service account token cannot be read.
    #[error("the file {path}, which AZURE_FEDERATED_TOKEN_FILE names, cannot be read: {reason}")]
    File {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The Azure CLI returned no token. Contains the reason.
    #[error("the Azure CLI gave no token: {0}")]
    Cli(String),
}
