//! The samples of direct producers: the schema and the program agree with them.

use std::fs;
use std::path::PathBuf;

use postonce_shared::messaging::direct_producers;
use postonce_tests::prelude::*;

const SCHEMA: &str = "xsd/user-account-transaction.xsd";
const SAMPLES: &str = "schemas/samples/user-account-transaction";

/// What schema and program say about the samples of a folder.
const FOLDERS: [(&str, bool, bool); 4] = [
    ("valid", true, true),
    ("invalid", false, false),
    // A schema cannot express the rule.
    ("refused", true, false),
    // The program also accepts what the schema does not describe.
    ("accepted", false, true),
];

struct Sample {
    path: PathBuf,
    matches_schema: bool,
    is_accepted: bool,
}

fn samples() -> Vec<Sample> {
    let of_folder = |(folder, matches_schema, is_accepted): (&str, bool, bool)| {
        let folder = workspace::root().join(SAMPLES).join(folder);
        let entries = fs::read_dir(&folder).expect("the samples can be listed");
        let paths: Vec<PathBuf> =
            entries.map(|entry| entry.expect("a sample can be listed").path()).collect();
        assert!(paths.len() >= 2, "samples are missing in {}", folder.display());
        paths.into_iter().map(move |path| Sample { path, matches_schema, is_accepted })
    };
    FOLDERS.into_iter().flat_map(of_folder).collect()
}

#[test]
fn the_program_agrees_with_the_folders_of_the_samples() {
    for Sample { path, is_accepted, .. } in samples() {
        let body = fs::read(&path).expect("a sample can be read");
        let orders = direct_producers::parse(&body)
            .unwrap_or_else(|| panic!("{} has an unknown form", path.display()));
        assert_eq!(orders.iter().all(|it| it.order.is_ok()), is_accepted, "{}: {orders:?}", path.display());
    }
}

#[test]
fn the_schema_agrees_with_the_folders_of_the_samples() {
    for Sample { path, matches_schema, .. } in samples() {
        // A declaration of UTF-16 in a text in UTF-8 is no XML document for the validator.
        let is_document = path.extension().is_some_and(|extension| extension == "xml");
        if is_document && path.file_stem().is_some_and(|name| name != "declared-as-utf-16") {
            let document = fs::read(&path).expect("a sample can be read");
            let checked = validate_xml(SCHEMA, &document);
            assert_eq!(checked.is_ok(), matches_schema, "{}: {checked:?}", path.display());
        }
    }
}
