//! The XML samples: the schemas and the program agree with them. The file `expected.toml` beside the
//! invalid samples contains the message of the program. Only the program can detect the errors of `refused`
//! samples.

use std::fs;

use actix_web::web::Bytes;
use postonce_shared::messaging::xml::{self, Element, Node, XmlLimits};
use postonce_tests::contracts::{schema_of, validate_xml};
use postonce_tests::dialects::Dialect;
use postonce_tests::samples::{self, XmlSample, xml_samples};
use postonce_web::api::batch_upload::ControlTotals;
use postonce_web::api::translate::{self, InboundDocument};
use postonce_web::error::ApiError;
use postonce_web::formats::items::{Items as _, Parsed, Xml, is_control};
use postonce_web::formats::table::{parse, read_root};
use postonce_web::formats::{FORMATS, Shape};

/// Reads a sample as the program does: a request and the items of a batch are translated; an answer is parsed, written
/// again, and must be the same.
fn read(sample: &XmlSample) -> Result<(), String> {
    let limits = XmlLimits::default();
    let document = || InboundDocument::of(sample.format, Bytes::from(sample.body.clone()), limits);
    let Some(shape) = sample.shape else { return read_batch(&sample.body, &limits) };
    let translated = match shape {
        Shape::Submission(kind) => translate::instruction(kind, &document()).map(drop),
        Shape::Opening => translate::account_terms(&document()).map(drop),
        Shape::Change => translate::account_change(&document()).map(drop),
        Shape::Transaction
        | Shape::TransactionPage
        | Shape::Account
        | Shape::AccountPage
        | Shape::Problem => return read_answer(sample),
    };
    translated.map_err(|error| message_of(&error))
}

fn read_batch(body: &[u8], limits: &XmlLimits) -> Result<(), String> {
    let mut items = Xml::new(body, limits).map_err(|broken| broken.to_string())?;
    while let Some(item) = items.next().map_err(|broken| broken.to_string())? {
        match item.map_err(|error| message_of(&error))? {
            Parsed::Plain(_) => {}
            Parsed::Members(members) if is_control(&members) => {
                drop(ControlTotals::of_record(members).map_err(|error| message_of(&error))?);
            }
            Parsed::Members(members) => {
                drop(translate::batch_item(members).map_err(|error| message_of(&error))?);
            }
        }
    }
    Ok(())
}

fn read_answer(sample: &XmlSample) -> Result<(), String> {
    let table = sample.table;
    let root = parse(&sample.body, &XmlLimits::default()).map_err(|error| message_of(&error))?;
    let (members, violations) = read_root(table, &root).map_err(|error| message_of(&error))?.into_object("");
    if !violations.is_empty() {
        let lines = violations.iter().map(|it| format!("{} {}", it.field, it.message));
        return Err(lines.collect::<Vec<_>>().join("\n"));
    }
    let again = xml::write(&table.write(&members));
    assert_eq!(again, xml::write(&without_layout(root)), "{}", sample.place());
    Ok(())
}

/// The whole text of a refusal.
fn message_of(error: &ApiError) -> String {
    let problem = error.problem();
    let violations = problem.violations.iter().map(|it| format!("{} {}", it.field, it.message));
    std::iter::once(problem.detail.clone()).chain(violations).collect::<Vec<_>>().join("\n")
}

/// Removes the white space between elements, and declarations that only give the location of the schema.
fn without_layout(mut element: Element) -> Element {
    let has_elements = element.elements().next().is_some();
    element.children.retain(|child| match child {
        Node::Text(text) => !(has_elements && xml::is_white_space(text)),
        Node::Element(_) | Node::Serialized(_) => true,
    });
    for child in &mut element.children {
        if let Node::Element(inner) = child {
            *inner = without_layout(inner.clone());
        }
    }
    // An empty table contains only the line end between its tags.
    if !has_elements && element.text().is_some_and(xml::is_white_space) {
        element.children.clear();
    }
    element
}

#[test]
fn the_program_agrees_with_the_folders_of_the_samples() {
    for sample in xml_samples() {
        let (place, read) = (sample.place(), read(&sample));
        if sample.folder == "valid" {
            assert_eq!(read, Ok(()), "{place}");
            continue;
        }
        let path = samples::directory(sample.format, sample.table).join(sample.folder).join("expected.toml");
        let table = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let table: toml::Table = table.parse().expect("a table of samples");
        let expected = table.get(&sample.name).and_then(|it| it.get("says")?.as_str());
        let expected = expected.unwrap_or_else(|| panic!("nothing is expected of {place}"));
        let message = read.expect_err(&format!("{place} is accepted"));
        assert!(message.lines().any(|line| line.starts_with(expected)), "{place}: {message}");
    }
}

#[test]
fn the_schemas_agree_with_the_folders_of_the_samples() {
    for sample in xml_samples() {
        let schema = schema_of(sample.table.namespace).expect("every namespace has a schema");
        let checked = validate_xml(schema, &sample.body);
        assert_eq!(checked.is_ok(), sample.folder != "invalid", "{}: {checked:?}", sample.place());
    }
}

#[test]
fn every_format_has_samples_and_a_client() {
    let all: Vec<(&str, &str)> = FORMATS.iter().map(|it| (it.name(), it.media_type())).collect();
    let sampled = samples::FORMATS.map(|format| (format.name, format.media_type));
    assert!(all.iter().skip(1).eq(&sampled), "samples are of {sampled:?}, formats of XML are of {all:?}");
    let spoken = Dialect::ALL.map(Dialect::media_type);
    assert!(
        all.iter().map(|(_, media_type)| *media_type).eq(spoken),
        "clients speak {spoken:?}, formats are {all:?}"
    );
    for table in samples::FORMATS.iter().flat_map(|format| samples::SHAPES.map(|shape| format.of(shape))) {
        assert!(schema_of(table.namespace).is_some(), "{} has no schema", table.namespace);
    }
}

/// Samples in an unknown folder would not be checked.
#[test]
fn every_folder_of_samples_has_its_document() {
    for format in samples::FORMATS {
        let known: Vec<&str> = samples::documents(format).iter().map(|(_, table)| table.root).collect();
        let folder = samples::directory(format, format.problem);
        for entry in fs::read_dir(folder.parent().expect("it has one")).expect("the samples can be listed") {
            let name = entry.expect("a folder can be listed").file_name().to_string_lossy().into_owned();
            assert!(known.contains(&name.as_str()), "{name} is not a document of {}", format.name);
        }
    }
}
