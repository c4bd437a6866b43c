//! The parts of Microsoft Entra ID that the bank needs: endpoints that issue tokens, and Azurite behind proxies that allow
//! only what the roles of a token include. Azurite itself checks the form, the audience and the lifetime of tokens, but
//! neither their signature nor permissions.
//!
//! Tests never contact the metadata address of a machine: the variables of [`Entra::on_machine`] name these endpoints.

mod issuer;
mod rights;
mod server;
mod storage;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tempfile::TempDir;

pub use rights::Role;

use crate::azurite::{Azurite, Ports};
use crate::certificates::{Authority, TlsFiles, trusting};
use crate::service::Settings;
use issuer::Issuer;
use server::Server;

const TENANT: &str = "00000000-0000-4000-8000-00000000000a";

/// An identity of processes in Entra ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Principal {
    /// The web processes.
    Web,
    /// The worker processes.
    Worker,
}

impl Principal {
    const ALL: [Self; 2] = [Self::Web, Self::Worker];

    /// Returns the roles that the documentation requires.
    pub const fn roles(self) -> &'static [Role] {
        match self {
            Self::Web => {
                &[Role::TableContributor, Role::BlobContributor, Role::QueueReader, Role::MessageSender]
            }
            Self::Worker => &[Role::TableContributor, Role::BlobContributor, Role::QueueContributor],
        }
    }

    /// Returns the object id of the identity, which is also its client id.
    const fn id(self) -> &'static str {
        match self {
            Self::Web => "00000000-0000-4000-8000-0000000000b1",
            Self::Worker => "00000000-0000-4000-8000-0000000000b2",
        }
    }

    /// Finds the principal by the first part of a path.
    fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.path() == path)
    }

    /// Finds the principal by its id.
    fn with_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.id() == id)
    }

    /// Returns the first part of the paths of its endpoints.
    const fn path(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Worker => "worker",
        }
    }
}

/// State that all servers share.
pub(crate) struct Directory {
    lifetime: Mutex<Duration>,
    roles: Mutex<[Vec<Role>; 2]>,
    /// The currently valid content of the token file of pods.
    pod_token: Mutex<String>,
    is_failing: Mutex<bool>,
    issued: AtomicU32,
    refused: Mutex<Vec<String>>,
}

/// Secret that the endpoint of a container app expects in a header.
pub const HEADER: &str = "header-of-the-platform";

/// A tenant, and a storage account without keys. All servers stop when it is dropped.
pub struct Entra {
    directory: Arc<Directory>,
    files: TempDir,
    issuer: Server,
    storage: [Server; 3],
    _azurite: Azurite,
}

impl Entra {
    /// Starts the tenant with these roles of the web and the worker processes. Tokens are valid for an hour.
    pub fn start(web: &[Role], worker: &[Role]) -> Self {
        let files = TempDir::with_prefix("postonce-entra-").expect("a directory");
        let authority = Authority::named("authority of the storage");
        fs::write(files.path().join("authority.pem"), authority.pem()).expect("a file can be written");
        let tls = TlsFiles::within(files.path());
        tls.write(&authority.certify("storage"));
        let azurite = Azurite::with_tokens(&tls.certificate, &tls.key);
        let directory = Arc::new(Directory {
            lifetime: Mutex::new(Duration::from_secs(3600)),
            roles: Mutex::new([web.to_vec(), worker.to_vec()]),
            pod_token: Mutex::default(),
            is_failing: Mutex::new(false),
            issued: AtomicU32::new(0),
            refused: Mutex::default(),
        });
        let issuer = Issuer::start(&directory, &tls);
        let storage = storage::start(azurite.ports(), &directory, &tls, authority.pem());
        let entra = Self { directory, files, issuer, storage, _azurite: azurite };
        entra.replace_pod_token("the first token of the pod");
        entra
    }

    /// Returns the file with the authority of all certificates.
    pub fn authority_file(&self) -> PathBuf {
        self.files.path().join("authority.pem")
    }

    /// Returns the storage setting of the account, which contains no secret.
    pub fn storage(&self) -> String {
        let [blob, queue, table] = self.storage.each_ref().map(Server::tls_port);
        let ports = Ports { blob, queue, table };
        format!("azure:{}", ports.secure_endpoints())
    }

