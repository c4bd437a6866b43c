//! The parts of the WebDriver protocol that the tests need. A session is a path, and every command is a JSON request below it.
//! [`Session::cdp`] gives access to the Chrome DevTools Protocol.

use std::fmt;
use std::time::Duration;

use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};

/// Member of a JSON object that contains the reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Maximum time to load a page or to run a script.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum time of a request. It exceeds the time of a command, so that the WebDriver server reports timeouts.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(90);

/// Error of a failed command.
#[derive(Debug, Clone)]
pub(super) struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<reqwest::Error> for Fault {
    fn from(error: reqwest::Error) -> Self {
        Self(format!("chromedriver does not answer: {error:?}"))
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        fault.0
    }
}

/// A session with one browser.
#[derive(Debug)]
pub(super) struct Session {
    http: Client,
    url: String,
}

impl Session {
    /// Opens a session with a browser that is already running. Both ports are on loopback.
    pub(super) async fn open(driver_port: u16, debugger_port: u16) -> Result<Self, Fault> {
        let http = Client::builder().no_proxy().timeout(REQUEST_TIME_MAX).build()?;
        let mut session = Self { http, url: format!("http://127.0.0.1:{driver_port}/session") };
        let milliseconds = COMMAND_TIME_MAX.as_millis();
        let answer = session
            .post(
                "",
                json!({"capabilities": {"alwaysMatch": {
                    "browserName": "chrome",
                    "acceptInsecureCerts": true,
                    "timeouts": {"pageLoad": milliseconds, "script": milliseconds},
                    "goog:chromeOptions": {"debuggerAddress": format!("127.0.0.1:{debugger_port}")},
                    "goog:loggingPrefs": {"browser": "ALL"},
                }}}),
            )
            .await?;
        let id = answer["sessionId"].as_str().expect("a new session has an id");
        session.url = format!("{}/{id}", session.url);
        Ok(session)
    }

    /// Executes a command without parameters.
    pub(super) async fn get(&self, command: &str) -> Result<Value, Fault> {
        value_of(self.http.get(format!("{}{command}", self.url))).await
    }

    /// Executes a command with parameters.
    pub(super) async fn post(&self, command: &str, parameters: Value) -> Result<Value, Fault> {
        value_of(self.http.post(format!("{}{command}", self.url)).json(&parameters)).await
    }

    /// Executes a command on an element.
    pub(super) async fn element(
        &self,
        element: &Element,
        command: &str,
        parameters: Value,
    ) -> Result<Value, Fault> {
        self.post(&format!("/element/{}/{command}", element.0), parameters).await
    }

    /// Runs the body of a function with these `arguments` in the page. Returns the result; a promise is awaited.
    pub(super) async fn execute(&self, script: &str, arguments: Value) -> Result<Value, Fault> {
        self.post("/execute/sync", json!({"script": script, "args": arguments})).await
    }

    /// Calls a method of the Chrome DevTools Protocol.
    pub(super) async fn cdp(&self, method: &str, parameters: Value) -> Result<Value, Fault> {
        self.post("/goog/cdp/execute", json!({"cmd": method, "params": parameters})).await
    }
}

/// A reference to an element of the current page.
#[derive(Debug, Clone)]
pub(super) struct Element(String);

impl Element {
    /// Parses an element that a script returned.
    pub(super) fn of(value: &Value) -> Option<Self> {
        Some(Self(value[ELEMENT].as_str()?.to_owned()))
    }

    /// Returns the reference as an argument of a script.
    pub(super) fn argument(&self) -> Value {
        json!({ELEMENT: self.0})
    }
}

async fn value_of(request: RequestBuilder) -> Result<Value, Fault> {
    let response = request.send().await?;
    let succeeded = response.status().is_success();
    let mut answer: Value = response.json().await?;
    let value = answer["value"].take();
    if succeeded {
        return Ok(value);
    }
    // Later lines contain versions of the programs.
    let message = value["message"].as_str().unwrap_or_default().lines().next().unwrap_or_default();
    Err(Fault(message.to_owned()))
}
