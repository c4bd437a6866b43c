//! Writes anchors as files, so that copies exist outside the store.
//!
//! `anchor-000017.json` contains an anchor as one line of JSON, and `anchor-000017.leaves` its uncompressed leaves.
//! Each file appears complete, and the file with the anchor appears last. Only the user of the process can read them.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use super::LISTS_KEPT;
use super::body::StoredAnchor;
use super::leaf_lists::{LeafLists, ListFault};
use super::log::AnchorLog;
use crate::domain::anchor::encode_leaves;
use crate::files::{NewFile, read_regular};
use crate::ports::fault::StoreFault;

/// Number of hash digits in a file name whose usual form is taken by an anchor that a restore discarded.
const HASH_DIGITS: usize = 8;

/// Maximum size of an anchor file in bytes, larger than any real anchor.
const ANCHOR_BYTES_MAX: u64 = 1 << 20;

/// Why the files cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum FolderFault {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// A list of leaves cannot be read.
    #[error("the leaves cannot be read")]
    List(#[from] ListFault),
    /// A file cannot be written.
    #[error("{} cannot be written", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A folder with anchor files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnchorFolder(PathBuf);

impl AnchorFolder {
    /// Uses an existing folder.
    pub const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Writes the missing files of recent anchors whose leaves are still kept.
    ///
    /// # Errors
    /// [`FolderFault`] for the first file that cannot be written. A later call writes the missing files.
    pub async fn write_missing(&self, log: &AnchorLog, lists: &LeafLists) -> Result<(), FolderFault> {
        let mut last = log.list(None, LISTS_KEPT).await?;
        last.reverse();
        for anchor in &last {
            self.write(anchor, lists).await?;
        }
        Ok(())
    }

    async fn write(&self, anchor: &StoredAnchor, lists: &LeafLists) -> Result<(), FolderFault> {
        let line = serde_json::to_string(&anchor.signed).expect("strings always serialize to JSON");
        let line = format!("{line}\n");
        let hash: String = anchor.signed.hash().to_string().chars().take(HASH_DIGITS).collect();
        let names = [
            format!("anchor-{:06}", anchor.statement.sequence),
            format!("anchor-{:06}-{hash}", anchor.statement.sequence),
        ];
        for name in names {
            let path = self.0.join(format!("{name}.json"));
            match read(path.clone()).await {
                Ok(Some(content)) if content == line.as_bytes() => return Ok(()),
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.write_leaves(&name, anchor, lists).await?;
                    let mut file = AnchorFile::create(path.clone()).await?;
                    file.add(line.into_bytes()).await?;
                    return file.finish().await;
                }
                Err(source) => return Err(FolderFault::File { path, source }),
            }
        }
        let (path, source) = (self.0.clone(), io::Error::other("other files have the names of this anchor"));
        Err(FolderFault::File { path, source })
    }

    async fn write_leaves(
        &self,
        name: &str,
        anchor: &StoredAnchor,
        lists: &LeafLists,
    ) -> Result<(), FolderFault> {
        let mut file = AnchorFile::create(self.0.join(format!("{name}.leaves"))).await?;
        let mut reader = lists.read(&anchor.list, anchor.statement.leaves.parts);
        while let Some(leaves) = reader.next_part().await? {
            file.add(encode_leaves(&leaves)).await?;
        }
        file.finish().await
    }
}

/// Returns the content of a file; `None` if it does not exist.
async fn read(path: PathBuf) -> io::Result<Option<Vec<u8>>> {
    // A file that is too large cannot be the expected one.
    let read = move || match read_regular(&path, ANCHOR_BYTES_MAX) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(Some(Vec::new())),
        Err(error) => Err(error),
    };
    spawn_blocking(read).await.map_err(io::Error::other)?
}

struct AnchorFile {
    path: PathBuf,
    file: NewFile,
}

impl AnchorFile {
    async fn create(path: PathBuf) -> Result<Self, FolderFault> {
        let create = {
            let path = path.clone();
            move || NewFile::create(&path)
        };
        let file = blocking(&path, create).await?;
        Ok(Self { path, file })
    }

    async fn add(&mut self, bytes: Vec<u8>) -> Result<(), FolderFault> {
        let file = self.file.file().try_clone();
        blocking(&self.path, move || file?.write_all(&bytes)).await
    }

    async fn finish(self) -> Result<(), FolderFault> {
        let Self { path, file } = self;
        blocking(&path, move || file.publish()).await
    }
}

async fn blocking<T: Send + 'static>(
    path: &Path,
    operation: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, FolderFault> {
    let ended = spawn_blocking(operation).await.map_err(io::Error::other).and_then(|done| done);
    ended.map_err(|source| FolderFault::File { path: path.to_owned(), source })
}