    fn account(&self, settings: Settings, identity: &str) -> Settings {
        settings
            .with("POSTONCE_STORAGE", self.storage())
            .with("POSTONCE_AZURE_IDENTITY", identity)
            .with("POSTONCE_AZURE_CA", self.authority_file().to_string_lossy())
    }

    /// Returns settings for a process on a virtual machine.
    pub fn on_machine(&self, settings: Settings, principal: Principal) -> Settings {
        let host = format!("http://127.0.0.1:{}/{}", self.issuer.plain_port(), principal.path());
        self.account(settings, "managed")
            .with("POSTONCE_AZURE_CLIENT_ID", principal.id())
            .with("AZURE_POD_IDENTITY_AUTHORITY_HOST", host)
    }

    /// Returns settings for a process in a container app.
    pub fn in_container_app(&self, settings: Settings, principal: Principal) -> Settings {
        let endpoint =
            format!("http://127.0.0.1:{}/{}/msi/token", self.issuer.plain_port(), principal.path());
        self.account(settings, "managed").with("IDENTITY_ENDPOINT", endpoint).with("IDENTITY_HEADER", HEADER)
    }

    /// Returns settings for a process in a pod.
    pub fn in_pod(&self, settings: Settings, principal: Principal) -> Settings {
        self.account(settings, "workload")
            .with("AZURE_CLIENT_ID", principal.id())
            .with("AZURE_TENANT_ID", TENANT)
            .with("AZURE_AUTHORITY_HOST", format!("https://127.0.0.1:{}/", self.issuer.tls_port()))
            .with("AZURE_FEDERATED_TOKEN_FILE", self.pod_token_file().to_string_lossy())
    }

    /// Returns settings for a process of a developer.
    pub fn with_cli(&self, settings: Settings) -> Settings {
        self.account(settings, "cli")
    }

    /// Returns a token of a principal.
    pub fn token_of(&self, principal: Principal) -> String {
        issuer::token(&self.directory, principal).text
    }

    fn pod_token_file(&self) -> PathBuf {
        self.files.path().join("azure-identity-token")
    }

    /// Replaces the token in the file of pods, as the platform does. Earlier tokens become invalid.
    pub fn replace_pod_token(&self, token: &str) {
        token.clone_into(&mut self.directory.pod_token.lock());
        fs::write(self.pod_token_file(), format!("{token}\n")).expect("a file can be written");
    }

    /// Sets the lifetime of later tokens.
    pub fn set_lifetime(&self, lifetime: Duration) {
        *self.directory.lifetime.lock() = lifetime;
    }

    /// Sets whether the endpoints that issue tokens fail.
    pub fn set_failing(&self, is_failing: bool) {
        *self.directory.is_failing.lock() = is_failing;
    }

    /// Assigns other roles to a principal, which also apply to its existing tokens.
    pub fn assign(&self, principal: Principal, roles: &[Role]) {
        let mut assigned = self.directory.roles.lock();
        let [web, worker] = &mut *assigned;
        let assigned = match principal {
            Principal::Web => web,
            Principal::Worker => worker,
        };
        *assigned = roles.to_vec();
    }

    /// Sends a message to a queue as a principal.
    pub async fn send_message(&self, principal: Principal, queue: &str, body: &[u8]) {
        let [_, queues, _] = &self.storage;
        let url = format!("https://127.0.0.1:{}/devstoreaccount1/{queue}/messages", queues.tls_port());
        let authority = fs::read_to_string(self.authority_file()).expect("a file");
        let http = trusting(reqwest::Client::builder().no_proxy(), &authority);
        let text = STANDARD.encode(body);
        let request = http
            .build()
            .expect("a client")
            .post(url)
            .bearer_auth(self.token_of(principal))
            .header("x-ms-version", "2019-12-12")
            .header("content-type", "application/xml")
            .body(format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>"));
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 201, "{answer:?}");
    }

    /// Returns the number of tokens issued so far.
    pub fn issued(&self) -> u32 {
        self.directory.issued.load(Ordering::SeqCst)
    }

    /// Returns the requests to the storage that were refused because of missing roles, so far.
    pub fn refused(&self) -> Vec<String> {
        self.directory.refused.lock().clone()
    }
}
