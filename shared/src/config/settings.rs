//! Every setting as one row: its flag, variable, default and help. `--help` is made of this table.

use std::path::PathBuf;

use clap::{Arg, Command};

/// One setting: the flag `--name`, the variable `POSTONCE_NAME`, and `name` in the TOML file.
pub(super) struct Setting {
    pub(super) name: &'static str,
    variable: &'static str,
    default: Option<&'static str>,
    /// Its value is never shown.
    pub(super) secret: bool,
    help: &'static str,
}

const fn setting(
    name: &'static str,
    variable: &'static str,
    default: Option<&'static str>,
    help: &'static str,
) -> Setting {
    Setting { name, variable, default, secret: false, help }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        // A connection string carries the key of the storage account.
        secret: true,
        ..setting(
            "storage",
            "POSTONCE_STORAGE",
            Some("sqlite:./postonce-data/postonce.db"),
            "Where data lives: sqlite:<file>, or azure:<connection string> (azure:UseDevelopmentStorage=true is Azurite)",
        )
    },
    setting(
        "bind",
        "POSTONCE_BIND",
        Some("127.0.0.1:8080"),
        "Address of the HTTP API, ip:port; port 0 picks a free one, which the log names",
    ),
    setting(
        "worker-bind",
        "POSTONCE_WORKER_BIND",
        Some("127.0.0.1:0"),
        "Address of a worker process for rings, health and metrics, ip:port; port 0 picks a free one",
    ),
    setting(
        "advertise",
        "POSTONCE_ADVERTISE",
        None,
        "Address at which the other processes of the bank reach this one, http://host:port [default: where it listens]",
    ),
    Setting {
        secret: true,
        ..setting(
            "ring-secret",
            "POSTONCE_RING_SECRET",
            None,
            "What the processes of the bank sign with when they call each other, at least 16 characters; without it one is made and kept in the store",
        )
    },
    Setting {
        secret: true,
        ..setting(
            "bootstrap-key",
            "POSTONCE_BOOTSTRAP_KEY",
            None,
            "First API key of an empty store, at least 16 characters; without it one is made and printed once",
        )
    },
    setting(
        "visibility-timeout-s",
        "POSTONCE_VISIBILITY_TIMEOUT_S",
        Some("20"),
        "Seconds that a received message is hidden from other workers, 1 to 604800; renewed while work goes on",
    ),
    setting(
        "dequeue-count-max",
        "POSTONCE_DEQUEUE_COUNT_MAX",
        Some("5"),
        "Receipts after which work that cannot be posted goes to the dead letters, 1 to 1000; outages do not count",
    ),
    setting(
        "queue-count",
        "POSTONCE_QUEUE_COUNT",
        None,
        "Queues that share the work by account, 1 to 64 [default: 1 on SQLite, 4 on Azure]",
    ),
    setting(
        "receivers-min",
        "POSTONCE_RECEIVERS_MIN",
        Some("1"),
        "Receivers that a queue gets in each worker process as soon as it has work, 1 to 64",
    ),
    setting(
        "receivers-max",
        "POSTONCE_RECEIVERS_MAX",
        Some("8"),
        "Receivers that it gets at most, however much waits, 1 to 64 and not below receivers-min",
    ),
    setting(
        "idle-poll-max-ms",
        "POSTONCE_IDLE_POLL_MAX_MS",
        Some("60000"),
        "Longest wait between two safety polls of empty queues, in milliseconds, 100 to 600000",
    ),
    setting(
        "name-prefix",
        "POSTONCE_NAME_PREFIX",
        Some("postonce"),
        "What names of tables, queues and containers begin with: 1 to 20 lower-case letters and digits, a letter first",
    ),
    setting("log-format", "POSTONCE_LOG_FORMAT", Some("text"), "How log lines look: text or json"),
    setting(
        "log",
        "POSTONCE_LOG",
        Some("info"),
        "Which log lines are written: error, warn, info, debug, trace, or directives such as info,postonce_shared=debug",
    ),
];

/// Adds the settings to a command line; they may stand before and after a subcommand.
pub fn add_settings(command: Command) -> Command {
    let config = Arg::new("config")
        .long("config")
        .env("POSTONCE_CONFIG")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .global(true)
        .help("TOML file with settings, named like the flags with _ for -");
    SETTINGS.iter().fold(command.arg(config), |command, setting| {
        let mut arg = Arg::new(setting.name)
            .long(setting.name)
            .env(setting.variable)
            .value_name("VALUE")
            .global(true)
            .hide_env_values(setting.secret)
            .help(setting.help);
        if let Some(default) = setting.default {
            arg = arg.default_value(default);
        }
        command.arg(arg)
    })
}
