//! The Containerfile: what it copies, compiles and starts exists.

use std::collections::BTreeSet;
use std::path::Path;

use postonce_tests::prelude::*;

const FILE: &str = include_str!("../../../deploy/container/Containerfile");

/// An instruction and its arguments, on one line.
struct Instruction {
    name: String,
    arguments: String,
}

impl Instruction {
    fn words(&self) -> Vec<&str> {
        self.arguments.split_whitespace().collect()
    }

    /// The words without flags.
    fn operands(&self) -> Vec<&str> {
        self.words().into_iter().skip_while(|word| word.starts_with("--")).collect()
    }

    fn flag(&self, name: &str) -> Option<&str> {
        self.words().into_iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// The program and the arguments of a command in the form of JSON.
    fn command(&self) -> Vec<String> {
        let start = self.arguments.find('[').expect("the form of JSON: there is no shell");
        serde_json::from_str(self.arguments.split_at(start).1).expect("a list of texts")
    }
}

fn instructions() -> Vec<Instruction> {
    let lines: Vec<&str> = FILE.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let instruction = |line: &str| {
        let (name, arguments) = line.trim().split_once(' ')?;
        Some(Instruction { name: name.to_owned(), arguments: arguments.trim().to_owned() })
    };
    joined.lines().filter_map(instruction).collect()
}

fn all(name: &str) -> Vec<Instruction> {
    instructions().into_iter().filter(|instruction| instruction.name == name).collect()
}

/// The names of the stages.
fn stages() -> BTreeSet<String> {
    let name = |from: &Instruction| Some(from.arguments.split_once(" AS ")?.1.to_owned());
    all("FROM").iter().filter_map(name).collect()
}

#[test]
fn what_it_copies_exists() {
    let (root, stages) = (workspace::root(), stages());
    let mut copied = BTreeSet::new();
    for copy in all("COPY") {
        if let Some(stage) = copy.flag("--from") {
            assert!(stages.contains(stage), "{}", copy.arguments);
            continue;
        }
        let operands = copy.operands();
        let (_, sources) = operands.split_last().expect("a destination");
        for source in sources.iter().filter(|source| !source.starts_with("${FINISHED}")) {
            assert!(root.join(source).exists(), "{source}");
            copied.insert(source.trim_end_matches('/').to_owned());
        }
    }
    let workspace: toml::Table = deployment::read("Cargo.toml").parse().expect("a manifest");
    let members = workspace["workspace"]["members"].as_array().expect("members");
    for member in members.iter().filter_map(toml::Value::as_str) {
        let manifest = Path::new(member).join("Cargo.toml");
        let is_copied = copied.iter().any(|copied| manifest.starts_with(copied));
        assert!(is_copied, "Cargo needs the manifest of {member}");
    }
    for file in ["Cargo.lock", ".cargo"] {
        assert!(copied.contains(file), "{file}");
    }
}

#[test]
fn it_compiles_and_starts_the_programs() {
    let programs = [Binary::Web.name(), Binary::Worker.name()];
    let build = all("RUN").into_iter().find(|run| run.arguments.contains("cargo auditable build"));
    let build = build.expect("a build").arguments;
    for program in programs {
        assert!(build.contains(&format!("--package {program}")), "{build}");
    }
    assert!(build.contains("--profile dist") && build.contains("--locked"), "{build}");
    for (started, checked) in all("ENTRYPOINT").iter().zip(all("HEALTHCHECK")) {
        let (started, checked) = (started.command(), checked.command());
        let [program] = started.as_slice() else { panic!("no arguments, so that others can be added") };
        assert_eq!(checked, [program.as_str(), "health"]);
        let name = Path::new(program).strip_prefix("/usr/local/bin").expect("the folder of the programs");
        assert!(programs.iter().any(|program| Path::new(program) == name), "{program}");
    }
    assert_eq!((all("ENTRYPOINT").len(), all("HEALTHCHECK").len()), (2, 2));
    assert!(stages().is_superset(&["web".to_owned(), "worker".to_owned()].into()));
}

#[test]
fn it_has_the_version_of_rust_that_the_project_needs() {
    let workspace: toml::Table = deployment::read("Cargo.toml").parse().expect("a manifest");
    let version = workspace["workspace"]["package"]["rust-version"].as_str().expect("a version");
    let builder = all("ARG").into_iter().find(|argument| argument.arguments.starts_with("BUILDER="));
    let builder = builder.expect("the builder is an argument").arguments;
    assert!(builder.contains(&format!(":{version}-")), "{builder} is not Rust {version}");
}

#[test]
fn the_images_run_without_root_and_their_variables_are_settings() {
    let users = all("USER");
    let [user] = users.as_slice() else { panic!("one user") };
    let number = user.arguments.split(':').next().and_then(|number| number.parse::<u32>().ok());
    assert!(number.is_some_and(|number| number > 0), "{}", user.arguments);
    let environment = all("ENV");
    let names = environment.iter().flat_map(|variables| variables.words());
    let names: Vec<&str> = names.filter_map(|word| Some(word.split_once('=')?.0)).collect();
    assert!(names.contains(&"POSTONCE_BIND"), "{names:?}");
    assert_eq!(deployment::unknown_variables(names), Vec::<&str>::new());
    // A volume makes the embedded store writable although the root file system is not.
    let folders = ["WORKDIR", "VOLUME"].map(|name| all(name).pop().map(|folder| folder.arguments));
    assert_eq!(folders, [Some("/var/lib/postonce".to_owned()), Some("/var/lib/postonce".to_owned())]);
}
