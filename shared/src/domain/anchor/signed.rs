//! The signature of an anchor (Ed25519).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use super::{AnchorRef, Hash, Statement, StatementError};

/// Precedes the statement in the signed bytes, so that the signature is valid for no other purpose.
const PREFIX: &str = "postonce anchor 1\n";

/// The secret key that signs anchors. Its `Debug` output contains only the public key.
#[derive(Clone)]
pub struct AnchorKey(SigningKey);

impl AnchorKey {
    /// Creates the key from an Ed25519 seed.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// Parses a seed of 32 bytes in base64.
    pub fn parse(text: &str) -> Option<Self> {
        let seed: [u8; 32] = STANDARD.decode(text).ok()?.try_into().ok()?;
        Some(Self::from_seed(seed))
    }

    /// Returns the public key.
    pub fn public(&self) -> AnchorPublicKey {
        AnchorPublicKey(self.0.verifying_key())
    }

    /// Signs a statement.
    pub fn sign(&self, statement: &Statement) -> SignedAnchor {
        let statement = statement.encode();
        let signature = self.0.sign(&signed_bytes(&statement));
        SignedAnchor {
            statement,
            public_key: self.public().to_string(),
            signature: STANDARD.encode(signature.to_bytes()),
        }
    }
}

impl fmt::Debug for AnchorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnchorKey(of {})", self.public())
    }
}

/// A public key that verifies anchors, displayed as the base64 of its 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnchorPublicKey(VerifyingKey);

impl AnchorPublicKey {
    /// Parses the base64 of a public key of 32 bytes. Returns `None` for weak keys, too.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 32] = STANDARD.decode(text).ok()?.try_into().ok()?;
        let key = VerifyingKey::from_bytes(&bytes).ok()?;
        (!key.is_weak()).then_some(Self(key))
    }
}

impl fmt::Display for AnchorPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0.as_bytes()))
    }
}

fn signed_bytes(statement: &str) -> Vec<u8> {
    [PREFIX.as_bytes(), statement.as_bytes()].concat()
}

/// A statement with its signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedAnchor {
    /// The text of the statement, exactly as it was signed.
    pub statement: String,
    /// The public key of the signer, in base64.
    pub public_key: String,
    /// The Ed25519 signature in base64, over the line `postonce anchor 1` and the text.
    pub signature: String,
}

impl SignedAnchor {
    /// Returns whether one of these keys signed the statement.
    pub fn is_signed_by(&self, accepted: &[AnchorPublicKey]) -> bool {
        let is_valid = |key: &AnchorPublicKey| {
            let signature: [u8; 64] = STANDARD.decode(&self.signature).ok()?.try_into().ok()?;
            let signature = Signature::from_bytes(&signature);
            key.0.verify_strict(&signed_bytes(&self.statement), &signature).ok()
        };
        let key = accepted.iter().find(|key| key.to_string() == self.public_key);
        key.is_some_and(|key| is_valid(key).is_some())
    }

    /// Parses the statement without checking the signature.
    ///
    /// # Errors
    /// [`StatementError`] if the text is not a statement.
    pub fn decode(&self) -> Result<Statement, StatementError> {
        Statement::decode(&self.statement)
    }

    /// Returns the hash of the text of the statement. The next statement contains it.
    pub fn hash(&self) -> Hash {
        Hash::of(self.statement.as_bytes())
    }

    /// Returns the reference to this anchor, whose sequence the caller knows.
    pub fn reference(&self, sequence: u64) -> AnchorRef {
        AnchorRef { sequence, hash: self.hash() }
    }
}
