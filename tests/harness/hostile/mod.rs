//! Hostile input: properties that hold for any input, with one function for each input of the bank.
//!
//! Each function takes any bytes and panics when a property is violated: the bank does not panic, an accepted value can be
//! written and read back unchanged, a refusal is short and names the error, and memory does not grow far beyond the input.
//! Three callers share the functions: `cargo fuzz` generates bytes (`tests/fuzz`), the property tests generate valid values
//! of every kind (`properties.rs`), and `cargo test` replays the committed corpus, so corpus and targets stay up to date.

pub mod amount;
pub mod cursor;
pub mod envelope;
pub mod headers;
pub mod json_request;
pub mod legacy_body;
pub mod path;
pub mod payload;
pub mod peer_message;
pub mod refusal;
pub mod settings;
pub mod soap_request;
pub mod wwi_request;
pub mod xml_request;
pub mod xml_tree;

#[cfg(test)]
mod properties;

/// A kind of input.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the fuzz target and of its corpus.
    pub name: &'static str,
    /// The check, which panics when a property is violated.
    pub check: fn(&[u8]),
}

/// All kinds of input.
pub const TARGETS: [Target; 14] = [
    Target { name: "amount", check: amount::check },
    Target { name: "cursor", check: cursor::check },
    Target { name: "envelope", check: envelope::check },
    Target { name: "headers", check: headers::check },
    Target { name: "json_request", check: json_request::check },
    Target { name: "legacy_body", check: legacy_body::check },
    Target { name: "path", check: path::check },
    Target { name: "payload", check: payload::check },
    Target { name: "peer_message", check: peer_message::check },
    Target { name: "settings", check: settings::check },
    Target { name: "soap_request", check: soap_request::check },
    Target { name: "wwi_request", check: wwi_request::check },
    Target { name: "xml_request", check: xml_request::check },
    Target { name: "xml_tree", check: xml_tree::check },
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::samples::xml_samples;
    use crate::workspace;

    /// Maximum size of a corpus file.
    const FILE_BYTES_MAX: usize = 8 * 1024;
    /// Maximum number of corpus files of one target.
    const FILES_MAX: usize = 100;

    fn fuzz() -> PathBuf {
        workspace::root().join("tests/fuzz")
    }

    #[test]
    fn the_corpus_violates_no_property() {
        for Target { name, check } in TARGETS {
            let directory = fuzz().join("corpus").join(name);
            let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
            let files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
            assert!(!files.is_empty() && files.len() <= FILES_MAX, "{} files of {name}", files.len());
            for file in files {
                let input = fs::read(&file).unwrap();
                assert!(input.len() <= FILE_BYTES_MAX, "{file:?} has {} bytes", input.len());
                // Printed before the check, because a stack overflow prints nothing.
                println!("{}", file.display());
                check(&input);
            }
        }
    }

    /// The fuzzer starts from the samples, which `tests/fuzz/seeds.sh` copies to the corpus.
    #[test]
    fn the_corpus_has_the_samples() {
        for (target, wanted) in [("xml_request", "xml"), ("wwi_request", "wwi"), ("xml_tree", "")] {
            let directory = fuzz().join("corpus").join(target);
            let mut missing: Vec<String> = fs::read_dir(&directory)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .filter(|name| name.starts_with("sample-"))
                .collect();
            for sample in xml_samples() {
                let is_seed = if wanted.is_empty() {
                    sample.folder == "valid"
                } else {
                    sample.is_request() && sample.format.name == wanted
                };
                if is_seed {
                    let name = format!("sample-{}.xml", sample.place().replace('/', "-"));
                    let seed = fs::read(directory.join(&name)).unwrap_or_default();
                    assert!(
                        seed == sample.body,
                        "{target}/{name} is not the sample: run tests/fuzz/seeds.sh"
                    );
                    missing.retain(|other| *other != name);
                }
            }
            assert!(
                missing.is_empty(),
                "files without a sample in {target}: {missing:?}; run tests/fuzz/seeds.sh"
            );
        }
    }

    #[test]
    fn every_kind_of_input_has_a_fuzz_target() {
        let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
        for Target { name, .. } in TARGETS {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not in the manifest");
            let target = fs::read_to_string(fuzz().join("fuzz_targets").join(format!("{name}.rs"))).unwrap();
            assert!(
                target.contains(&format!("hostile::{name}::check")),
                "the target {name} calls another check"
            );
        }
        let targets = fs::read_dir(fuzz().join("fuzz_targets")).unwrap().count();
        assert_eq!(targets, TARGETS.len(), "a target without a corpus in `cargo test`");
    }
}
