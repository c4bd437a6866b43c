//! An HTTP server on its own thread, with a TLS port and a plain port.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use actix_web::dev::ServerHandle;
use actix_web::web::ServiceConfig;
use actix_web::{App, HttpServer, rt};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificates::TlsFiles;

/// A running server. It stops when it is dropped.
pub(super) struct Server {
    plain_port: u16,
    tls_port: u16,
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server on two free loopback ports.
    pub(super) fn start(
        files: &TlsFiles,
        routes: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
    ) -> Self {
        let tls = tls(files);
        let (started, starting) = mpsc::channel();
        let thread = thread::spawn(move || {
            rt::System::new().block_on(async move {
                let server = HttpServer::new(move || App::new().configure(routes.clone()))
                    .workers(1)
                    .disable_signals()
                    .bind(("127.0.0.1", 0))
                    .and_then(|server| server.bind_rustls_0_23(("127.0.0.1", 0), tls))
                    .expect("free ports on loopback");
                let ports: Vec<u16> = server.addrs().iter().map(std::net::SocketAddr::port).collect();
                let server = server.run();
                started.send((ports, server.handle())).expect("the test waits for the start");
                server.await.expect("the server runs");
            });
        });
        let (ports, handle) = starting.recv().expect("the server starts");
        let [plain_port, tls_port] = *ports.as_slice() else { panic!("two ports: {ports:?}") };
        Self { plain_port, tls_port, handle, thread: Some(thread) }
    }

    pub(super) const fn plain_port(&self) -> u16 {
        self.plain_port
    }

    pub(super) const fn tls_port(&self) -> u16 {
        self.tls_port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server stops when it receives the command, so the result is not needed.
        drop(self.handle.stop(false));
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn tls(files: &TlsFiles) -> ServerConfig {
    let certificates = CertificateDer::pem_file_iter(&files.certificate).expect("a file with a certificate");
    let certificates = certificates.collect::<Result<Vec<_>, _>>().expect("certificates in PEM");
    let key = PrivateKeyDer::from_pem_file(&files.key).expect("a file with a key");
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .expect("the key belongs to the certificate")
}
