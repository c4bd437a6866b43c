//! The embedded store fulfills the contract of every port.

use std::path::Path;
use std::sync::Arc;

use postonce_shared::store::enqueue;
use postonce_shared::testing::prelude::*;

/// The cases of one port share a folder, which is removed after its test.
fn stores(_: &str) -> impl AsyncFn() -> Store {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    async move || open(&folder.path().join("postonce.db"))
}

fn open(path: &Path) -> Store {
    SqliteStore::open(path, enqueue(1, Arc::default(), seal()), Arc::new(SystemWorld::new()))
        .expect("the file can be opened")
}

postonce_conformance::contracts!(stores);
