//! The settings for anchors.

use std::path::PathBuf;

use clap::Args;

use crate::domain::anchor::signed::AnchorKey;
use crate::oversight::anchors::RenewableKey;

/// How a process makes anchors.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Anchors")]
pub struct AnchorTerms {
    /// Secret key with which a worker signs an anchor of all journals once a day, as base64 of the 32 bytes of an Ed25519
    /// seed (`postonce-web anchors new-key`); keep it where the storage does not contain it; by default no anchors are made
    #[arg(long = "anchor-key", value_name = "KEY", hide_env_values = true, value_parser = anchor_key)]
    pub key: Option<RenewableKey>,
    /// Existing folder to which a worker also writes each anchor and its leaves, as files; by default they are only in the
    /// store
    #[arg(long = "anchor-folder", value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
}

impl AnchorTerms {
    /// Returns the current signing key; `None` if the process makes no anchors.
    pub fn signing_key(&self) -> Option<AnchorKey> {
        self.key.as_ref().map(RenewableKey::get)
    }
}

fn anchor_key(text: &str) -> Result<RenewableKey, &'static str> {
    AnchorKey::parse(text)
        .map(RenewableKey::from)
        .ok_or("must be base64 of 32 bytes, as postonce-web anchors new-key prints it")
}
