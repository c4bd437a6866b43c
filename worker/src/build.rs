//! The build of this program, and its start.

use postonce_shared::config::{Origin, SettingInForce};
use tracing::info;

/// The version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit, abbreviated; `unknown` for a build without a repository, and for debug builds.
pub const COMMIT: &str = env!("POSTONCE_COMMIT");

/// Logs that a program starts: its build, and the settings that differ from the defaults, without secrets.
pub fn log_start(program: &str, settings: &[SettingInForce]) {
    let changed = settings.iter().filter(|setting| setting.origin != Origin::Default);
    let changed =
        changed.map(|setting| format!("{}={}", setting.name, setting.value.as_deref().unwrap_or("")));
    let changed = changed.collect::<Vec<_>>().join(" ");
    let (version, commit) = (VERSION, COMMIT);
    info!(
        version,
        commit,
        "{program} {VERSION} (commit {COMMIT}) starts. Settings that differ from the defaults: {changed}"
    );
}
