//! Verification of client certificates against the current authorities.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Verifier that is replaced when the file with the authorities changes.
#[derive(Debug)]
pub(super) struct CurrentClients {
    verifier: RwLock<Arc<dyn ClientCertVerifier>>,
    required: bool,
}

impl CurrentClients {
    pub(super) fn new(verifier: Arc<dyn ClientCertVerifier>, required: bool) -> Self {
        Self { verifier: RwLock::new(verifier), required }
    }

    pub(super) fn replace(&self, verifier: Arc<dyn ClientCertVerifier>) {
        *self.verifier.write() = verifier;
    }

    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.verifier.read())
    }
}

impl ClientCertVerifier for CurrentClients {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    /// Returns no hints, because the authorities can change. A client that receives no hints sends the certificate it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.current().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}
