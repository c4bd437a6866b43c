//! The command line of all settings, and the settings for prices.

use std::path::PathBuf;

use clap::builder::StringValueParser;
use clap::{Args, Command, value_parser};

use super::Config;
use super::scaling::ScalingSettings;
use super::tls::TlsSettings;
use super::values::price;
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

/// Adds `--config` and the settings to a command line. They are allowed before and after a subcommand. The
/// environment variable of the setting `some-name` is `POSTONCE_SOME_NAME`.
///
/// Parsing this command line checks only its form. [`super::Config::read`] checks the values, so that values of the
/// configuration file have the same rules and errors.
pub fn add_settings(command: Command) -> Command {
    let settings = Settings::augment_args(Command::new("settings"));
    let settings = settings.mut_args(|arg| {
        let variable = arg.get_long().unwrap_or_default().replace('-', "_").to_ascii_uppercase();
        arg.env(format!("POSTONCE_{variable}")).global(true).value_parser(StringValueParser::new())
    });
    let config = clap::arg!(--config <FILE> "TOML file with settings, named like the flags with _ for -")
        .env("POSTONCE_CONFIG")
        .value_parser(value_parser!(PathBuf))
        .required(false)
        .global(true);
    command.arg(config).args(settings.get_arguments())
}
