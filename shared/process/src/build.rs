//! The build of this program, and its start.

use postonce_shared::config::{Origin, SettingInForce};
use tracing::info;

/// The version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit, abbreviated; `unknown` for a build without a repository, and for debug builds.
pub const COMMIT: &str = env!("POSTONCE_COMMIT");

/// Version and commit, for people.
pub const DESCRIPTION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("POSTONCE_COMMIT"), ")");

/// The name of the setting of the store.
const STORAGE: &str = "storage";

/// Logs that a program starts: its build, its store, and the settings that differ from the defaults, without secrets.
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
