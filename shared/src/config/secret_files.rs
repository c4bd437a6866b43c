//! Secrets in files. The variable `POSTONCE_<NAME>_FILE` of a secret setting names a file that contains its value, as
//! container platforms mount them. Other processes on the machine can read environment variables more easily than such a
//! file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::settings::variable_of;
use crate::files::read_regular;
use crate::text::without_mark_of_file;

/// Maximum size of a secret file, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A secret file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFile {
    /// The file.
    pub path: PathBuf,
    /// The digest of the secret, to detect changes without keeping a copy.
    pub digest: [u8; 32],
}

/// The secret files by setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretFiles(pub(super) BTreeMap<String, SecretFile>);

impl SecretFiles {
    /// Returns the file that contains the value of a setting, if any.
    pub fn of(&self, setting: &str) -> Option<&SecretFile> {
        self.0.get(setting)
    }
}

pub(super) fn file_variable_of(setting: &str) -> String {
    format!("{}_FILE", variable_of(setting))
}

/// Returns the SHA-256 digest of a secret.
pub fn digest_of(secret: &SecretString) -> [u8; 32] {
    Sha256::digest(secret.expose_secret().as_bytes()).into()
}

/// Reads a secret from a file, without a leading byte order mark and trailing line ends.
///
/// # Errors
/// When the path is not a regular file (reading a pipe could block forever), or the file cannot be read, is not UTF-8, is
/// empty, or has more than 64 KiB. The error reveals nothing of the secret.
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

/// Removes trailing line ends, which editors, `echo` and files of variables from Windows add.
pub fn without_line_end(secret: &str) -> &str {
    secret.trim_end_matches(['\r', '\n'])
}
