//! The READMEs: every link leads somewhere, every command is accepted by its program, and the first deposit works as it is
//! written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use postonce_tests::prelude::*;

const READMES: [&str; 16] = [
    "README.md",
    "shared/README.md",
    "shared/process/README.md",
    "schemas/README.md",
    "worker/README.md",
    "web/README.md",
    "web/API.md",
    "web/OPERATIONS.md",
    "tests/README.md",
    "deploy/CHANGELOG.md",
    RUNBOOK,
    "deploy/azure/README.md",
    "deploy/compose/README.md",
    "deploy/container/README.md",
    "deploy/kubernetes/README.md",
    "deploy/systemd/README.md",
];
const RUNBOOK: &str = "deploy/runbook.md";

fn read(path: &str) -> String {
    let path = workspace::root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The anchors of a document, made from its headings as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings =
        prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let slug = |heading: &str| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings.map(slug).collect()
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// The commands of all `sh` blocks, and of inline code that begins with one of our programs, without comments; a line that
/// ends in a backslash goes on in the next one.
fn commands(text: &str) -> Vec<String> {
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let joined = blocks.map(|block| block.replace("\\\n", " ")).collect::<Vec<_>>().join("\n");
    let mut found: Vec<String> = joined.lines().map(str::to_owned).collect();
    let inline: Vec<String> = prose(text).map(str::to_owned).collect();
    found.extend(inline.join("\n").split('`').skip(1).step_by(2).map(|code| code.replace('\n', " ")));
    let without_comment = |line: String| line.split(" #").next().unwrap_or_default().trim().to_owned();
    let ours = ["cargo ", "postonce-web ", "postonce-worker ", "tests/fuzz/"];
    found
        .into_iter()
        .map(without_comment)
        .filter(|line| ours.iter().any(|start| line.starts_with(start)))
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for readme in READMES {
        let text = read(readme);
        let folder = Path::new(readme).parent().unwrap();
        let prose: Vec<&str> = prose(&text).collect();
        let targets =
            prose.iter().flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.starts_with("https://")) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { PathBuf::from(readme) } else { folder.join(path) };
            let path = workspace::root().join(path);
            let has_anchor = || anchors(&fs::read_to_string(&path).unwrap()).contains(anchor);
            if !path.exists() || (!anchor.is_empty() && !has_anchor()) {
                broken.push(format!("{readme}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_command_is_accepted_by_its_program() {
    let mut checked = 0;
    for readme in READMES {
        for command in commands(&read(readme)) {
            check(&command).unwrap_or_else(|reason| panic!("{readme}: `{command}`: {reason}"));
            checked += 1;
        }
    }
    assert!(checked > 25, "{checked} commands are found");
}

#[test]
fn every_test_that_the_runbook_names_exists() {
    let text = read(RUNBOOK);
    let (_, procedures) = text.split_once("# Procedures").unwrap();
    let lines: Vec<&str> = prose(procedures).filter(|line| line.starts_with('|')).collect();
    let text = lines.join("\n");
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|code| code.contains("::")).collect();
    assert!(named.len() > 10, "{named:?}");
    for name in named {
        let (modules, last) = name.rsplit_once("::").unwrap();
        let path = format!("tests/e2e/{}", modules.replace("::", "/"));
        let is_module = workspace::root().join(format!("{path}/{last}.rs")).exists();
        assert!(is_module || read(&format!("{path}.rs")).contains(&format!("fn {last}(")), "{name}");
    }
}

#[test]
fn every_name_in_the_recipe_for_a_page_exists() {
    let text = read("web/README.md");
    let (_, recipe) = text.split_once("**Add a page**").unwrap();
    let recipe = recipe.split("\n## ").next().unwrap();
    let names: Vec<&str> = recipe.split('`').skip(1).step_by(2).collect();
    assert!(names.len() > 20, "{names:?}");
    let mut sources = String::new();
    collect(&workspace::root().join("web/src/console"), &mut sources);
    sources.push_str(&read("tests/e2e/console/pages.rs"));
    for name in names {
        let is_path =
            ["", "web/src/console/"].iter().any(|it| workspace::root().join(it).join(name).exists());
        let (of, last) = name.rsplit_once("::").unwrap_or(("", name));
        let declared = ["struct", "enum", "fn", "const", "macro_rules!"].iter().any(|keyword| {
            let last = format!("{keyword} {}", last.trim_end_matches('!'));
            let rest = sources.split(&*last).skip(1);
            rest.into_iter().any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        });
        let has_parent = of.is_empty() || sources.contains(&format!("struct {of}"));
        let is_value = sources.contains(&format!("\"{name}\""));
        assert!(is_path || is_value || (declared && has_parent), "{name} does not exist");
    }
}

/// Adds the text of all sources in a folder.
fn collect(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder can be read") {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            collect(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).expect("a source can be read"));
        }
    }
}

/// Checks a command without running it: `--help` after the arguments of a program makes it parse those before.
fn check(command: &str) -> Result<(), String> {
    let words: Vec<&str> = command.trim_end_matches('&').split_whitespace().collect();
    let (program, arguments) = words.split_first().ok_or("it is empty")?;
    match *program {
        "postonce-web" => accepts(Binary::Web.path(), arguments),
        "postonce-worker" => accepts(Binary::Worker.path(), arguments),
        "cargo" => check_cargo(arguments),
        script => workspace::root()
            .join(script)
            .exists()
            .then_some(())
            .ok_or_else(|| "there is no such script".to_owned()),
    }
}

fn accepts(program: &Path, arguments: &[&str]) -> Result<(), String> {
    let until_redirected = arguments.iter().take_while(|word| **word != ">");
    let output = Command::new(program)
        .args(until_redirected)
        .arg("--help")
        .output()
        .expect("a program can be started");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn check_cargo(arguments: &[&str]) -> Result<(), String> {
    let after = |flag: &str| arguments.iter().skip_while(|word| **word != flag).nth(1).copied();
    if let Some(package) = after("-p") {
        let crates = ["shared", "benches", "process", "schemas", "worker", "web", "tests"];
        if !crates.iter().any(|name| package == format!("postonce-{name}")) {
            return Err(format!("there is no package {package}"));
        }
    }
    let rest: Vec<&str> = arguments.iter().skip_while(|word| **word != "--").skip(1).copied().collect();
    match (arguments.first().copied(), after("--bin"), after("-p"), after("--test")) {
        (Some("run"), Some("postonce-tests"), ..) => {
            accepts(Path::new(env!("CARGO_BIN_EXE_postonce-tests")), &rest)
        }
        (Some("run"), Some(other), ..) => Err(format!("there is no binary {other}")),
        (Some("run"), None, None, _) => accepts(Binary::Web.path(), &rest),
        (Some("test"), None, _, Some("e2e")) => {
            let filter = arguments.iter().skip_while(|word| **word != "e2e").nth(1);
            let module = filter.and_then(|filter| filter.split("::").next()).unwrap_or("main");
            let folder = workspace::root().join("tests/e2e");
            let exists = folder.join(format!("{module}.rs")).exists() || folder.join(module).exists();
            exists.then_some(()).ok_or_else(|| format!("there are no tests {module}"))
        }
        (Some("run" | "test" | "bench" | "build" | "install" | "auditable"), None, ..) => Ok(()),
        _ => Err("the test does not know this use of cargo".to_owned()),
    }
}

#[test]
fn the_first_deposit_works_as_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::default().with("POSTONCE_BIND", "127.0.0.1:0");
    let mut service = Service::start(Binary::Web, &settings, &[], folder.path());
    // Standard output is no terminal here, so the key is in a file.
    let file = service.process().wait_for_line("the file with the first key", wait::TIMEOUT, |line| {
        let (_, rest) = line.split_once("is in the file ")?;
        Some(folder.path().join(rest.split_once(". Move it")?.0))
    });
    let key = fs::read_to_string(file).unwrap().trim().to_owned();
    let log = service.log().lines();
    assert!(log.iter().all(|line| !line.contains(&key)), "the key is in the log");
    let text = read("README.md");
    let block = |readme: &str| {
        let script = readme.split("```sh\n").find(|block| block.contains("curl -X P")).unwrap();
        script.split("```").next().unwrap().to_owned()
    };
    let first = block(text.split_once("## The first deposit").unwrap().1);
    assert!(first.contains("KEY=po_…"), "the script sets the key");
    let first = first.replace("po_…", &key).replace("http://127.0.0.1:8080", service.address());
    let settings_of_first: String = first.lines().take(2).map(|line| format!("{line}\n")).collect();
    // The same deposit in XML is the same transaction.
    let in_xml = block(read("web/OPERATIONS.md").split_once("## Partners").unwrap().1);
    for (script, expected) in [
        (first, vec![r#""status":"posted""#, r#""balance":"125.50""#, r#""reference":"invoice 7""#]),
        (
            format!("{settings_of_first}{in_xml}"),
            vec!["<Status>posted</Status>", "<BalanceAfter>125.50</BalanceAfter>"],
        ),
    ] {
        let output =
            Command::new("bash").args(["-euc", &script.replace("curl ", "curl -sS ")]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}\n{printed}\n{errors}");
        for text in expected {
            assert!(printed.contains(text), "no {text} in\n{printed}\n{errors}");
        }
    }
}
