//! Validates XML against its schema with libxml2, in one Python process that runs as long as the test process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::{python, workspace};

/// Validates a document by a schema, given by its path within `schemas/`, such as `xsd/user-account-transaction.xsd`.
///
/// # Errors
/// The validation errors, with line numbers.
///
/// # Panics
/// When the schema is missing or invalid.
pub fn validate_xml(schema: &str, document: &[u8]) -> Result<(), Vec<String>> {
    static VALIDATOR: OnceLock<XmlValidator> = OnceLock::new();
    let validator = VALIDATOR.get_or_init(|| XmlValidator::over(&workspace::root().join("schemas")));
    validator.validate(schema, document).unwrap_or_else(|fault| panic!("{schema} cannot be used: {fault}"))
}

/// A validating process. It ends when its input closes, at the latest with the test process.
#[derive(Debug)]
pub struct XmlValidator {
    folder: PathBuf,
    process: Mutex<ValidatorProcess>,
}

#[derive(Debug)]
struct ValidatorProcess {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl XmlValidator {
    /// Starts a validator for the schemas in a directory. It reads no file outside of the directory.
    ///
    /// # Panics
    /// When Python is missing.
    pub fn over(folder: &Path) -> Self {
        let mut child = Command::new(python::program())
            .arg(python::directory().join("validate.py"))
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let requests = child.stdin.take().expect("its input is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        Self { folder: folder.to_owned(), process: Mutex::new(ValidatorProcess { child, requests, answers }) }
    }

    /// Validates a document by a schema of the directory.
    ///
    /// # Errors
    /// The reason why the schema cannot be used. The inner result has the validation errors.
    pub fn validate(&self, schema: &str, document: &[u8]) -> Result<Result<(), Vec<String>>, String> {
        let request = json!({"schema": schema, "document": BASE64_STANDARD.encode(document)});
        let answer = self.process().send(&request);
        if let Some(fault) = answer.get("fault").and_then(Value::as_str) {
            return Err(fault.to_owned());
        }
        let errors = answer.get("errors").and_then(Value::as_array);
        let errors = errors.unwrap_or_else(|| panic!("no errors in {answer} of {}", self.folder.display()));
        let errors: Vec<String> = errors.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(if errors.is_empty() { Ok(()) } else { Err(errors) })
    }

    fn process(&self) -> MutexGuard<'_, ValidatorProcess> {
        self.process.lock()
    }
}

impl ValidatorProcess {
    fn send(&mut self, request: &Value) -> Value {
        // One request at a time. Requests and responses are one line each.
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        let mut line = String::new();
        let received = sent.and_then(|()| self.answers.read_line(&mut line));
        let answer = received.ok().and_then(|_| serde_json::from_str(&line).ok());
        answer.unwrap_or_else(|| panic!("the validator (pid {}) gave no answer: {line:?}", self.child.id()))
    }
}

impl Drop for XmlValidator {
    fn drop(&mut self) {
        let process = self.process.get_mut();
        drop(process.child.kill());
        drop(process.child.wait());
    }
}
