//! Secrets in files: for each secret setting the variable `POSTONCE_<NAME>_FILE` names a file with its value, as container
//! platforms mount them. Other processes of the machine can read the variables of a process more easily than such a file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::settings::variable_of;
use crate::files::read_regular;
use crate::text::without_mark_of_file;

/// Maximum size of a file with a secret, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A file from which a secret was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFile {
    /// The file.
    pub path: PathBuf,
    /// The digest of the secret that was read, to detect changes without a copy of it.
    pub digest: [u8; 32],
}

/// The files that contain secrets, by setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretFiles(pub(super) BTreeMap<String, SecretFile>);

impl SecretFiles {
    /// Returns the file of a setting, if its value comes from one.
    pub fn of(&self, setting: &str) -> Option<&SecretFile> {
        self.0.get(setting)
    }
}

/// Returns the variable that names the file of a secret.
pub(super) fn file_variable_of(setting: &str) -> String {
    format!("{}_FILE", variable_of(setting))
}

/// Returns the digest of a secret (SHA-256).
pub fn digest_of(secret: &SecretString) -> [u8; 32] {
    Sha256::digest(secret.expose_secret().as_bytes()).into()
}

/// Reads a secret from a file. A byte order mark before it and line ends after it do not count.
///
/// # Errors
/// When it is not a regular file (the read of a pipe could block for ever), cannot be read, is not text, is empty, or has more than 64 KiB. The error contains nothing of the secret.
pub fn read_secret(path: &Path) -> io::Result<SecretString> {
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    let bytes = read_regular(path, FILE_BYTES_MAX)?;
    let text =
        std::str::from_utf8(without_mark_of_file(&bytes)).map_err(|_| invalid("it is not text in UTF-8"))?;
    match without_line_end(text) {
        "" => Err(invalid("it is empty")),
        secret => Ok(SecretString::from(secret)),
    }
}

/// Returns a secret without the line ends after it, which editors, `echo` and files of variables from Windows add.
pub fn without_line_end(secret: &str) -> &str {
    secret.trim_end_matches(['\r', '\n'])
}
