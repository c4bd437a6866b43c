//! Azurite, the emulator of Azure Storage. The tests of a process share one instance, and each test has its own name prefix.
//! A test can also have a private instance, which it can stop and restart.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::process::{Launch, Process};
use crate::{azurite_install, wait};

const ACCOUNT: &str = "devstoreaccount1";
/// Published key of the account, which is not a secret.
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Loopback ports of the three services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// Port of the blob service.
    pub blob: u16,
    /// Port of the queue service.
    pub queue: u16,
    /// Port of the table service.
    pub table: u16,
}

impl Ports {
    /// Ports that the operating system chooses.
    const FREE: Self = Self { blob: 0, queue: 0, table: 0 };

    /// Returns the connection string for the services at these ports over TLS, without a secret.
    pub fn secure_endpoints(self) -> String {
        let Self { blob, queue, table } = self;
        let endpoint =
            |service: &str, port: u16| format!("{service}Endpoint=https://127.0.0.1:{port}/{ACCOUNT};");
        format!("{}{}{}", endpoint("Blob", blob), endpoint("Queue", queue), endpoint("Table", table))
    }

    /// Returns the connection string for the services at these ports.
    pub fn connection_string(self) -> String {
        let Self { blob, queue, table } = self;
        let endpoint =
            |service: &str, port: u16| format!("{service}Endpoint=http://127.0.0.1:{port}/{ACCOUNT};");
        format!(
            "DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};{}{}{}",
            endpoint("Blob", blob),
            endpoint("Queue", queue),
            endpoint("Table", table)
        )
    }
}

/// Where Azurite stores its data.
#[derive(Debug)]
enum Persistence {
    /// In memory; the data is lost when the process stops.
    Memory,
    /// In a directory, which is deleted when this value is dropped.
    Directory(TempDir),
}

/// The certificate of an instance, and its private key.
#[derive(Debug)]
struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
}

/// A running Azurite, or a stopped one that can be restarted on the same ports.
#[derive(Debug)]
pub struct Azurite {
    ports: Ports,
    program: PathBuf,
    persistence: Persistence,
    /// The certificate, if the instance listens over TLS and accepts tokens.
    tls: Option<TlsFiles>,
    /// The account keys, if they replace the published one.
    keys: Vec<String>,
    process: Option<Process>,
}

impl Azurite {
    /// Returns the instance that the tests of this process share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Azurite> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Persistence::Memory, None))
    }

    /// Starts a private instance that keeps its data between [`Self::stop`] and [`Self::resume`].
    pub fn private() -> Self {
        Self::start(
            Persistence::Directory(TempDir::with_prefix("postonce-azurite-").expect("a directory")),
            None,
        )
    }

    /// Starts a private instance that keeps its data in memory.
    pub fn private_in_memory() -> Self {
        Self::start(Persistence::Memory, None)
    }

    /// Starts a private instance in memory that listens over TLS and accepts tokens of Microsoft Entra ID.
    pub fn with_tokens(certificate: &Path, key: &Path) -> Self {
        let tls = TlsFiles { certificate: certificate.to_owned(), key: key.to_owned() };
        Self::start(Persistence::Memory, Some(tls))
    }

    fn start(persistence: Persistence, tls: Option<TlsFiles>) -> Self {
        let program = azurite_install::program();
        let mut azurite =
            Self { ports: Ports::FREE, program, persistence, tls, keys: Vec::new(), process: None };
        azurite.resume();
        azurite
    }

    /// Returns the ports of its services.
    pub const fn ports(&self) -> Ports {
        self.ports
    }

    /// Stops the process with SIGTERM, so that it saves its data.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.terminate(wait::TIMEOUT);
        }
    }

    /// Restarts the process on the same ports, with other account keys.
    pub fn restart_with_keys(&mut self, keys: &[&str]) {
        self.stop();
        self.keys = keys.iter().map(|key| (*key).to_owned()).collect();
        self.resume();
    }

    /// Starts the stopped process on the same ports.
    pub fn resume(&mut self) {
        let Ports { blob, queue, table } = self.ports;
        let directory = match &self.persistence {
            Persistence::Memory => std::env::temp_dir(),
            Persistence::Directory(directory) => directory.path().to_owned(),
        };
        let mut launch = Launch::of("azurite", "node", &directory)
            .arguments([&self.program])
            .arguments(["--silent", "--disableTelemetry", "--skipApiVersionCheck"])
            .arguments(["--blobPort".to_owned(), blob.to_string()])
            .arguments(["--queuePort".to_owned(), queue.to_string()])
            .arguments(["--tablePort".to_owned(), table.to_string()]);
        launch = match &self.persistence {
            Persistence::Memory => launch.arguments(["--inMemoryPersistence"]),
            Persistence::Directory(directory) => {
                launch.arguments([Path::new("--location"), directory.path()])
            }
        };
        if let Some(files) = &self.tls {
            launch = launch
                .arguments(["--oauth", "basic"])
                .arguments([Path::new("--cert"), &files.certificate])
                .arguments([Path::new("--key"), &files.key]);
        }
        if !self.keys.is_empty() {
            let account = format!("{ACCOUNT}:{}", self.keys.join(":"));
            launch.environment.insert("AZURITE_ACCOUNTS".to_owned(), account);
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut process = Process::start(&launch);
        let mut port = |service: &str| {
            let start =
                format!("Azurite {service} service is successfully listening at {scheme}://127.0.0.1:");
            process
                .wait_for_line(&start, wait::TIMEOUT, |line| line.strip_prefix(&start)?.trim().parse().ok())
        };
        self.ports = Ports { blob: port("Blob"), queue: port("Queue"), table: port("Table") };
        self.process = Some(process);
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        self.stop();
    }
}
