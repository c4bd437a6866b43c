//! A SOAP client that is independent of the bank: Python's `zeep`, which reads the WSDL.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use postonce_shared::domain::ids::{AccountKey, MessageId};
use serde_json::{Value, json};

use crate::python;

/// A port of a service: a contract and a SOAP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// SOAP 1.1.
    Soap11,
    /// SOAP 1.2.
    Soap12,
    /// The classic contract over SOAP 1.1.
    Compat11,
    /// The classic contract over SOAP 1.2.
    Compat12,
}

impl Port {
    /// Both ports of the current contract.
    pub const ALL: [Self; 2] = [Self::Soap11, Self::Soap12];
    /// Both ports of the classic contract.
    pub const COMPAT: [Self; 2] = [Self::Compat11, Self::Compat12];

    const fn name(self) -> &'static str {
        match self {
            Self::Soap11 => "UserAccountServiceSoap11",
            Self::Soap12 => "UserAccountServiceSoap12",
            Self::Compat11 => "BasicHttpBinding_IUserAccountService",
            Self::Compat12 => "Soap12Binding_IUserAccountService",
        }
    }

    /// Returns the path of the service, and the names of the ids of user and account.
    const fn contract(self) -> (&'static str, [&'static str; 2]) {
        match self {
            Self::Soap11 | Self::Soap12 => ("/soap/UserAccountService", ["UserId", "AccountId"]),
            Self::Compat11 | Self::Compat12 => ("/soap/compat", ["userId", "accountId"]),
        }
    }
}

/// A client in a Python process, which ends when this value is dropped.
#[derive(Debug)]
pub struct SoapClient {
    port: Port,
    child: Child,
    calls: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl SoapClient {
    /// Creates a client of the process at this address, with an API key or an empty one.
    ///
    /// # Panics
    /// When Python is missing.
    pub fn of(address: &str, port: Port, key: &str) -> Self {
        let mut child = Command::new(python::program())
            .arg(python::directory().join("soap_client.py"))
            .args([&format!("{address}{}?wsdl", port.contract().0), port.name(), key])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let calls = child.stdin.take().expect("its input is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        Self { port, child, calls, answers }
    }

    /// Calls an operation on an account. Without an id, the client generates one.
    ///
    /// # Panics
    /// When there is no response.
    pub fn call(
        &mut self,
        operation: &str,
        account: AccountKey,
        rest: &Value,
        id: Option<MessageId>,
    ) -> SoapAnswer {
        let (_, [user, of_user]) = self.port.contract();
        let mut arguments = json!({user: account.user.to_string(), of_user: account.account.to_string()});
        for (name, value) in rest.as_object().into_iter().flatten() {
            arguments[name] = value.clone();
        }
        let id = id.map(|id| format!("urn:uuid:{id}"));
        let call = json!({"operation": operation, "arguments": arguments, "message_id": id});
        let called = writeln!(self.calls, "{call}").and_then(|()| self.calls.flush());
        let mut line = String::new();
        let received = called.and_then(|()| self.answers.read_line(&mut line));
        let answer = received.ok().and_then(|_| serde_json::from_str(&line).ok());
        SoapAnswer(answer.unwrap_or_else(|| panic!("zeep gave no answer to {call}: {line:?}")))
    }
}

impl Drop for SoapClient {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The response to a call.
#[derive(Debug, Clone)]
pub struct SoapAnswer(Value);

impl SoapAnswer {
    /// Returns the text at a JSON pointer; empty if it is missing.
    pub fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the HTTP status of a fault, and the code of its problem.
    ///
    /// # Panics
    /// When the response is not a fault.
    #[track_caller]
    pub fn fault(&self) -> (u64, &str) {
        let status = self.0.pointer("/fault/status").and_then(Value::as_u64);
        (status.unwrap_or_else(|| panic!("no fault: {self:?}")), self.text("/fault/problem/code"))
    }

    /// Returns the element in the body of the envelope, as received.
    pub fn message(&self) -> &[u8] {
        self.text("/message").as_bytes()
    }

    /// Returns the whole response.
    pub const fn whole(&self) -> &Value {
        &self.0
    }
}
