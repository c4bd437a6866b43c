//! The XML samples in `schemas/samples`. Each format has a directory with one directory per document, which contains `valid`,
//! `invalid` and, for errors that only the program detects, `refused`.

use std::fs;
use std::path::{Path, PathBuf};

use postonce_shared::domain::instruction::TransactionKind;
use postonce_web::formats::table::{Table, Tables};
use postonce_web::formats::{Shape, wwi, xml};

use crate::workspace;

/// Formats that have samples.
pub const FORMATS: [&Tables; 2] = [&xml::CANONICAL, &wwi::WWI];

/// All kinds of documents.
pub const SHAPES: [Shape; 8] = [
    Shape::Submission(TransactionKind::Deposit),
    Shape::Opening,
    Shape::Change,
    Shape::Transaction,
    Shape::TransactionPage,
    Shape::Account,
    Shape::AccountPage,
    Shape::Problem,
];

/// A sample document.
#[derive(Debug, Clone)]
pub struct XmlSample {
    /// The format.
    pub format: &'static Tables,
    /// The kind of document; `None` for a batch.
    pub shape: Option<Shape>,
    /// The table of the document.
    pub table: &'static Table,
    /// Its directory: `valid`, `invalid` or `refused`.
    pub folder: &'static str,
    /// Its file name without `.xml`.
    pub name: String,
    /// The content of the document.
    pub body: Vec<u8>,
}

impl XmlSample {
    /// Returns the path of the sample relative to all samples.
    pub fn place(&self) -> String {
        let Self { format, table, folder, name, .. } = self;
        format!("{}/{}/{folder}/{name}", format.name, table.root)
    }

    /// Returns whether the document is the body of a single request.
    pub const fn is_request(&self) -> bool {
        matches!(self.shape, Some(Shape::Submission(_) | Shape::Opening | Shape::Change))
    }
}

/// Returns the kinds of documents of a format with their tables. Only the canonical XML has batches.
pub fn documents(format: &'static Tables) -> Vec<(Option<Shape>, &'static Table)> {
    let batch = (format.name == xml::CANONICAL.name).then_some((None, &xml::BATCH));
    SHAPES.into_iter().map(|shape| (Some(shape), format.of(shape))).chain(batch).collect()
}

/// Returns the directory of the samples of a document.
pub fn directory(format: &Tables, table: &Table) -> PathBuf {
    workspace::root().join("schemas/samples").join(format.name).join(table.root)
}

/// Returns all samples, sorted by name.
///
/// # Panics
/// When a kind of document has no valid or no invalid samples.
pub fn xml_samples() -> Vec<XmlSample> {
    let mut samples = Vec::new();
    for format in FORMATS {
        for (shape, table) in documents(format) {
            for folder in ["valid", "invalid", "refused"] {
                let path = directory(format, table).join(folder);
                let names = names(&path);
                assert!(folder == "refused" || names.len() >= 2, "samples are missing in {}", path.display());
                samples.extend(names.into_iter().map(|name| {
                    let body = fs::read(path.join(format!("{name}.xml"))).expect("a sample can be read");
                    XmlSample { format, shape, table, folder, name, body }
                }));
            }
        }
    }
    samples
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let files = entries.map(|entry| entry.expect("a sample can be listed").file_name());
    let names = files.filter_map(|name| Some(name.to_str()?.strip_suffix(".xml")?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
