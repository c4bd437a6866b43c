//! The version of this program, and the log entry at its start.

use postonce_shared::config::{Origin, SettingInForce};
use tracing::info;

/// Version of the program, from `Cargo.toml`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Abbreviated commit; `unknown` in a build without a repository and in debug builds.
pub const COMMIT: &str = env!("POSTONCE_COMMIT");

/// Version and commit in readable form.
pub const DESCRIPTION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("POSTONCE_COMMIT"), ")");

/// Name of the setting that selects the store.
const STORAGE: &str = "storage";

/// Logs the start of a program with its build, its store, and the settings that differ from the defaults. Secrets are left out.
pub fn log_start(program: &str, settings: &[SettingInForce]) {
    let value = |setting: &SettingInForce| setting.value.clone().unwrap_or_default();
    let storage = settings.iter().find(|setting| setting.name == STORAGE).map(value);
    let changed = settings.iter().filter(|setting| setting.origin != Origin::Default);
    let changed = changed.filter(|setting| setting.name != STORAGE);
    let changed = changed.map(|setting| format!("{}={}", setting.name, value(setting)));
    let changed = changed.collect::<Vec<_>>().join(" ");
    let (version, commit, storage) = (VERSION, COMMIT, storage.unwrap_or_default());
    info!(
        version,
        commit,
        storage,
        "{program} {DESCRIPTION} starts on {storage}. Settings that differ from the defaults: {changed}"
    );
}
