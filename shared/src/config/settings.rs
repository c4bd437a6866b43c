//! The command line of all settings, and the settings for prices.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use clap::builder::StringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, value_parser};

use super::Config;
use super::scaling::ScalingSettings;
use super::tls::TlsSettings;
use super::values::price;
use crate::command_output::OUTPUT_CLOSED;
use crate::oversight::prices::{Price, Prices, defaults as prices};

/// All settings: those that are used directly, and those that are combined into one value.
#[derive(Args)]
pub(super) struct Settings {
    #[command(flatten)]
    pub(super) config: Config,
    #[command(flatten)]
    pub(super) scaling: ScalingSettings,
    #[command(flatten)]
    pub(super) tls: TlsSettings,
    #[command(flatten)]
    pub(super) prices: PriceSettings,
}

#[derive(Args)]
#[command(next_help_heading = "Prices")]
pub(super) struct PriceSettings {
    /// Price of 10000 reads or writes of a table row, in US dollars, from 0 to 1000 with at most 9 decimals
    #[arg(long, value_name = "USD", default_value = prices::TABLE, value_parser = price)]
    price_table: Price,
    /// Price of 10000 table batches or scans, in US dollars, from 0 to 1000 with at most 9 decimals
    #[arg(long, value_name = "USD", default_value = prices::TABLE_BATCH, value_parser = price)]
    price_table_batch: Price,
    /// Price of 10000 queue operations, in US dollars, from 0 to 1000 with at most 9 decimals
    #[arg(long, value_name = "USD", default_value = prices::QUEUE, value_parser = price)]
    price_queue: Price,
    /// Price of 10000 writes of a blob, in US dollars, from 0 to 1000 with at most 9 decimals
    #[arg(long, value_name = "USD", default_value = prices::BLOB_WRITE, value_parser = price)]
    price_blob_write: Price,
    /// Price of 10000 reads of a blob and other blob operations, in US dollars, from 0 to 1000 with at most 9
    /// decimals
    #[arg(long, value_name = "USD", default_value = prices::BLOB_READ, value_parser = price)]
    price_blob_read: Price,
}

impl From<PriceSettings> for Prices {
    fn from(settings: PriceSettings) -> Self {
        let PriceSettings { price_table, price_table_batch, price_queue, price_blob_write, price_blob_read } =
            settings;
        Self {
            table: price_table,
            table_batch: price_table_batch,
            queue: price_queue,
            blob_write: price_blob_write,
            blob_read: price_blob_read,
        }
    }
}

pub(super) const STORAGE: &str = "storage";
/// The flag that prints all settings.
const HELP_SETTINGS: &str = "help-settings";
/// Help heading of the options about settings.
const HEADING: &str = "Settings";
/// What the help says about the settings of ingest queues, whose names are not known before.
const INGEST_HELP: &str = "\
Ingest queues (in the file as a table [ingest.NAME], or as variables; NAME: 1 to 32 lower-case letters, digits and -; at most 64):
  ingest.NAME.queue        Queue to which direct producers write their orders, in Azure Queue Storage with exactly this name; created
                           if it does not exist [env: POSTONCE_INGEST_NAME_QUEUE=]
  ingest.NAME.partner      Partner for which workers accept these orders, with its scopes, its reach and its rate
                           [env: POSTONCE_INGEST_NAME_PARTNER=]
  ingest.NAME.poll-max-ms  Maximum interval between two polls of the empty queue by all workers together, in milliseconds, from 100 to
                           60000 [env: POSTONCE_INGEST_NAME_POLL_MAX_MS=] [default: 60000]
";

/// Returns the environment variable of a setting, such as `POSTONCE_SOME_NAME` for `some-name`.
pub(super) fn variable_of(setting: &str) -> String {
    format!("POSTONCE_{}", setting.replace(['-', '.'], "_").to_ascii_uppercase())
}

/// Adds `--config`, `--help-settings` and all settings to a command line. They are accepted before and after a subcommand.
/// The help of a command does not list the settings, which would hide its own options; `--help-settings` does.
///
/// Parsing only checks the form. [`super::Config::read`] checks the values, so that values in the configuration file have
/// the same rules and errors.
pub fn add_settings(command: Command) -> Command {
    let help = Arg::new(HELP_SETTINGS).long(HELP_SETTINGS).action(ArgAction::SetTrue).global(true);
    let help =
        help.help_heading(HEADING).help("Print all settings, by group, with their variables and defaults");
    let settings = settings().mut_args(|arg| arg.hide(true));
    command.arg(config_file()).arg(help).args(settings.get_arguments())
}

/// Parses the command line of this process. Exits for `--help-settings` after printing the settings, for `--help`, and for
/// an invalid command line.
pub fn parse_command_line(command: Command) -> ArgMatches {
    let flag = format!("--{HELP_SETTINGS}");
    // Checked before parsing, because an argument that the command requires may be missing.
    if std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == flag.as_str()) {
        end(settings_help().print_help(), 0);
    }
    command.try_get_matches().unwrap_or_else(|answer| end(answer.print(), answer.exit_code()))
}

/// Exits after printing. Printing may have failed.
fn end(printed: io::Result<()>, code: i32) -> ! {
    std::process::exit(match (printed, code) {
        (Err(error), 0) if error.kind() == ErrorKind::BrokenPipe => i32::from(OUTPUT_CLOSED),
        (Err(_), 0) => 1,
        (Ok(()) | Err(_), code) => code,
    })
}

/// Returns the command whose help lists all settings by group.
pub(super) fn settings_help() -> Command {
    let template = "Settings come from options, then from variables, then from the file of --config. A secret can be in a file that the \
         variable of the setting with _FILE at its end names, such as POSTONCE_STORAGE_FILE.\n\n{all-args}\n\n{after-help}\n";
    let command =
        Command::new("settings").disable_help_flag(true).help_template(template).after_help(INGEST_HELP);
    command.arg(config_file()).args(settings().get_arguments())
}

fn settings() -> Command {
    Settings::augment_args(Command::new("settings")).mut_args(|arg| {
        let variable = variable_of(arg.get_long().unwrap_or_default());
        arg.env(variable).global(true).value_parser(StringValueParser::new())
    })
}

fn config_file() -> Arg {
    clap::arg!(--config <FILE> "TOML file with settings, named like the flags with _ for -")
        .env("POSTONCE_CONFIG")
        .value_parser(value_parser!(PathBuf))
        .required(false)
        .global(true)
        .help_heading(HEADING)
}
