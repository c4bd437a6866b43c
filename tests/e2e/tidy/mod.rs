//! Rules that Clippy cannot check: allowed dependencies between modules and packages, file sizes, and leftovers.

mod imports;
mod packages;

use std::fs;
use std::path::{Path, PathBuf};

use postonce_shared::domain::transaction::TransactionStatus;
use postonce_tests::workspace;

/// Maximum number of lines of a source file.
const FILE_LINES_MAX: usize = 800;

/// A source file of the workspace.
struct Source {
    /// The path from the root of the workspace, with `/`.
    path: String,
    text: String,
}

impl Source {
    /// Whether its path has one of these prefixes.
    fn is_in(&self, starts: &[&str]) -> bool {
        starts.iter().any(|start| self.path.starts_with(start))
    }

    /// The lines with their numbers, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index.saturating_add(1), line))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// Whether the file is compiled only for tests.
    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/") || self.is_in(&["tests/"])
    }

    /// The code before its tests, which are at the end of the file.
    fn production_code(&self) -> impl Iterator<Item = (usize, &str)> {
        let code = if self.is_test() { None } else { Some(self.code()) };
        code.into_iter().flatten().take_while(|(_, line)| line.trim() != "#[cfg(test)]")
    }
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for part in ["shared", "schemas", "worker", "web", "tests"] {
        collect(&workspace::root().join(part), &mut found);
    }
    assert!(found.len() > 40, "the sources are found");
    found
}

fn collect(directory: &Path, found: &mut Vec<Source>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .expect("a directory can be read")
        .map(|entry| entry.expect("an entry can be read").path())
        .collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        if path.is_dir() && !["node_modules", "target", ".venv"].contains(&name.as_str()) {
            collect(&path, found);
        } else if name.ends_with(".rs") {
            let relative = path.strip_prefix(workspace::root()).expect("it is in the workspace");
            let text = fs::read_to_string(&path).expect("a source can be read");
            found.push(Source { path: relative.to_string_lossy().replace('\\', "/"), text });
        }
    }
}

/// Fails and lists every line of code that contains one of the words, in the files for which `applies` is
/// true.
fn refuse(why: &str, words: &[&str], applies: impl Fn(&Source) -> bool) {
    let sources = sources();
    let lines = sources.iter().filter(|source| applies(source));
    report(why, words, lines.flat_map(|source| source.code().map(move |line| (source, line))));
}

/// As [`refuse`], without the code of tests.
fn refuse_in_production(why: &str, words: &[&str], applies: impl Fn(&Source) -> bool) {
    let sources = sources();
    let lines = sources.iter().filter(|source| applies(source));
    report(why, words, lines.flat_map(|source| source.production_code().map(move |line| (source, line))));
}

fn report<'a>(why: &str, words: &[&str], lines: impl Iterator<Item = (&'a Source, (usize, &'a str))>) {
    let found: Vec<String> = lines
        .filter(|(_, (_, line))| words.iter().any(|word| line.contains(word)))
        .map(|(source, (number, line))| format!("{}:{number}: {}", source.path, line.trim()))
        .collect();
    assert!(found.is_empty(), "{why}:\n{}", found.join("\n"));
}

/// This file contains the refused words.
fn is_elsewhere(source: &Source) -> bool {
    source.path != "tests/e2e/tidy/mod.rs"
}

#[test]
fn the_domain_is_pure() {
    refuse_in_production("`domain` uses only std and small value crates", &["tokio", "async "], |source| {
        source.is_in(&["shared/src/domain/"])
    });
}

#[test]
fn only_adapters_name_a_store() {
    refuse_in_production("SQLite stays in its adapter", &["rusqlite"], |source| {
        !source.is_in(&["shared/src/adapters/sqlite/"])
    });
    refuse_in_production(
        "Azure stays in its adapter",
        &[
            "azure_core::",
            "azure_data_tables::",
            "azure_storage::",
            "azure_storage_queues::",
            "azure_storage_blobs::",
        ],
        |source| !source.is_in(&["shared/src/adapters/azure/"]),
    );
}

#[test]
fn below_web_only_the_connections_of_processes_use_the_http_server() {
    refuse("the server stays at the edge of `process`", &["actix"], |source| {
        source.is_in(&["shared/", "worker/"])
            && !source.is_in(&["shared/process/src/http", "shared/process/tests/"])
    });
}

#[test]
fn programs_print_only_through_what_neither_panics_nor_blocks() {
    let why = "these macros panic if the reader has closed the output: use `command_output`, or the log";
    refuse_in_production(why, &["println!(", "print!("], |source| {
        source.is_in(&["shared/src/", "shared/process/src/", "schemas/src/", "worker/src/", "web/src/"])
    });
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<String> = sources()
        .iter()
        .map(|source| (source.text.lines().count(), &source.path))
        .filter(|(lines, _)| *lines > FILE_LINES_MAX)
        .map(|(lines, path)| format!("{path}: {lines} lines"))
        .collect();
    assert!(
        long.is_empty(),
        "more than {FILE_LINES_MAX} lines; split the files that have two subjects:\n{}",
        long.join("\n")
    );
}

#[test]
fn no_leftovers_and_no_skipped_tests() {
    let words = ["FIXME", "XXX:", "todo!(", "unimplemented!(", "#[ignore", "dbg!("];
    refuse("finish it, or say why in an issue", &words, is_elsewhere);
    let in_comments: Vec<String> = sources()
        .iter()
        .filter(|source| is_elsewhere(source) && source.text.contains("FIXME"))
        .map(|source| source.path.clone())
        .collect();
    assert!(in_comments.is_empty(), "leftover FIXME in {in_comments:?}");
}

#[test]
fn a_lint_exception_is_an_expectation_with_a_reason() {
    refuse("write #[expect(lint, reason = …)]", &["#[allow(", "#![allow("], is_elsewhere);
    let unreasoned: Vec<String> = sources()
        .iter()
        .filter(|source| is_elsewhere(source))
        .flat_map(|source| {
            let expectations = source.text.match_indices("[expect(").map(|(start, _)| start);
            expectations
                .filter(|start| {
                    let rest = source.text.get(*start..).unwrap_or_default();
                    let attribute = rest.split(")]").next().unwrap_or_default();
                    !attribute.contains("reason")
                })
                .map(|start| format!("{} at byte {start}", source.path))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(unreasoned.is_empty(), "an expectation without a reason: {unreasoned:?}");
}

#[test]
fn no_source_contains_a_path_of_a_developers_machine() {
    let places = ["/home/", "/root/", "/Users/", "C:\\"];
    refuse("sources run on every machine", &places, is_elsewhere);
}

#[test]
fn the_readme_has_the_status_table_of_the_code() {
    let header = TransactionStatus::ALL.map(TransactionStatus::code).join(" | ");
    let mut table = format!("| from \\ to | {header} |\n| --- | --- | --- | --- |\n");
    for from in TransactionStatus::ALL {
        let may = TransactionStatus::ALL.map(|to| if from.may_become(to) { "yes" } else { "no" });
        table.push_str(&format!("| {} | {} |\n", from.code(), may.join(" | ")));
    }
    let readme = fs::read_to_string(workspace::root().join("README.md")).unwrap();
    assert!(readme.contains(&table), "README.md has another table than\n{table}");
}
