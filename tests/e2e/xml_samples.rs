//! The samples of XML: the schemas, the program and the samples agree. Beside the invalid ones stands what
//! the program has to say. What is `refused` is beyond a schema, so only the program sees it.

use std::fs;

use actix_web::web::Bytes;
use postonce_shared::xml::{self, Element, Node, XmlLimits};
use postonce_tests::contracts::{schema_of, validate_xml};
use postonce_tests::dialects::Dialect;
use postonce_tests::samples::{self, XmlSample, xml_samples};
use postonce_web::error::ApiError;
use postonce_web::formats::table::{parse, read_root};
use postonce_web::formats::{FORMATS, Shape};
use postonce_web::translate::{self, InboundDocument};

/// Reads a sample as the program does: requests are translated; answers are read into their members,
/// written again, and must be the same.
fn read(sample: &XmlSample) -> Result<(), String> {
    let limits = XmlLimits::default();
    let document = || InboundDocument::of(sample.format, Bytes::from(sample.body.clone()), limits);
    let translated = match sample.shape {
        Shape::Submission(kind) => translate::instruction(kind, &document()).map(drop),
        Shape::Opening => translate::account_terms(&document()).map(drop),
        Shape::Change => translate::account_change(&document()).map(drop),
        Shape::Transaction
        | Shape::TransactionPage
        | Shape::Account
        | Shape::AccountPage
        | Shape::Problem => return read_answer(sample),
    };
    translated.map_err(|error| told(&error))
}

fn read_answer(sample: &XmlSample) -> Result<(), String> {
    let table = sample.format.of(sample.shape);
    let root = parse(&sample.body, &XmlLimits::default()).map_err(|error| told(&error))?;
    let (members, violations) = read_root(table, &root).map_err(|error| told(&error))?.into_object("");
    if !violations.is_empty() {
        let lines = violations.iter().map(|it| format!("{} {}", it.field, it.message));
        return Err(lines.collect::<Vec<_>>().join("\n"));
    }
    let again = xml::write(&table.write(&members));
    assert_eq!(again, xml::write(&without_layout(root)), "{}", sample.place());
    Ok(())
}

/// All that a refusal says.
fn told(error: &ApiError) -> String {
    let problem = error.problem();
    let violations = problem.violations.iter().map(|it| format!("{} {}", it.field, it.message));
    std::iter::once(problem.detail.clone()).chain(violations).collect::<Vec<_>>().join("\n")
}

/// Without the white space between elements, and the declarations of what only tells where the schema is.
fn without_layout(mut element: Element) -> Element {
    let has_elements = element.elements().next().is_some();
    element.children.retain(|child| match child {
        Node::Text(text) => !(has_elements && xml::is_white_space(text)),
        Node::Element(_) | Node::Written(_) => true,
    });
    for child in &mut element.children {
        if let Node::Element(inner) = child {
            *inner = without_layout(inner.clone());
        }
    }
    // An empty table has nothing but the line end between its tags.
    if !has_elements && element.text().is_some_and(xml::is_white_space) {
        element.children.clear();
    }
    element
}

#[test]
fn the_program_reads_the_samples_as_they_are_filed() {
    for sample in xml_samples() {
        let (place, read) = (sample.place(), read(&sample));
        if sample.folder == "valid" {
            assert_eq!(read, Ok(()), "{place}");
            continue;
        }
        let path = samples::directory(sample.format, sample.shape).join(sample.folder).join("expected.toml");
        let table = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let table: toml::Table = table.parse().expect("a table of samples");
        let expected = table.get(&sample.name).and_then(|it| it.get("says")?.as_str());
        let expected = expected.unwrap_or_else(|| panic!("nothing is expected of {place}"));
        let told = read.expect_err(&format!("{place} is taken"));
        assert!(told.lines().any(|line| line.starts_with(expected)), "{place}: {told}");
    }
}

#[test]
fn the_schemas_take_the_samples_as_they_are_filed() {
    for sample in xml_samples() {
        let table = sample.format.of(sample.shape);
        let schema = schema_of(table.namespace).expect("every namespace has a schema");
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

/// A folder that nobody reads would be samples that nobody checks.
#[test]
fn every_folder_of_samples_has_its_document() {
    for format in samples::FORMATS {
        let known: Vec<&str> = samples::SHAPES.iter().map(|shape| format.of(*shape).root).collect();
        let folder = samples::directory(format, Shape::Problem);
        for entry in fs::read_dir(folder.parent().expect("it has one")).expect("the samples can be listed") {
            let name = entry.expect("a folder can be listed").file_name().to_string_lossy().into_owned();
            assert!(known.contains(&name.as_str()), "{name} is no document of {}", format.name);
        }
    }
}
