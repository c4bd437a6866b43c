//! The processes under test: `postonce-web` and `postonce-worker` as they are shipped.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use crate::prelude::*;
use crate::process::{Launch, Log, Process, Signal};

/// Maximum time of a drain: the limit of the contract, plus a margin.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(20);

/// Environment variables of a process.
#[derive(Debug, Clone, Default)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Sets a variable, such as `POSTONCE_STORAGE`.
    #[must_use]
    pub fn with(mut self, variable: &str, value: impl Into<String>) -> Self {
        self.0.insert(variable.to_owned(), value.into());
        self
    }

    /// Removes a variable.
    #[must_use]
    pub fn without(mut self, variable: &str) -> Self {
        self.0.remove(variable);
        self
    }

    /// Returns the value of a variable.
    pub fn get(&self, variable: &str) -> Option<&str> {
        self.0.get(variable).map(String::as_str)
    }
}

/// Returns the launch of a binary with settings and arguments.
pub fn launch(binary: Binary, settings: &Settings, arguments: &[&str], directory: &Path) -> Launch {
    let mut launch =
        Launch::of(binary.name(), binary.path(), directory).arguments(binary.command()).arguments(arguments);
    launch.environment = settings.0.clone();
    // Ignores settings in the environment of the user who runs the tests.
    launch.hidden_prefixes = vec!["POSTONCE_", "RUST_LOG"];
    launch
}

/// Returns the number that a command printed after a text, such as `storage operations: `.
///
/// # Panics
/// When the output does not contain it.
pub fn number_after(text: &str, printed: &str) -> u64 {
    let (_, rest) = printed.split_once(text).unwrap_or_else(|| panic!("{text:?} is missing in\n{printed}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("a number is missing after {text:?} in\n{printed}"))
}

/// A serving process, which is killed when it is dropped.
#[derive(Debug)]
pub struct Service {
    process: Process,
    address: String,
}

impl Service {
    /// Starts a process, and waits until it logs that it listens.
    pub fn start(binary: Binary, settings: &Settings, arguments: &[&str], directory: &Path) -> Self {
        let mut process = Process::start(&launch(binary, settings, arguments, directory));
        let address = process.wait_for_line("listening on http…", wait::TIMEOUT, address_in);
        Self { process, address }
    }

    /// Returns the address on which it listens, such as `http://127.0.0.1:40123`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the logged address for the other processes of the bank.
    pub fn internal_address(&self) -> String {
        // A worker process has only one address.
        self.logged_address("Listening for other processes of the bank on ")
            .unwrap_or_else(|| self.address.clone())
    }

    /// Returns the address for operators, if the process has one.
    pub fn operators_address(&self) -> Option<String> {
        self.logged_address("Listening for operators on ")
    }

    fn logged_address(&self, before: &str) -> Option<String> {
        self.log().find(|line| {
            let (_, address) = line.split_once(before)?;
            let end = address.find(|c: char| c.is_whitespace() || c.is_control() || c == '"');
            Some(end.map_or(address, |end| address.split_at(end).0).to_owned())
        })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the log of the process.
    pub fn log(&self) -> &Log {
        self.process.log()
    }

    /// Waits until the process has logged a text.
    pub async fn until_logged(&self, text: &str) {
        wait::until(text, wait::TIMEOUT, async || {
            let found = self.log().find(|line| line.contains(text).then_some(()));
            found.ok_or_else(|| self.log().lines().join("\n"))
        })
        .await;
    }

    /// Returns the process itself.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Sends SIGKILL, and waits until the process has ended.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Sends SIGTERM, and waits until the process has drained, without blocking other tasks of the test.
    ///
    /// # Panics
    /// When the process exits with a code other than 0, or too late.
    pub async fn drain(&mut self) {
        self.process.signal(Signal::Terminate);
        let status: ExitStatus = wait::until("it drains", DRAIN_TIME_MAX, async || {
            self.process.ended().ok_or_else(|| self.process.log().lines().join("\n"))
        })
        .await;
        let lines = self.process.log().lines().join("\n");
        assert!(status.success(), "a drained process exits with 0, not {status}\n{lines}");
    }

    /// Suspends the process.
    pub fn suspend(&mut self) {
        self.process.signal(Signal::Stop);
    }

    /// Resumes a suspended process.
    pub fn resume(&mut self) {
        self.process.signal(Signal::Continue);
    }
}

/// Returns the address in a line such as `… listening on http://127.0.0.1:40123`, plain, with colors or in JSON.
pub(crate) fn address_in(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("listening on ")?;
    let end = rest.find(|c: char| c.is_whitespace() || c.is_control() || c == '"' || c == ',');
    let address = end.map_or(rest, |end| rest.split_at(end).0);
    (address.starts_with("http://") || address.starts_with("https://"))
        .then(|| address.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::address_in;

    #[test]
    fn the_address_is_found_in_a_readable_line_and_in_json() {
        let found = Some("http://127.0.0.1:40123".to_owned());
        assert_eq!(address_in("INFO web: listening on http://127.0.0.1:40123"), found);
        assert_eq!(address_in("\u{1b}[2mlistening on http://127.0.0.1:40123\u{1b}[0m"), found);
        assert_eq!(address_in(r#"{"message":"listening on http://127.0.0.1:40123","a":1}"#), found);
        assert_eq!(address_in("not listening on anything"), None);
    }
}
