//! The contracts of the service: sets of operations, each at its own path, in its own namespace and with its own WSDL.

use crate::formats::soap_names::{COMPAT_NAMESPACE, COMPAT_PATH, NAMESPACE, PATH};

/// A contract of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// `schemas/wsdl/user-account-service.wsdl`: requests as in the other formats, and transactions in answers.
    Current,
    /// `schemas/wsdl/user-account-service-compat.wsdl`: the contract of classic clients, whose operations have plain
    /// parameters, and whose answers have one of three statuses.
    Compat,
}

impl Contract {
    /// All contracts.
    pub const ALL: [Self; 2] = [Self::Current, Self::Compat];

    /// Returns the contract at a path of the service.
    pub fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|contract| contract.path() == path)
    }

    /// Returns the path of its endpoint.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Current => PATH,
            Self::Compat => COMPAT_PATH,
        }
    }

    /// Returns the namespace of its messages.
    pub const fn namespace(self) -> &'static str {
        match self {
            Self::Current => NAMESPACE,
            Self::Compat => COMPAT_NAMESPACE,
        }
    }

    /// Returns its WSDL, with a placeholder for the address of the service.
    pub const fn wsdl(self) -> &'static str {
        match self {
            Self::Current => postonce_schemas::USER_ACCOUNT_SERVICE_WSDL,
            Self::Compat => postonce_schemas::USER_ACCOUNT_SERVICE_COMPAT_WSDL,
        }
    }

    /// Returns the SOAP action of an operation. That of the classic contract is made as WCF makes it: from namespace,
    /// interface and operation.
    pub fn action(self, operation: &str) -> String {
        let namespace = self.namespace();
        match self {
            Self::Current => format!("{namespace}/{operation}"),
            Self::Compat => format!("{namespace}/IUserAccountService/{operation}"),
        }
    }

    /// Returns what may stand before the UUID in a `MessageID`, in lower case: `urn:uuid:` (RFC 9562), and for classic
    /// clients also the `uuid:` of toolkits from before WS-Addressing 1.0.
    pub const fn id_prefixes(self) -> &'static [&'static str] {
        match self {
            Self::Current => &["urn:uuid:"],
            Self::Compat => &["urn:uuid:", "uuid:"],
        }
    }
}
