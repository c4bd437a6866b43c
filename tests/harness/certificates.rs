//! Test certificates, and authorities that only the tests trust.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postonce_shared::testing::prelude::*;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::scenario::Plan;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its private key, in PEM.
#[derive(Debug, Clone)]
pub struct Certified {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Authority {
    /// Creates an authority with this name.
    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("an authority signs its own certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The certificate of the authority.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a certificate for a server on this machine, which clients can use too.
    pub fn certify(&self, name: &str) -> Certified {
        self.certify_with(name, |_| {})
    }

    /// Issues a certificate that has expired.
    pub fn certify_expired(&self, name: &str) -> Certified {
        self.certify_with(name, |params| params.not_after = date_time_ymd(2026, 1, 1))
    }

    /// Issues a certificate that expires after this duration.
    pub fn certify_for(&self, name: &str, validity: Duration) -> Certified {
        let now = u64::try_from(SystemWorld::new().now().unix_ms()).expect("a time after 1970");
        let until = Duration::from_millis(now).saturating_add(validity);
        let until = until.try_into().expect("a time");
        self.certify_with(name, |params| params.not_after = date_time_ymd(1970, 1, 1).saturating_add(until))
    }

    fn certify_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Certified {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names of this machine");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate =
            params.signed_by(&key, &self.issuer).expect("an authority issues certificates").pem();
        Certified { certificate, key: key.serialize_pem() }
    }
}

/// The TLS files of a bank.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
    /// The authorities of client certificates.
    pub authorities: PathBuf,
}

impl TlsFiles {
    /// Returns the paths of the files in a directory.
    pub fn within(directory: &Path) -> Self {
        let file = |name: &str| directory.join(name);
        Self { certificate: file("certificate.pem"), key: file("key.pem"), authorities: file("clients.pem") }
    }

    /// Writes a certificate and its key to the files.
    pub fn write(&self, certified: &Certified) {
        fs::write(&self.certificate, &certified.certificate).expect("a file can be written");
        fs::write(&self.key, &certified.key).expect("a file can be written");
    }

    /// Configures the bank to serve TLS with these files, and its clients to trust the authority.
    #[must_use]
    pub fn serve(&self, plan: Plan, trusted: &Authority) -> Plan {
        plan.with("POSTONCE_TLS_CERTIFICATE", &self.certificate.to_string_lossy())
            .with("POSTONCE_TLS_KEY", &self.key.to_string_lossy())
            .trusting(trusted.pem())
    }
}

/// Configures a client to trust only this authority, given in PEM.
pub fn trusting(builder: reqwest::ClientBuilder, authority: &str) -> reqwest::ClientBuilder {
    let authority = reqwest::Certificate::from_pem(authority.as_bytes()).expect("a certificate");
    builder.tls_built_in_root_certs(false).add_root_certificate(authority)
}
