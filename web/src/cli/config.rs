//! `postonce-web config`: prints the settings in force and their origin, or validates them. It changes nothing.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, Args, Subcommand};
use postonce_shared::access::partner_records::PartnerRecords;
use postonce_shared::adapters::sqlite;
use postonce_shared::cluster::gate::Gate;
use postonce_shared::config::{Config, Environment, IngestQueue, SettingInForce};
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use postonce_shared::store::{self, OpenFault};
use postonce_shared::telemetry;
use serde::Serialize;

use crate::access::api_keys::{FirstKey, FirstKeyPlace};
use crate::cli::output::{json, table};
use crate::edge::tls::Tls;

/// Arguments of `config`. Without a subcommand, the settings in force are printed.
#[derive(Debug, Clone, Args)]
pub struct ConfigCommand {
    #[command(subcommand)]
    command: Option<ConfigOperation>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Subcommands of `config`.
#[derive(Debug, Clone, Subcommand)]
enum ConfigOperation {
    /// Check all settings, the files that they name and the store, and print all errors. Reads only. Exit code 0: no error;
    /// 1: errors
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Settings<'a> {
    settings: Vec<Setting<'a>>,
}

#[derive(Serialize)]
struct Setting<'a> {
    name: &'a str,
    group: &'a str,
    /// Null if the setting has no value.
    value: Option<&'a str>,
    /// `default`, `file`, `environment`, `secret_file` or `command_line`.
    origin: &'static str,
    /// Name of the variable, option or file that sets it.
    from: String,
}

#[derive(Debug, Default, Serialize)]
struct Findings {
    /// Errors that would prevent the service from starting or working.
    errors: Vec<String>,
    /// Checks that were not possible.
    notes: Vec<String>,
}

/// Prints the settings in force, or checks them.
///
/// # Errors
/// When the settings have errors, so that none are in force, or the output fails.
pub async fn run(
    ConfigCommand { command, json: as_json }: ConfigCommand,
    matches: &ArgMatches,
    world: &Arc<dyn World>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let read = Config::in_force(matches, &Environment::of_process());
    let Some(ConfigOperation::Check { json: check_as_json }) = command else {
        print(&read?.1, as_json, out)?;
        return Ok(ExitCode::SUCCESS);
    };
    let findings = match read {
        Ok((config, _)) => check(&config, world).await,
        Err(errors) => Findings { errors: errors.texts(), notes: Vec::new() },
    };
    if as_json || check_as_json {
        json(&findings, out)?;
    } else {
        findings.errors.iter().try_for_each(|error| writeln!(out, "error: {error}"))?;
        findings.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
        match findings.errors.len() {
            0 => writeln!(out, "the configuration has no errors")?,
            1 => writeln!(out, "the configuration has 1 error")?,
            count => writeln!(out, "the configuration has {count} errors")?,
        }
    }
    Ok(if findings.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(settings: &[SettingInForce], as_json: bool, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    if as_json {
        let settings = settings.iter().map(|setting| {
            let SettingInForce { name, group, value, origin } = setting;
            Setting { name, group, value: value.as_deref(), origin: origin.code(), from: setting.place() }
        });
        return json(&Settings { settings: settings.collect() }, out);
    }
    // Groups are printed in the order of their first settings.
    let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
    for setting in settings {
        let next = groups.len();
        groups.entry(&setting.group).or_insert(next);
    }
    let mut settings: Vec<&SettingInForce> = settings.iter().collect();
    settings.sort_by_key(|setting| groups.get(setting.group.as_str()));
    let row = |setting: &&SettingInForce| {
        let value = setting.value.as_deref().unwrap_or("-").to_owned();
        [setting.group.clone(), setting.name.clone(), value, setting.place()]
    };
    table(["GROUP", "SETTING", "VALUE", "FROM"], settings.iter().map(row), out)
}

/// Checks the files, the store and the other resources to which settings refer.
async fn check(config: &Config, world: &Arc<dyn World>) -> Findings {
    let mut findings = Findings::default();
    let mut error = |error: String| findings.errors.push(error);
    if let Err(invalid) = telemetry::check(&config.log) {
        error(chain(&invalid));
    }
    if let Err(invalid) = FirstKey::try_new(config.bootstrap_key.as_ref(), FirstKeyPlace::Terminal) {
        error(format!("bootstrap-key {invalid}"));
    }
    if let Some(Err(fault)) = config.tls.as_ref().map(Tls::open) {
        error(chain(&fault));
    }
    if let Some(folder) = config.anchors.folder.as_ref().filter(|folder| !folder.is_dir()) {
        error(format!("anchor-folder is {folder:?}, which is not allowed: it must be an existing folder"));
    }
    check_store(config, world, &mut findings).await;
    findings
}

/// Checks that the store can be read, and that it contains the partners of ingest queues.
async fn check_store(config: &Config, world: &Arc<dyn World>, findings: &mut Findings) {
    let store = match store::open_to_read(config, Arc::clone(world)).await {
        Ok(store) => store,
        // The next start creates or migrates the store.
        Err(fault @ (OpenFault::NoDatabase { .. } | OpenFault::Sqlite(sqlite::OpenFault::Older { .. }))) => {
            findings.notes.push(format!("the store was not checked: {}", chain(&fault)));
            return;
        }
        Err(fault @ (OpenFault::Sqlite(_) | OpenFault::Azure(_) | OpenFault::NoClient(_))) => {
            findings.errors.push(format!("the store cannot be opened: {}", chain(&fault)));
            return;
        }
    };
    if let Err(fault) = Gate::new(&store, world).read().await {
        findings.errors.push(format!("the store cannot be read: {}", chain(&fault)));
        return;
    }
    let partners = PartnerRecords::new(&store);
    for IngestQueue { name, partner, .. } in &config.ingest {
        match partners.find(partner).await {
            Ok(Some(_)) => {}
            Ok(None) => findings.errors.push(format!(
                "ingest.{name}.partner is {partner}, but there is no such partner, so its orders become dead letters: create it with \
                 `postonce-web partners add {partner}`, or correct the setting"
            )),
            Err(fault) => {
                findings.errors.push(format!("ingest.{name}.partner cannot be checked: {}", chain(&fault)));
            }
        }
    }
}
