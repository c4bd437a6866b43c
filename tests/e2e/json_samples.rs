//! The JSON samples: the JSON Schema and the program agree with them. Each folder of samples has the name
//! of its definition. The file `expected.toml` beside the invalid samples contains the position of the
//! schema error and the message of the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use actix_web::web::Bytes;
use postonce_schemas::json;
use postonce_shared::messaging::xml::XmlLimits;
use postonce_shared::testing::prelude::*;
use postonce_tests::contracts::OpenApi;
use postonce_tests::workspace;
use postonce_web::api::translate::{self, InboundDocument};
use postonce_web::error::ApiError;
use postonce_web::formats::json::Json;
use serde_json::{Value, json};

/// Parses a body as the program does. An answer is returned as it would be written again.
type Reader = fn(&[u8]) -> Result<Option<Value>, String>;

/// An answer: parsed into its struct, and written again.
macro_rules! answer {
    ($body:ident, $name:ident) => {{
        let read = serde_json::from_slice::<json::$name>($body).map_err(|error| error.to_string())?;
        Ok(Some(serde_json::to_value(read).expect("an answer can be written")))
    }};
}

const DEFINITIONS: &[(&str, Reader)] = &[
    ("TransactionRequest", |body| request(translate::instruction(TransactionKind::Deposit, &document(body)))),
    ("OpenAccountRequest", |body| request(translate::account_terms(&document(body)))),
    ("ChangeAccountRequest", |body| request(translate::account_change(&document(body)))),
    ("GateChange", |body| request(translate::gate_change(&document(body), today()))),
    ("Account", |body| answer!(body, Account)),
    ("AccountPage", |body| answer!(body, AccountPage)),
    ("Transaction", |body| answer!(body, Transaction)),
    ("TransactionPage", |body| answer!(body, TransactionPage)),
    ("Problem", |body| answer!(body, Problem)),
    ("Gate", |body| answer!(body, Gate)),
    ("GateChanged", |body| answer!(body, GateChanged)),
];

fn document(body: &[u8]) -> InboundDocument {
    InboundDocument::of(&Json, Bytes::copy_from_slice(body), XmlLimits::default())
}

fn request<T>(translated: Result<T, ApiError>) -> Result<Option<Value>, String> {
    translated.map(|_| None).map_err(|error| {
        let problem = error.problem();
        let violations = problem.violations.iter().map(|it| format!("{} {}", it.field, it.message));
        std::iter::once(problem.detail.clone()).chain(violations).collect::<Vec<_>>().join("\n")
    })
}

fn today() -> Timestamp {
    Timestamp::parse("2026-11-21T08:00:00Z").expect("a time")
}

/// The samples in a folder, by name.
fn samples(definition: &str, folder: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = directory().join(definition).join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("a sample can be listed").path());
    let samples = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let read = |path: PathBuf| {
        let name = path.file_stem().expect("a sample has a name").to_string_lossy().into_owned();
        (name, fs::read(&path).expect("a sample can be read"))
    };
    samples.map(read).collect()
}

fn directory() -> PathBuf {
    workspace::root().join("schemas/samples/json")
}

fn validator(definition: &str) -> jsonschema::Validator {
    let mut schema: Value = serde_json::from_str(postonce_schemas::JSON_SCHEMA).expect("the schema is JSON");
    assert!(schema.pointer(&format!("/$defs/{definition}")).is_some(), "no definition {definition}");
    let members = schema.as_object_mut().expect("the schema is an object");
    members.insert("$ref".to_owned(), json!(format!("#/$defs/{definition}")));
    jsonschema::options().should_validate_formats(true).build(&schema).expect("it is a schema")
}

#[test]
fn every_valid_sample_is_accepted_by_the_schema_and_by_the_program() {
    let plain = OpenApi::parse(postonce_schemas::OPENAPI_JSON);
    for (definition, read) in DEFINITIONS {
        let validator = validator(definition);
        let samples = samples(definition, "valid");
        assert!(!samples.is_empty(), "{definition}");
        for (name, body) in samples {
            let value: Value = serde_json::from_slice(&body).expect("a sample is JSON");
            let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "the schema refuses {definition}/valid/{name}: {errors:?}");
            let errors = plain.errors(&plain.schema(definition), &value);
            assert!(errors.is_empty(), "the plain document refuses {definition}/valid/{name}: {errors:?}");
            match read(&body) {
                Err(error) => panic!("the program refuses {definition}/valid/{name}: {error}"),
                Ok(Some(again)) => assert_eq!(again, value, "{definition}/valid/{name}"),
                Ok(None) => {}
            }
        }
    }
}

#[test]
fn every_invalid_sample_is_refused_by_the_schema_and_by_the_program_for_the_same_reason() {
    for (definition, read) in DEFINITIONS {
        let validator = validator(definition);
        let samples = samples(definition, "invalid");
        let path = directory().join(definition).join("invalid/expected.toml");
        let expected = fs::read_to_string(path).expect("the expectations are beside the samples");
        let expected: toml::Table = expected.parse().expect("a table of samples");
        assert!(expected.keys().eq(samples.keys()), "{definition}: samples and expectations differ");
        for (name, body) in samples {
            let text = |key: &str| expected[&name][key].as_str().expect("a text").to_owned();
            let value: Value = serde_json::from_slice(&body).expect("a sample is JSON");
            let at: Vec<String> =
                validator.iter_errors(&value).map(|error| error.instance_path().to_string()).collect();
            assert!(at.contains(&text("at")), "{definition}/invalid/{name}: the schema has errors at {at:?}");
            let error = read(&body).expect_err(&format!("{definition}/invalid/{name} is accepted"));
            assert!(error.contains(&text("says")), "{definition}/invalid/{name}: {error:?}");
        }
    }
}

/// Samples in an unknown folder would not be checked.
#[test]
fn every_folder_of_samples_has_its_definition() {
    let folders = fs::read_dir(directory()).expect("the samples can be listed");
    for folder in folders {
        let name = folder.expect("a folder can be listed").file_name().to_string_lossy().into_owned();
        assert!(DEFINITIONS.iter().any(|(definition, _)| *definition == name), "{name} is not a definition");
    }
}
