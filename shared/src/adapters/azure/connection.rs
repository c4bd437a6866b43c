//! Connection strings with the endpoints of the storage and the credentials, in the format of the Azure portal and
//! Azurite. Three forms are supported:
//!
//! - `UseDevelopmentStorage=true`: Azurite on this machine, with its well-known account and ports;
//! - explicit endpoints: `BlobEndpoint=…;QueueEndpoint=…;TableEndpoint=…`, each with an optional trailing `/`;
//! - an account in a cloud: `AccountName=…;EndpointSuffix=…`.
//!
//! The last two contain the secret of the account as `AccountKey=…` or `SharedAccessSignature=…`, or no secret if the process
//! has its own identity. The secret is never displayed. Error messages contain no values, because a value may be the key.

use std::collections::BTreeMap;

use azure_core::Url;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;

/// The account and the key of every Azurite instance. Microsoft has published them, so they are not secret.
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

const PUBLIC_SUFFIX: &str = "core.windows.net";

/// A storage account with its endpoints and its secret, if there is one. `Debug` does not show the secret.
#[derive(Debug, Clone)]
pub struct AzureConnection {
    account: String,
    credential: Credential,
    blob: Url,
    queue: Url,
    table: Url,
}

#[derive(Debug, Clone)]
pub(super) enum Credential {
    Key(SecretString),
    /// A shared access signature, as a URL query.
    Sas(SecretString),
    /// No secret: the process has its own identity.
    None,
}

/// Why a text is not a usable connection string. Contains no part of the text, which may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// A part is not of the form `Name=value`.
    #[error("part {0} of the connection string is not of the form Name=value")]
    Malformed(usize),
    /// A part has an unknown name.
    #[error(
        "part {0} of the connection string is no setting of a storage account; those that count are UseDevelopmentStorage, \
         AccountName, AccountKey, SharedAccessSignature, DefaultEndpointsProtocol, EndpointSuffix, BlobEndpoint, QueueEndpoint \
         and TableEndpoint"
    )]
    Unknown(usize),
    /// `UseDevelopmentStorage` is combined with other settings. The emulator has its own account and endpoints.
    #[error(
        "the connection string has UseDevelopmentStorage=true and other settings: remove one or the other"
    )]
    EmulatorAndOthers,
    /// A part repeats a setting.
    #[error("part {0} of the connection string repeats the setting of an earlier part")]
    Repeated(usize),
    /// A required setting is missing.
    #[error("the connection string has no {0}")]
    Missing(&'static str),
    /// The value of a setting cannot be used.
    #[error("the {0} of the connection string {1}")]
    Invalid(&'static str, &'static str),
    /// Both an account key and a shared access signature are given.
    #[error("the connection string has an AccountKey and a SharedAccessSignature: remove one of them")]
    TwoSecrets,
}

impl AzureConnection {
    /// Parses a connection string. Names are case-insensitive. Settings of unused services are ignored.
    ///
    /// # Errors
    /// [`ConnectionError`], which contains no values of the text.
    pub fn parse(text: &str) -> Result<Self, ConnectionError> {
        let settings = settings(text)?;
        let get = |name: &str| settings.get(name).copied();
        if get("usedevelopmentstorage").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            let is_alone = settings.len() == 1;
            return if is_alone { Self::emulator() } else { Err(ConnectionError::EmulatorAndOthers) };
        }
        let credential = match (get("accountkey"), get("sharedaccesssignature")) {
            (Some(_), Some(_)) => return Err(ConnectionError::TwoSecrets),
            (Some(key), None) => Credential::Key(checked_key(key)?),
            (None, Some(signature)) => Credential::Sas(checked_signature(signature)?),
            (None, None) => Credential::None,
        };
        // A key signs the account name. Without a key, explicit endpoints are sufficient.
        let are_explicit =
            ["blobendpoint", "queueendpoint", "tableendpoint"].iter().all(|name| get(name).is_some());
        let account = match get("accountname") {
            None if are_explicit && !matches!(credential, Credential::Key(_)) => "",
            account => account.ok_or(ConnectionError::Missing("AccountName"))?,
        };
        if !account.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
            return Err(ConnectionError::Invalid("AccountName", "must be lower-case letters and digits"));
        }
        let endpoint = |name: &'static str, service: &str| match get(&name.to_ascii_lowercase()) {
            Some(explicit) => endpoint(name, explicit),
            None => {
                let protocol = get("defaultendpointsprotocol").unwrap_or("https");
                let suffix = get("endpointsuffix").unwrap_or(PUBLIC_SUFFIX);
                endpoint("EndpointSuffix", &format!("{protocol}://{account}.{service}.{suffix}"))
            }
        };
        Ok(Self {
            account: account.to_owned(),
            credential,
            blob: endpoint("BlobEndpoint", "blob")?,
            queue: endpoint("QueueEndpoint", "queue")?,
            table: endpoint("TableEndpoint", "table")?,
        })
    }

    /// Returns the connection to Azurite on this machine with its default ports.
    fn emulator() -> Result<Self, ConnectionError> {
        let local = |port: u16| endpoint("port", &format!("http://127.0.0.1:{port}/{EMULATOR_ACCOUNT}"));
        Ok(Self {
            account: EMULATOR_ACCOUNT.to_owned(),
            credential: Credential::Key(checked_key(EMULATOR_KEY)?),
            blob: local(10_000)?,
            queue: local(10_001)?,
            table: local(10_002)?,
        })
    }

    /// Returns the name of the storage account, or an empty text if only endpoints are configured.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Returns the endpoint of the blob service.
    pub fn blob_endpoint(&self) -> &str {
        self.blob.as_str().trim_end_matches('/')
    }

    /// Returns the endpoint of the queue service.
    pub fn queue_endpoint(&self) -> &str {
        self.queue.as_str().trim_end_matches('/')
    }

    /// Returns the endpoint of the table service.
    pub fn table_endpoint(&self) -> &str {
        self.table.as_str().trim_end_matches('/')
    }

    /// Returns whether both connections have the same account and endpoints.
    pub(super) fn is_of_account(&self, other: &Self) -> bool {
        self.account == other.account && self.endpoints() == other.endpoints()
    }

    /// Returns whether every endpoint uses TLS or is on this machine.
    pub(super) fn is_private(&self) -> bool {
        let is_local =
            |url: &Url| url.host_str().is_some_and(|host| host == "localhost" || host.starts_with("127."));
        self.endpoints().into_iter().all(|url| url.scheme() == "https" || is_local(url))
    }

    /// Returns whether every endpoint uses TLS.
    pub fn is_encrypted(&self) -> bool {
        self.endpoints().into_iter().all(|url| url.scheme() == "https")
    }

    const fn endpoints(&self) -> [&Url; 3] {
        [&self.blob, &self.queue, &self.table]
    }

    pub(super) const fn credential(&self) -> &Credential {
        &self.credential
    }
}

