//! Clients that generators make from the OpenAPI document of the running service: they are complete, they pass the type
//! check of their language, and a partner's program on them opens an account, deposits, repeats, is refused and reads.
//! Others are made from the WSDL for classic clients. The programs are in `tests/clients`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postonce_tests::contracts::OpenApi;
use postonce_tests::java;
use postonce_tests::npm::TYPESCRIPT;
use postonce_tests::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

/// Longest run of one program; each takes seconds.
const RUN_TIME_MAX: Duration = Duration::from_secs(300);
/// Maximum number of files of a Python client: one for each operation and schema, and a few more.
const FILES_MAX: usize = 140;
/// The last line of a partner's program.
const SUCCESS: &str = "all steps succeeded";

/// Runs a program, which must succeed, and returns its output.
#[track_caller]
fn succeed(launch: &Launch) -> String {
    let (status, output) = launch.run(RUN_TIME_MAX);
    let output = output.join("\n");
    assert!(status.success(), "{} failed:\n{output}", launch.name);
    output
}

fn address(bank: &Scenario) -> &str {
    bank.webs.first().expect("the bank has a web process").address()
}

/// Copies the committed part of a client to a folder.
fn copy(from: &str, names: &[&str], folder: &Path) {
    let from = workspace::root().join("tests/clients").join(from);
    for name in names {
        fs::copy(from.join(name), folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Starts the generator of Python clients. A warning means that a part of the document is left out, so it is an error.
fn python_generator(document: &str, folder: &Path) -> Launch {
    let program = python::program();
    let tools = program.parent().expect("a program is in a folder").to_owned();
    let mut launch = Launch::of("openapi-python-client", tools.join("openapi-python-client"), folder)
        .arguments(["generate", "--fail-on-warning", "--meta", "none", "--output-path", "postonce_client"])
        .arguments(["--url", document]);
    // The generator formats its files with a tool that it finds by this variable.
    let inherited = std::env::var("PATH").unwrap_or_default();
    launch.environment.insert("PATH".to_owned(), format!("{}:{inherited}", tools.display()));
    launch
}

/// The files with an extension below a folder.
fn files_of(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let files = paths.flat_map(|path| if path.is_dir() { files_of(&path, extension) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

/// The ids of all operations.
fn operation_ids(document: &OpenApi) -> Vec<&str> {
    document.operations().filter_map(|it| it.get("operationId").and_then(Value::as_str)).collect()
}

#[tokio::test]
async fn a_generated_python_client_moves_money() {
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    let folder = tempfile::tempdir().unwrap();
    let output = succeed(&python_generator(&format!("{}/openapi.json", address(&bank)), folder.path()));
    for sign in ["WARNING", "ERROR", "Skipping", "Unable"] {
        assert!(!output.contains(sign), "the generator printed:\n{output}");
    }
    let files = files_of(&folder.path().join("postonce_client"), "py");
    assert!(files.len() < FILES_MAX, "{} files:\n{files:#?}", files.len());
    let document = OpenApi::parse(postonce_schemas::OPENAPI_JSON);
    let ids = operation_ids(&document);
    let module = |id: &str| format!("{id}.py");
    let missing: Vec<_> =
        ids.iter().filter(|id| !files.iter().any(|file| file.ends_with(module(id)))).collect();
    assert!(ids.len() > 30 && missing.is_empty(), "without a function: {missing:?}");

    copy("python", &["first_deposit.py", "mypy.ini"], folder.path());
    let program = python::program();
    let check = ["-m", "mypy", "--config-file", "mypy.ini", "-p", "postonce_client", "-m", "first_deposit"];
    drop(succeed(&Launch::of("mypy", &program, folder.path()).arguments(check)));
    let started = ["first_deposit.py", address(&bank), bank.key()];
    let output = succeed(&Launch::of("first_deposit.py", &program, folder.path()).arguments(started));
    assert!(output.contains(SUCCESS), "{output}");
}

/// The generator does report what it cannot use, so the plain document is needed, and its silence means something.
#[tokio::test]
async fn the_generator_of_python_clients_refuses_the_strict_document() {
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    let folder = tempfile::tempdir().unwrap();
    let strict = format!("{}/openapi-strict.json", address(&bank));
    let (status, output) = python_generator(&strict, folder.path()).run(RUN_TIME_MAX);
    assert!(!status.success(), "{}", output.join("\n"));
}

/// A project in a folder of its own, with the installed packages.
fn typescript_project() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder can be created");
    copy(".", &["package.json"], folder.path());
    copy("typescript", &["tsconfig.json", "first_deposit.ts"], folder.path());
    symlink(TYPESCRIPT.installed().join("node_modules"), folder.path().join("node_modules"))
        .expect("a link can be created");
    folder
}

#[tokio::test]
async fn a_generated_typescript_client_moves_money() {
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    let project = typescript_project();
    let node = |name: &str, arguments: &[&str]| {
        succeed(&Launch::of(name, "node", project.path()).arguments(arguments.iter().copied()))
    };
    let document = format!("{}/openapi.json", address(&bank));
    let generator = "node_modules/openapi-typescript/bin/cli.js";
    let output = node("openapi-typescript", &[generator, &document, "--output", "openapi.ts"]);
    for sign in ["warn", "error", "✘", "⚠"] {
        assert!(!output.to_lowercase().contains(sign), "the generator printed:\n{output}");
    }
    let types = fs::read_to_string(project.path().join("openapi.ts")).unwrap();
    let document = OpenApi::parse(postonce_schemas::OPENAPI_JSON);
    for name in operation_ids(&document).into_iter().chain(document.schemas().map(|(name, _)| name.as_str()))
    {
        assert!(types.contains(&format!("    {name}: {{")), "{name} has no type");
    }
    // The compiler writes a program only if it passes the check.
    drop(node("tsc", &["node_modules/typescript/bin/tsc"]));
    let output = node("first_deposit.js", &["first_deposit.js", address(&bank), bank.key()]);
    assert!(output.contains(SUCCESS), "{output}");
}

/// The arguments of a program on the contract of classic clients: address, key, and the ids of an open account.
async fn classic_arguments(bank: &Scenario) -> [String; 4] {
    let account = fresh_account();
    bank.client(0).open(account).await;
    [address(bank).to_owned(), bank.key().to_owned(), account.user.to_string(), account.account.to_string()]
}

#[tokio::test]
async fn a_java_client_that_wsimport_generates_moves_money() {
    if !java::has_jdk() {
        return;
    }
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    let (folder, class_path) = (tempfile::tempdir().unwrap(), java::jax_ws());
    let run = |program: &str, name: &str, arguments: &[&str]| {
        succeed(&Launch::of(name, program, folder.path()).arguments(arguments.iter().copied()))
    };
    let wsdl = format!("{}/soap/compat?wsdl", address(&bank));
    let generator = ["-cp", &class_path, "com.sun.tools.ws.WsImport", "-keep", "-Xnocompile"];
    let output = run("java", "WsImport", &[&generator[..], &["-p", "partner.compat", &wsdl]].concat());
    assert!(!output.contains("[ERROR]"), "the generator printed:\n{output}");
    copy("java", &["ClassicClient.java"], folder.path());
    // All of them: nothing names the file with the annotations of the package.
    let sources = files_of(folder.path(), "java");
    let mut compile = Launch::of("javac", "javac", folder.path()).arguments(["-cp", &class_path]);
    compile.arguments.extend(sources.into_iter().map(PathBuf::into_os_string));
    drop(succeed(&compile));
    let arguments = classic_arguments(&bank).await;
    // JAXB is older than the modules of Java.
    let options = ["--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp", &format!(".:{class_path}")];
    let started = [&options[..], &["ClassicClient"], &arguments.each_ref().map(String::as_str)].concat();
    let output = run("java", "ClassicClient", &started);
    assert!(output.contains(SUCCESS), "{output}");
}

#[tokio::test]
async fn a_client_on_the_npm_package_soap_moves_money() {
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    let folder = tempfile::tempdir().unwrap();
    copy(".", &["package.json"], folder.path());
    copy("soap", &["classic_client.js"], folder.path());
    symlink(TYPESCRIPT.installed().join("node_modules"), folder.path().join("node_modules"))
        .expect("a link can be created");
    let mut launch = Launch::of("classic_client.js", "node", folder.path()).arguments(["classic_client.js"]);
    launch.environment.insert("NO_PROXY".to_owned(), "*".to_owned());
    let output = succeed(&launch.arguments(classic_arguments(&bank).await));
    assert!(output.contains(SUCCESS), "{output}");
}
