//! XML schemas, checked by a validator that knows all of them: libxml2, in one process of Python that
//! lives as long as the test process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{python, workspace};

/// Checks a document against a schema, by the schema's path within `schemas/`, such as
/// `xsd/user-account-transaction.xsd`.
///
/// # Errors
/// What is wrong with the document, with lines.
///
/// # Panics
/// When there is no such schema, or it is none.
pub fn validate_xml(schema: &str, document: &[u8]) -> Result<(), Vec<String>> {
    static VALIDATOR: OnceLock<XmlValidator> = OnceLock::new();
    let validator = VALIDATOR.get_or_init(|| XmlValidator::over(&workspace::root().join("schemas")));
    validator.validate(schema, document).unwrap_or_else(|fault| panic!("{schema} cannot be used: {fault}"))
}

/// A process that validates. It ends when its input closes, which the operating system sees to when the
/// test process ends, so it needs nobody else to end it.
#[derive(Debug)]
pub struct XmlValidator {
    folder: PathBuf,
    conversation: Mutex<Conversation>,
}

#[derive(Debug)]
struct Conversation {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl XmlValidator {
    /// A validator for the schemas in a folder. It reads nothing outside of it.
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
        let questions = child.stdin.take().expect("its input is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        Self {
            folder: folder.to_owned(),
            conversation: Mutex::new(Conversation { child, questions, answers }),
        }
    }

    /// Checks a document against a schema of the folder.
    ///
    /// # Errors
    /// Why the schema cannot be used. The inner error is what is wrong with the document.
    pub fn validate(&self, schema: &str, document: &[u8]) -> Result<Result<(), Vec<String>>, String> {
        let question = json!({"schema": schema, "document": BASE64_STANDARD.encode(document)});
        let answer = self.conversation.lock().ask(&question);
        if let Some(fault) = answer.get("fault").and_then(Value::as_str) {
            return Err(fault.to_owned());
        }
        let errors = answer.get("errors").and_then(Value::as_array);
        let errors = errors.unwrap_or_else(|| panic!("no errors in {answer} of {}", self.folder.display()));
        let errors: Vec<String> = errors.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(if errors.is_empty() { Ok(()) } else { Err(errors) })
    }
}

impl Conversation {
    fn ask(&mut self, question: &Value) -> Value {
        // One question at a time, one line each.
        let asked = writeln!(self.questions, "{question}").and_then(|()| self.questions.flush());
        let mut line = String::new();
        let heard = asked.and_then(|()| self.answers.read_line(&mut line));
        let answer = heard.ok().and_then(|_| serde_json::from_str(&line).ok());
        answer.unwrap_or_else(|| panic!("the validator (pid {}) gave no answer: {line:?}", self.child.id()))
    }
}

impl Drop for XmlValidator {
    fn drop(&mut self) {
        let conversation = self.conversation.get_mut();
        drop(conversation.child.kill());
        drop(conversation.child.wait());
    }
}
