//! Signs requests as a partner does (RFC 9421), with a digest of the body (RFC 9530). Written from the RFCs without the code of
//! the bank, so that an error in either implementation is detected.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use hmac::{Hmac, KeyInit as _, Mac as _};
use postonce_shared::testing::prelude::*;
use sha2::{Digest as _, Sha256};

/// The key and the parameters of a partner's signatures.
#[derive(Debug, Clone)]
pub struct Signer {
    key_id: String,
    secret: Secret,
    /// The components that the signatures cover.
    pub components: Vec<&'static str>,
    /// Age of the signatures when they are sent.
    pub age: Duration,
}

#[derive(Debug, Clone)]
enum Secret {
    Hmac(Vec<u8>),
    Ed25519(Box<SigningKey>),
}

/// A request to sign.
#[derive(Debug, Clone, Copy)]
pub struct UnsignedRequest<'a> {
    /// The HTTP method.
    pub method: &'a str,
    /// The address of the server, such as `http://127.0.0.1:8080`.
    pub address: &'a str,
    /// The path.
    pub path: &'a str,
    /// The value of `Idempotency-Key`.
    pub id: &'a str,
    /// The body.
    pub body: &'a str,
}

impl Signer {
    /// Creates a signer that shares a secret with the bank.
    pub fn hmac(key_id: &str, secret: &[u8]) -> Self {
        Self::of(key_id, Secret::Hmac(secret.to_vec()))
    }

    /// Creates a signer whose public key is registered with the bank.
    pub fn ed25519(key_id: &str, seed: [u8; 32]) -> Self {
        Self::of(key_id, Secret::Ed25519(Box::new(SigningKey::from_bytes(&seed))))
    }

    fn of(key_id: &str, secret: Secret) -> Self {
        let components = vec!["@method", "@target-uri", "content-digest", "idempotency-key"];
        Self { key_id: key_id.to_owned(), secret, components, age: Duration::ZERO }
    }

    /// Returns the key to register with the bank.
    pub fn known_as(&self) -> SignatureKey {
        let (algorithm, material) = match &self.secret {
            Secret::Hmac(secret) => (SignatureAlgorithm::HmacSha256, secret.clone()),
            Secret::Ed25519(key) => (SignatureAlgorithm::Ed25519, key.verifying_key().to_bytes().to_vec()),
        };
        SignatureKey { id: self.key_id.clone(), algorithm, material }
    }

    /// Returns the headers that sign a request.
    pub fn headers(&self, draft: UnsignedRequest<'_>, now: Timestamp) -> Vec<(&'static str, String)> {
        let UnsignedRequest { method, address, path, id, body } = draft;
        let digest = format!("sha-256=:{}:", BASE64_STANDARD.encode(Sha256::digest(body)));
        let names: Vec<String> = self.components.iter().map(|name| format!("\"{name}\"")).collect();
        let age = i64::try_from(self.age.as_secs()).expect("a short time");
        let created = now.unix_ms().div_euclid(1000).checked_sub(age).expect("a time of today");
        let params = format!("({});created={created};keyid=\"{}\"", names.join(" "), self.key_id);
        let mut base = String::new();
        for name in &self.components {
            let value = match *name {
                "@method" => method.to_owned(),
                "@target-uri" => format!("{address}{path}"),
                "@authority" => address.split_once("://").map_or(address, |(_, host)| host).to_owned(),
                "@path" => path.to_owned(),
                "content-digest" => digest.clone(),
                "idempotency-key" => id.to_owned(),
                other => panic!("the signer does not support {other}"),
            };
            base.push_str(&format!("\"{name}\": {value}\n"));
        }
        base.push_str(&format!("\"@signature-params\": {params}"));
        let signature = match &self.secret {
            Secret::Hmac(secret) => {
                let mac = Hmac::<Sha256>::new_from_slice(secret).expect("a secret of any length");
                mac.chain_update(&base).finalize().into_bytes().to_vec()
            }
            Secret::Ed25519(key) => key.sign(base.as_bytes()).to_bytes().to_vec(),
        };
        let signature = format!("sig1=:{}:", BASE64_STANDARD.encode(signature));
        vec![
            ("Content-Digest", digest),
            ("Signature-Input", format!("sig1={params}")),
            ("Signature", signature),
        ]
    }
}
