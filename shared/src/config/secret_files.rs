//! Secrets in files: for each secret setting the variable `POSTONCE_<NAME>_FILE` names a file with its value, as container
//! platforms mount them. Other processes of the machine can read the variables of a process more easily than such a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::settings::variable_of;

/// Maximum size of a file with a secret, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The files that contain secrets, by setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretFiles(pub(super) BTreeMap<String, PathBuf>);

impl SecretFiles {
    /// Returns the file of a setting, if its value comes from one.
    pub fn of(&self, setting: &str) -> Option<&Path> {
        self.0.get(setting).map(PathBuf::as_path)
    }
}

/// Returns the variable that names the file of a secret.
pub(super) fn file_variable_of(setting: &str) -> String {
    format!("{}_FILE", variable_of(setting))
}

/// Reads a secret from a file. Line ends after it do not count.
///
/// # Errors
/// When the file cannot be read, is not text, is empty, or has more than 64 KiB. The error contains nothing of the secret.
pub fn read_secret(path: &Path) -> io::Result<SecretString> {
    let mut bytes = Vec::new();
    let length = File::open(path)?.take(FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes)?;
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    if u64::try_from(length).is_ok_and(|length| length > FILE_BYTES_MAX) {
        return Err(invalid("it has more than 65536 bytes"));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid("it is not text in UTF-8"))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(invalid("it is empty")),
        secret => Ok(SecretString::from(secret)),
    }
}
