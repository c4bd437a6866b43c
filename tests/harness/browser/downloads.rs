//! Downloads of files from a page.

use std::fs;

use serde_json::json;

use super::{Browser, done};

/// Suffix of the names of incomplete files.
const INCOMPLETE: &str = ".crdownload";

impl Browser {
    /// Clicks on an element, as [`Self::click`] does, and waits until the download that it starts is complete. Returns the name
    /// and the content of the file.
    pub async fn download(&self, css: &str) -> (String, Vec<u8>) {
        let directory = tempfile::tempdir_in(self.profile.path()).expect("a directory");
        let behavior = json!({"behavior": "allow", "downloadPath": directory.path()});
        done("the place of downloads", self.session.cdp("Browser.setDownloadBehavior", behavior).await);
        self.click(css).await;
        self.until(&format!("the file of {css}"), async || {
            let files: Vec<_> = fs::read_dir(directory.path()).expect("a directory").flatten().collect();
            let [file] = files.as_slice() else { return Err(format!("{} files", files.len())) };
            let name = file.file_name().into_string().expect("names are in UTF-8");
            if name.ends_with(INCOMPLETE) {
                return Err(format!("{name} is not complete"));
            }
            Ok((name, fs::read(file.path()).map_err(|fault| fault.to_string())?))
        })
        .await
    }
}
