//! Every setting as one row: its flag, variable, default and help. `--help` is made of this table.

use std::path::PathBuf;

use clap::{Arg, Command};

use crate::oversight::prices::defaults as prices;

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
        "Address at which the other processes of the bank call this one, ip:port; a worker process serves health and metrics there as well; port 0 picks a free one",
    ),
    setting(
        "internal-on-bind",
        "POSTONCE_INTERNAL_ON_BIND",
        Some("false"),
        "true: the other processes call a web process at bind instead of worker-bind, for one machine where a second port is not wanted; not with TLS",
    ),
    setting(
        "advertise",
        "POSTONCE_ADVERTISE",
        None,
        "Address at which the other processes of the bank reach worker-bind of this one, http://host:port [default: where it listens]",
    ),
    Setting {
        secret: true,
        ..setting(
            "ring-secret",
            "POSTONCE_RING_SECRET",
            None,
            "What the processes of the bank sign with when they call each other, at least 16 characters, or while it is changed two of them as new,old; without it one is made and kept in the store",
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
        "legacy-partner",
        "POSTONCE_LEGACY_PARTNER",
        None,
        "Partner in whose name, and on whose terms, the worker accepts what producers write to the queue directly, XML or delimited [default: none, they become dead letters]",
    ),
    setting(
        "name-prefix",
        "POSTONCE_NAME_PREFIX",
        Some("postonce"),
        "What names of tables, queues and containers begin with: 1 to 20 lower-case letters and digits, a letter first",
    ),
    setting(
        "posting-age-target-s",
        "POSTONCE_POSTING_AGE_TARGET_S",
        Some("10"),
        "Seconds that accepted work should wait at most, 1 to 86400; more workers are wanted where it would be longer",
    ),
    setting(
        "worker-rate",
        "POSTONCE_WORKER_RATE",
        Some("200"),
        "Queue messages that one worker posts in a second, 1 to 1000000: measure yours, the default is on the safe side",
    ),
    setting(
        "workers-min",
        "POSTONCE_WORKERS_MIN",
        Some("1"),
        "Fewest workers that are ever wanted, 0 to 1000; with 0 somebody has to look for work while none runs",
    ),
    setting("workers-max", "POSTONCE_WORKERS_MAX", Some("8"), "Most workers that are ever wanted, 1 to 1000"),
    setting(
        "workers-floor",
        "POSTONCE_WORKERS_FLOOR",
        None,
        "Fewest workers at known peaks: cron expression = number, for every minute that matches; several with ;",
    ),
    setting(
        "time-zone",
        "POSTONCE_TIME_ZONE",
        Some("UTC"),
        "The time zone of workers-floor, by its name in the IANA database, such as Europe/Berlin",
    ),
    setting(
        "scale-down-delay-s",
        "POSTONCE_SCALE_DOWN_DELAY_S",
        Some("60"),
        "Seconds that fewer workers must have been wanted before postonce-worker --scale stops some, 0 to 3600",
    ),
    setting(
        "price-table",
        "POSTONCE_PRICE_TABLE",
        Some(prices::TABLE),
        "US dollars for 10000 reads or writes of a table row, at most 9 decimals; so with all prices",
    ),
    setting(
        "price-table-batch",
        "POSTONCE_PRICE_TABLE_BATCH",
        Some(prices::TABLE_BATCH),
        "US dollars for 10000 table batches or scans",
    ),
    setting(
        "price-queue",
        "POSTONCE_PRICE_QUEUE",
        Some(prices::QUEUE),
        "US dollars for 10000 queue operations",
    ),
    setting(
        "price-blob-write",
        "POSTONCE_PRICE_BLOB_WRITE",
        Some(prices::BLOB_WRITE),
        "US dollars for 10000 writes of a blob",
    ),
    setting(
        "price-blob-read",
        "POSTONCE_PRICE_BLOB_READ",
        Some(prices::BLOB_READ),
        "US dollars for 10000 reads of a blob and anything else on blobs",
    ),
    setting(
        "body-bytes-max",
        "POSTONCE_BODY_BYTES_MAX",
        Some("65536"),
        "Most bytes of the body of an HTTP request, 4096 to 1048576",
    ),
    setting(
        "head-timeout-s",
        "POSTONCE_HEAD_TIMEOUT_S",
        Some("10"),
        "Seconds that the head of an HTTP request may take to arrive, 1 to 60",
    ),
    setting(
        "body-timeout-s",
        "POSTONCE_BODY_TIMEOUT_S",
        Some("30"),
        "Seconds that its body may take, 1 to 300",
    ),
    setting(
        "keep-alive-s",
        "POSTONCE_KEEP_ALIVE_S",
        Some("75"),
        "Seconds that an HTTP connection is kept on which nothing is asked, 1 to 3600",
    ),
    setting(
        "connections-max",
        "POSTONCE_CONNECTIONS_MAX",
        Some("4096"),
        "Most HTTP connections at the same time, 16 to 1000000; a connection takes at most about 256 KiB of memory",
    ),
    setting(
        "header-bytes-max",
        "POSTONCE_HEADER_BYTES_MAX",
        Some("16384"),
        "Most bytes of the first line and the headers of an HTTP request, 1024 to 65536",
    ),
    setting(
        "xml-depth-max",
        "POSTONCE_XML_DEPTH_MAX",
        Some("32"),
        "Most elements of an XML document that stand within one another, 4 to 64",
    ),
    setting(
        "xml-attributes-max",
        "POSTONCE_XML_ATTRIBUTES_MAX",
        Some("32"),
        "Most attributes of an element of an XML document, 4 to 256",
    ),
    setting(
        "requests-per-second",
        "POSTONCE_REQUESTS_PER_SECOND",
        Some("20000"),
        "Requests, or orders on the queue, that a partner without a rate of its own may send in a second, to each process, 1 to 1000000",
    ),
    setting(
        "requests-burst",
        "POSTONCE_REQUESTS_BURST",
        Some("40000"),
        "Requests that it may make at once after a rest, 1 to 1000000",
    ),
    setting(
        "wrong-keys-per-second",
        "POSTONCE_WRONG_KEYS_PER_SECOND",
        Some("50"),
        "API keys that this process has not seen which one address may try in a second before it has to wait, 1 to 1000000",
    ),
    setting(
        "wrong-keys-burst",
        "POSTONCE_WRONG_KEYS_BURST",
        Some("500"),
        "How many of them it may try at once, 1 to 1000000",
    ),
    setting(
        "tls-certificate",
        "POSTONCE_TLS_CERTIFICATE",
        None,
        "PEM file with the certificate of the HTTP API and those that lead to its root: serves HTTPS [default: none, plain HTTP]",
    ),
    setting(
        "tls-key",
        "POSTONCE_TLS_KEY",
        None,
        "PEM file with the private key of the certificate; both are looked at again every few seconds",
    ),
    setting(
        "tls-client-ca",
        "POSTONCE_TLS_CLIENT_CA",
        None,
        "PEM file with the authorities that issue certificates of clients, which are asked for one then [default: none]",
    ),
    setting(
        "tls-client-certificates",
        "POSTONCE_TLS_CLIENT_CERTIFICATES",
        Some("optional"),
        "Whether clients must show a certificate of tls-client-ca: optional or required",
    ),
    setting(
        "signature-age-max-s",
        "POSTONCE_SIGNATURE_AGE_MAX_S",
        Some("300"),
        "Seconds that the signature of a request (RFC 9421) may be old, 1 to 3600",
    ),
    setting(
        "public-address",
        "POSTONCE_PUBLIC_ADDRESS",
        None,
        "The address that clients see and sign for, such as https://bank.example: set it where something else ends TLS or changes Host [default: what the request says]",
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
