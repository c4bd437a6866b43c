//! The samples of direct producers: the schema and the program agree with them.

use std::fs;
use std::path::PathBuf;

use postonce_shared::messaging::direct_producers;
use postonce_tests::prelude::*;

const SCHEMA: &str = "xsd/user-account-transaction.xsd";
const SAMPLES: &str = "schemas/samples/user-account-transaction";

/// All samples, each with whether it is valid.
fn samples() -> Vec<(PathBuf, bool)> {
    let mut samples = Vec::new();
    for (folder, valid) in [("valid", true), ("invalid", false)] {
        let folder = workspace::root().join(SAMPLES).join(folder);
        let entries = fs::read_dir(&folder).expect("the samples can be listed");
        let paths = entries.map(|entry| entry.expect("a sample can be listed").path());
        let found: Vec<(PathBuf, bool)> = paths.map(|path| (path, valid)).collect();
        assert!(found.len() >= 6, "samples are missing in {}", folder.display());
        samples.extend(found);
    }
    samples
}

#[test]
fn the_program_agrees_with_the_folders_of_the_samples() {
    for (path, valid) in samples() {
        let body = fs::read(&path).expect("a sample can be read");
        let read = direct_producers::parse(&body)
            .unwrap_or_else(|| panic!("{} has an unknown form", path.display()));
        assert_eq!(read.is_ok(), valid, "{}: {read:?}", path.display());
    }
}

#[test]
fn the_schema_agrees_with_the_folders_of_the_samples() {
    for (path, valid) in samples() {
        if path.extension().is_some_and(|extension| extension == "xml") {
            let document = fs::read(&path).expect("a sample can be read");
            let checked = validate_xml(SCHEMA, &document);
            assert_eq!(checked.is_ok(), valid, "{}: {checked:?}", path.display());
        }
    }
}
