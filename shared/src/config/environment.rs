//! The `POSTONCE_…` variables of a process. Each must be a setting, so that a mistyped name does not remain unnoticed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::ConfigError;
use super::ingest;
use super::nearest::nearest;
use super::secret_files::file_variable_of;
use super::settings::variable_of;

const PREFIX: &str = "POSTONCE_";

/// Variables that are not settings of a process, but of API clients, of `postonce-web batches`, or of `--config`.
/// Processes and clients often share one file of variables.
const OTHER_VARIABLES: [&str; 6] = [
    "POSTONCE_API_KEY",
    "POSTONCE_API_KEY_FILE",
    "POSTONCE_ATTEMPT_S",
    "POSTONCE_CONFIG",
    "POSTONCE_GIVE_UP_S",
    "POSTONCE_URL",
];

const FILE_SUFFIX: &str = "_FILE";

/// Prefix of variables that only tests use.
const TESTS_PREFIX: &str = "POSTONCE_TESTS_";

/// The names of the environment variables of a process, except those set by container platforms. Values may be secrets and
/// are not kept, except the paths in `POSTONCE_…_FILE`, and those of ingest queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    names: Vec<String>,
    files: BTreeMap<String, PathBuf>,
    ingest: BTreeMap<String, String>,
}

impl Environment {
    /// Reads the environment variables of this process.
    pub fn of_process() -> Self {
        std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value)).collect()
    }

    pub(super) fn file(&self, variable: &str) -> Option<&Path> {
        self.files.get(variable).map(PathBuf::as_path)
    }

    /// Returns the values of the settings of ingest queues, by setting.
    pub(super) const fn ingest(&self) -> &BTreeMap<String, String> {
        &self.ingest
    }

    /// Returns an error for each unknown `POSTONCE_…` variable. `settings` contains the names of all settings, and
    /// `secrets` the names of settings that can be read from files.
    pub(super) fn errors(&self, settings: &[&str], secrets: &[&str]) -> Vec<ConfigError> {
        let settings = settings.iter().map(|setting| variable_of(setting));
        let settings = settings.chain(secrets.iter().map(|setting| file_variable_of(setting)));
        let settings: Vec<String> = settings.chain(ingest::variable_patterns()).collect();
        let known: Vec<&str> = settings.iter().map(String::as_str).chain(OTHER_VARIABLES).collect();
        let is_known = |name: &str| known.contains(&name) || ingest::setting_of(name).is_some();
        let unknown = self.names.iter().filter(|name| is_ours(name) && !is_known(name));
        let error = |name: &String| ConfigError::UnknownVariable {
            name: name.clone(),
            nearest: nearest(name, &known).to_owned(),
        };
        unknown.map(error).collect()
    }
}

impl FromIterator<(String, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, OsString)>>(variables: I) -> Self {
        let (mut names, mut files, mut of_ingest) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for (name, value) in variables {
            if is_service_link(&name, &value.to_string_lossy()) {
                continue;
            }
            if let Some(setting) = ingest::setting_of(&name) {
                of_ingest.insert(setting, value.to_string_lossy().into_owned());
            }
            if is_ours(&name) && name.ends_with(FILE_SUFFIX) {
                files.insert(name.clone(), PathBuf::from(value));
            }
            names.push(name);
        }
        names.sort();
        Self { names, files, ingest: of_ingest }
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX) && !name.starts_with(TESTS_PREFIX)
}

/// Returns whether Kubernetes or Docker sets the variable in containers next to a service named `postonce` or
/// `postonce-…`, such as `POSTONCE_WEB_SERVICE_HOST` and `POSTONCE_PORT_8080_TCP_ADDR`.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_port = |rest: &str| {
        let (number, protocol) = rest.split_once('_').unwrap_or_default();
        let is_protocol = ["TCP", "UDP", "SCTP"].iter().any(|name| protocol.starts_with(name));
        is_protocol && !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
    };
    name.ends_with("_SERVICE_HOST")
        || (name.ends_with("_PORT") && value.contains("://"))
        || name.contains("_SERVICE_PORT")
        || name.split("_PORT_").skip(1).any(is_port)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    fn errors(names: &[&str]) -> Vec<String> {
        let variable = |text: &&str| {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            (name.to_owned(), value.into())
        };
        let environment: Environment = names.iter().map(variable).collect();
        let errors = environment.errors(&["queue-count", "bind", "worker-bind", "storage"], &["storage"]);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_variable_without_meaning_is_an_error_with_the_nearest_setting() {
        let errors = errors(&["POSTONCE_QUEUE_COUNTS", "POSTONCE_STORAGE", "PATH", "POSTONCE_WORKERBIND"]);
        let [first, second] = errors.as_slice() else { panic!("{errors:?}") };
        assert!(
            first.contains("POSTONCE_QUEUE_COUNTS") && first.contains("is POSTONCE_QUEUE_COUNT "),
            "{first}"
        );
        assert!(second.contains("is POSTONCE_WORKER_BIND "), "{second}");
    }

    #[test]
    fn variables_of_clients_tests_and_container_platforms_are_allowed() {
        let allowed = [
            "POSTONCE_API_KEY",
            "POSTONCE_CONFIG",
            "POSTONCE_GIVE_UP_S",
            "POSTONCE_TESTS_SEED",
            "POSTONCE_SERVICE_HOST",
            "POSTONCE_SERVICE_PORT",
            "POSTONCE_WEB_SERVICE_PORT_HTTP",
            "POSTONCE_PORT=tcp://10.0.0.1:8080",
            "POSTONCE_WEB_PORT_8080_TCP",
            "POSTONCE_WEB_PORT_8080_TCP_ADDR",
            "postonce_bind",
            "POSTONCE_STORAGE_FILE=/run/secrets/storage",
        ];
        assert_eq!(errors(&allowed), Vec::<String>::new());
        assert_eq!(errors(&["POSTONCE_PORT_NUMBER", "POSTONCE_BIND_PORT=8080"]).len(), 2);
        // Not a secret setting.
        assert_eq!(errors(&["POSTONCE_BIND_FILE=/run/secrets/bind"]).len(), 1);
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        let path = OsString::from_vec(b"/run/secr\xff".to_vec());
        let environment: Environment =
            [("POSTONCE_STORAGE_FILE".to_owned(), path.clone())].into_iter().collect();
        assert_eq!(environment.file("POSTONCE_STORAGE_FILE"), Some(Path::new(&path)));
    }
}