/// The names of known settings, in lower case.
const SETTINGS: [&str; 18] = [
    "usedevelopmentstorage",
    "defaultendpointsprotocol",
    "accountname",
    "accountkey",
    "sharedaccesssignature",
    "endpointsuffix",
    "blobendpoint",
    "queueendpoint",
    "tableendpoint",
    // Settings of other services and of secondary regions, which are not used.
    "fileendpoint",
    "dfsendpoint",
    "webendpoint",
    "blobsecondaryendpoint",
    "queuesecondaryendpoint",
    "tablesecondaryendpoint",
    "filesecondaryendpoint",
    "dfssecondaryendpoint",
    "websecondaryendpoint",
];

/// Returns the settings by their lower-case names.
fn settings(text: &str) -> Result<BTreeMap<String, &str>, ConnectionError> {
    let mut settings = BTreeMap::new();
    let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    for (part, number) in parts.zip(1..) {
        // Only the first `=` is a separator, because keys end with `=`.
        let (name, value) = part.split_once('=').ok_or(ConnectionError::Malformed(number))?;
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || value.is_empty() {
            return Err(ConnectionError::Malformed(number));
        }
        let name = name.to_ascii_lowercase();
        if !SETTINGS.contains(&name.as_str()) {
            return Err(ConnectionError::Unknown(number));
        }
        if settings.insert(name, value).is_some() {
            return Err(ConnectionError::Repeated(number));
        }
    }
    Ok(settings)
}

fn checked_key(key: &str) -> Result<SecretString, ConnectionError> {
    // Checked here, so that an invalid key does not first fail at a signed request.
    match STANDARD.decode(key) {
        Ok(bytes) if !bytes.is_empty() => Ok(SecretString::from(key)),
        Ok(_) | Err(_) => Err(ConnectionError::Invalid("AccountKey", "is not base64")),
    }
}

/// Checks the form of a shared access signature, and removes the leading `?` that the Azure portal adds.
fn checked_signature(text: &str) -> Result<SecretString, ConnectionError> {
    let query = text.strip_prefix('?').unwrap_or(text);
    let has = |name: &str| {
        let value = |part: &str| part.strip_prefix(name)?.strip_prefix('=').map(str::len);
        query.split('&').any(|part| value(part).is_some_and(|length| length > 0))
    };
    // The parser of URLs would leave out an inner line end.
    let is_visible = query.bytes().all(|byte| byte.is_ascii_graphic());
    if is_visible && has("sv") && has("sig") {
        return Ok(SecretString::from(query));
    }
    Err(ConnectionError::Invalid("SharedAccessSignature", "is not a query such as sv=…&sig=…"))
}

fn endpoint(name: &'static str, text: &str) -> Result<Url, ConnectionError> {
    let invalid = ConnectionError::Invalid(name, "is not an address such as https://host/path");
    let url = Url::parse(text).map_err(|_| invalid.clone())?;
    let is_valid = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.host_str().is_some_and(|host| !host.is_empty())
        && url.query().is_none()
        && url.fragment().is_none();
    if is_valid { Ok(url) } else { Err(invalid) }
}
