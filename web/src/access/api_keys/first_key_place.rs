//! Output of a generated first key: the terminal or a private file, never the log, which is stored and forwarded.

use std::fs::remove_file;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use postonce_shared::config::StorageConfig;
use postonce_shared::files::NewFile;

use super::NewKey;

/// Prefix of the file name; the id of the key follows.
const FILE_NAME: &str = "first-api-key-";

/// Destination of a generated first key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstKeyPlace {
    /// Standard output, which is a terminal.
    Terminal,
    /// A file in this folder, with mode 0600.
    Folder(PathBuf),
}

impl FirstKeyPlace {
    /// Returns the terminal if standard output is one, otherwise the folder of the embedded store or the working directory.
    pub fn of_process(storage: &StorageConfig) -> Self {
        if io::stdout().is_terminal() {
            return Self::Terminal;
        }
        let folder = match storage {
            StorageConfig::Sqlite { path } => path.parent().unwrap_or(Path::new("")).to_owned(),
            StorageConfig::Azure { .. } => PathBuf::new(),
        };
        Self::Folder(folder)
    }

    /// Writes the key to its file before the key is stored, so that no stored key is lost. Does nothing for a terminal.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn keep(&self, key: &NewKey) -> io::Result<()> {
        let Some(file) = self.file_of(key) else { return Ok(()) };
        // An earlier attempt of this process may have written the file, with the same content.
        let new = NewFile::create(&file)?;
        new.file().write_all(format!("{}\n", key.expose()).as_bytes())?;
        new.publish()
    }

    /// Removes the file that [`Self::keep`] wrote, because another key became the first one.
    pub(super) fn discard(&self, key: &NewKey) {
        let removed = self.file_of(key).map(remove_file);
        if let Some(Err(error)) = removed {
            tracing::warn!("The file of a key that was not stored cannot be removed: {error}");
        }
    }

    /// Prints the stored key on the terminal, or logs the path of its file.
    pub fn show(&self, key: &NewKey) {
        match self.file_of(key) {
            None => show_on_terminal(format!(
                "The first API key, for partner bootstrap with every scope, shown only this once:\n\n    {}\n",
                key.expose()
            )),
            Some(file) => tracing::info!(
                "The first API key, for partner bootstrap with every scope, is in the file {}. Move it to where you \
                 keep secrets",
                file.display()
            ),
        }
    }

    fn file_of(&self, key: &NewKey) -> Option<PathBuf> {
        match self {
            Self::Terminal => None,
            Self::Folder(folder) => Some(folder.join(format!("{FILE_NAME}{}", key.id()))),
        }
    }
}

/// Prints a text on a separate thread, because a paused terminal blocks the writer.
fn show_on_terminal(text: String) {
    let show = move || {
        if let Err(error) = writeln!(io::stdout(), "{text}") {
            tracing::error!("The first API key could not be shown: {error}");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("first key".to_owned()).spawn(show) {
        tracing::error!("The first API key could not be shown: {error}");
    }
}
