use std::ffi::OsString;
use std::io::Write as _;

use clap::Command;
use secrecy::ExposeSecret as _;

use super::*;
use crate::domain::partner::RequestRate;
use crate::domain::time::Timestamp;
use crate::ports::operations::PriceKind;

fn in_force(arguments: &[&str], environment: &[&str]) -> Result<(Config, Vec<SettingInForce>), ConfigErrors> {
    let command = add_settings(Command::new("test"));
    let arguments = std::iter::once("test").chain(arguments.iter().copied());
    let environment = environment.iter().map(|name| ((*name).to_owned(), OsString::new())).collect();
    Config::in_force(&command.try_get_matches_from(arguments).unwrap(), &environment)
}

fn read(arguments: &[&str]) -> Result<Config, ConfigErrors> {
    in_force(arguments, &[]).map(|(config, _)| config)
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn the_path_of_the_store_is_taken_as_it_is() {
    for path in
        ["file:bank.db", "file:/b.db?mode=memory", "b.db?mode=memory", "a%20b.db", "///bank.db", " b.db"]
    {
        let config = read(&["--storage", &format!("sqlite:{path}")]).unwrap();
        let StorageConfig::Sqlite { path: found } = &config.storage else { panic!("{path}") };
        assert_eq!(found.as_os_str(), path);
    }
}

#[test]
fn settings_have_defaults() {
    let config = read(&[]).unwrap();
    assert!(matches!(&config.storage, StorageConfig::Sqlite { path } if path.ends_with("postonce.db")));
    assert_eq!(config.bind.to_string(), "127.0.0.1:8080");
    assert_eq!((config.worker_bind.to_string().as_str(), config.advertise), ("127.0.0.1:0", None));
    assert!(!config.internal_on_bind);
    assert_eq!(config.visibility_timeout, Duration::from_secs(20));
    assert_eq!((config.dequeue_count_max, config.queue_count), (5, 1));
    assert_eq!(config.http, HttpLimits::default());
    assert_eq!(config.http.rate(), RequestRate { per_second: 20_000, burst: 40_000 });
    assert_eq!(config.http.wrong_key_rate(), RequestRate { per_second: 50, burst: 500 });
    assert_eq!(config.signatures, SignatureTerms::default());
    assert_eq!(read(&["--storage", "azure:UseDevelopmentStorage=true"]).unwrap().queue_count, 4);
}

#[test]
fn flags_override_the_file_and_the_file_overrides_defaults() {
    let file = file("visibility_timeout_s = 7\nname_prefix = \"bank\"\nqueue_count = 3\n");
    let path = file.path().to_str().unwrap();
    let config = read(&["--config", path, "--queue-count", "9"]).unwrap();
    assert_eq!(config.visibility_timeout, Duration::from_secs(7));
    assert_eq!((config.name_prefix.as_str(), config.queue_count), ("bank", 9));
}

#[test]
fn a_byte_order_mark_before_a_file_is_no_part_of_it() {
    let settings = file("\u{feff}name_prefix = \"bank\"\r\n");
    assert_eq!(read(&["--config", settings.path().to_str().unwrap()]).unwrap().name_prefix, "bank");
    let secret = |text: &str| read_secret(file(text).path()).map(|secret| secret.expose_secret().to_owned());
    assert_eq!(secret("\u{feff}one-secret\r\n").unwrap(), "one-secret");
    assert_eq!(secret("one-secret").unwrap(), "one-secret");
    assert!(secret("\u{feff}\n").unwrap_err().to_string().contains("it is empty"));
}

#[test]
fn other_processes_call_the_api_address_only_if_configured() {
    let file = file("internal_on_bind = true\n");
    let config = read(&["--config", file.path().to_str().unwrap()]).unwrap();
    assert!(config.internal_on_bind);
}

#[test]
fn an_error_names_setting_value_and_rule() {
    let check = |arguments: &[&str], words: &[&str]| {
        let message = read(arguments).unwrap_err().to_string();
        for word in words {
            assert!(message.contains(word), "{message:?} does not contain {word:?}");
        }
    };
    check(&["--visibility-timeout-s", "0"], &["visibility-timeout-s", "\"0\"", "from 1 to 604800"]);
    check(&["--dequeue-count-max", "many"], &["dequeue-count-max", "\"many\"", "whole number"]);
    check(&["--dequeue-count-max", "+4"], &["dequeue-count-max", "\"+4\"", "whole number"]);
    check(&["--idle-poll-max-ms", "0700"], &["idle-poll-max-ms", "\"0700\"", "whole number"]);
    check(&["--receivers-max", "0"], &["receivers-max", "\"0\"", "from 1 to 64"]);
    check(
        &["--receivers-rule", "10:9"],
        &["receivers-rule", "\"10:9\"", "more receivers than receivers-max", "is 8"],
    );
    check(&["--receivers-rule", "10:2,5:3"], &["receivers-rule", "\"10:2,5:3\"", "such as 10:1,50:2,100:4"]);
    check(
        &["--idle-poll-min-ms", "2000", "--idle-poll-max-ms", "1000"],
        &["idle-poll-min-ms", "\"2000\"", "above idle-poll-max-ms", "is 1000"],
    );
    check(&["--idle-poll-factor", "0"], &["idle-poll-factor", "\"0\"", "from 1 to 10"]);
    check(
        &["--order-number-range-min", "500", "--order-number-range-max", "400"],
        &["order-number-range-min", "\"500\"", "above order-number-range-max", "is 400"],
    );
    check(&["--receivers-min", "9"], &["receivers-max", "\"8\" (by default)", "below receivers-min", "is 9"]);
    check(&["--bind", "localhost"], &["bind", "\"localhost\"", "ip:port"]);
    check(&["--worker-bind", "8081"], &["worker-bind", "\"8081\"", "ip:port"]);
    check(&["--advertise", "https://me:1"], &["advertise", "\"https://me:1\"", "http://host:port"]);
    check(&["--internal-on-bind", "yes"], &["internal-on-bind", "\"yes\"", "true or false"]);
    let tls = ["--tls-certificate", "bank.pem", "--tls-key", "bank.key", "--internal-on-bind", "true"];
    check(&tls, &["internal-on-bind", "\"true\"", "false with tls-certificate", "plain HTTP"]);
    check(&["--name-prefix", "my-bank"], &["name-prefix", "\"my-bank\"", "lower-case letters and digits"]);
    check(&["--posting-age-target-s", "0"], &["posting-age-target-s", "\"0\"", "from 1 to 86400"]);
    check(&["--worker-rate", "1.5"], &["worker-rate", "\"1.5\"", "from 1 to 1000000"]);
    check(&["--workers-max", "0"], &["workers-max", "\"0\"", "from 1 to 1000"]);
    check(&["--workers-min", "9"], &["workers-min", "\"9\"", "at most workers-max, which is 8"]);
    check(&["--workers-floor", "* 7 * * MON"], &["workers-floor", "cron expression = number"]);
    check(&["--workers-floor", "* 77 * * MON = 3"], &["workers-floor", "* 77 * * MON = 3", "0..=23"]);
    check(&["--workers-floor", "* 7 * * MON = 9"], &["workers-floor", "at most workers-max, which is 8"]);
    check(&["--time-zone", "Berlin"], &["time-zone", "\"Berlin\"", "Europe/Berlin"]);
    check(&["--scale-down-delay-s", "3601"], &["scale-down-delay-s", "\"3601\"", "from 0 to 3600"]);
    check(&["--price-queue", "0,004"], &["price-queue", "\"0,004\"", "US dollars for 10000 operations"]);
    check(&["--log-format", "xml"], &["log-format", "\"xml\"", "text or json"]);
    check(&["--storage", "postgres:x"], &["storage", "sqlite:<file>"]);
    check(&["--storage", "sqlite:"], &["storage", "sqlite:<file>", "a file and no folder"]);
    check(&["--storage", "sqlite::memory:"], &["storage", "a store in memory does not exist"]);
    check(&["--storage", "sqlite://bank.db"], &["storage", "no URL"]);
    for folder in ["sqlite:data/", "sqlite:/", "sqlite:.", "sqlite:data/..", "sqlite:data/."] {
        check(&["--storage", folder], &["storage", "a file and no folder"]);
    }
    check(&["--storage", "azure:nonsense"], &["storage", "connection string"]);
    check(&["--config", "/nowhere/postonce.toml"], &["/nowhere/postonce.toml", "cannot be read"]);
    let unknown = file("visibility_timeout = 7\n");
    check(
        &["--config", unknown.path().to_str().unwrap()],
        &["\"visibility_timeout\"", "visibility_timeout_s"],
    );
    let broken = file("visibility_timeout_s = \n");
    check(&["--config", broken.path().to_str().unwrap()], &["is not TOML: line 1"]);
}

#[test]
fn all_errors_are_reported_at_once() {
    let file = file("queue_count = 65\nvisibility_timeout = 7\nworkers_min = 9\n");
    let path = file.path().to_str().unwrap();
    let arguments = [
        "--config",
        path,
        "--bind",
        "localhost",
        "--receivers-min",
        "9",
        "--tls-key",
        "key",
        "--ring-secret",
        "x",
    ];
    let errors = in_force(&arguments, &["POSTONCE_STORE", "POSTONCE_URL"]).unwrap_err();
    let texts = errors.texts();
    let beginnings = [
        "the configuration file has \"visibility_timeout\"",
        "the environment has POSTONCE_STORE,",
        "bind is",
        "queue-count is \"65\" (in the configuration file)",
        "ring-secret is \"(not shown)\"",
        "workers-min is \"9\"",
        "tls-key is",
        "receivers-max is",
    ];
    assert_eq!(texts.len(), beginnings.len(), "{texts:#?}");
    for (text, beginning) in texts.iter().zip(beginnings) {
        assert!(text.starts_with(beginning), "{text}: {beginning}");
    }
    let message = errors.to_string();
    assert!(message.starts_with("the configuration has 8 errors:\n- the configuration file"), "{message}");
    // The value that workers-min must not exceed is unknown.
    let texts = read(&["--workers-min", "9", "--workers-max", "many"]).unwrap_err().texts();
    assert!(texts.len() == 1 && texts[0].starts_with("workers-max is"), "{texts:?}");
}

#[test]
fn the_values_in_force_have_their_origin_and_no_secrets() {
    let file = file("queue_count = 3\nring_secret = \"hunter2hunter2hunter2\"\nlog = \"warn\"\n");
    let path = file.path().to_str().unwrap();
    let (_, settings) = in_force(&["--config", path, "--log", "debug"], &[]).unwrap();
    let find = |name: &str| settings.iter().find(|setting| setting.name == name).unwrap();
    let check = |name: &str, value: Option<&str>, code: &str, place: &str| {
        let found = find(name);
        assert_eq!(
            (found.value.as_deref(), found.origin.code(), found.place().as_str()),
            (value, code, place)
        );
    };
    check("queue-count", Some("3"), "file", path);
    check("ring-secret", Some("(not shown)"), "file", path);
    check("log", Some("debug"), "command_line", "--log");
    check("bind", Some("127.0.0.1:8080"), "default", "default");
    check("connections-per-address-max", Some("2048"), "default", "default");
    check("backup-folder", None, "default", "default");
    check("storage", Some("sqlite:./postonce-data/postonce.db"), "default", "default");
    assert_eq!((find("bind").group.as_str(), find("price-queue").group.as_str()), ("HTTP", "Prices"));
    let store = "azure:UseDevelopmentStorage=true";
    let (_, settings) = in_force(&["--storage", store], &[]).unwrap();
    let shown =
        |name: &str| settings.iter().find(|setting| setting.name == name).unwrap().value.clone().unwrap();
    assert_eq!((shown("storage"), shown("queue-count")), ("azure:(not shown)".to_owned(), "4".to_owned()));
}

#[test]
fn settings_are_hidden_in_the_help_of_commands_and_listed_by_their_own() {
    let mut command = add_settings(Command::new("test"));
    let help = command.render_help().to_string();
    assert!(help.contains("--help-settings") && help.contains("--config"), "{help}");
    assert!(!help.contains("--queue-count"), "{help}");
    let help = settings::settings_help().render_help().to_string();
    for part in [
        "--queue-count",
        "POSTONCE_QUEUE_COUNT",
        "Worker:",
        "TLS:",
        "--config",
        "POSTONCE_INGEST_NAME_POLL_MAX_MS",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn errors_do_not_quote_an_invalid_file() {
    let broken = file("log = \"info\"\nbootstrap_key = \"po_a-key-that-is-secret\nbind = 1\n");
    let refused = read(&["--config", broken.path().to_str().unwrap()]).unwrap_err();
    for message in [format!("{refused}"), format!("{refused:?}")] {
        assert!(message.contains("line 2") && !message.contains("that-is-secret"), "{message}");
    }
}

#[test]
fn a_file_can_contain_texts_numbers_and_booleans() {
    let file = file("internal_on_bind = false\nqueue_count = \"3\"\nprice-queue = 0.5\ntls_key = \"\"\n");
    let arguments = ["--config", file.path().to_str().unwrap()];
    let refused = read(&arguments).unwrap_err().to_string();
    assert!(refused.contains("tls-key is \"\" (in the configuration file)"), "{refused}");
    let config = read(&[arguments[0], arguments[1], "--tls-key=key", "--tls-certificate=pem"]).unwrap();
    assert_eq!((config.internal_on_bind, config.queue_count, config.tls.is_some()), (false, 3, true));
    assert_eq!(config.prices.of(PriceKind::Queue, 10_000).usd(), "0.500000000");
}

#[test]
fn a_file_has_each_setting_once_and_with_a_value_of_its_type() {
    for (text, expected) in [
        ("queue_count = 2\nqueue-count = 8\n", "the configuration file has queue_count twice"),
        ("name_prefix = true\n", "name-prefix is \"true\" (in the configuration file)"),
        ("log = false\n", "it must be a text in quotes"),
        ("backup_folder = 5\n", "it must be a text in quotes"),
        ("anchor_folder = [\"a\"]\n", "it must be a text in quotes"),
        ("otlp_ca = 2026-01-01\n", "otlp-ca is \"2026-01-01\""),
        ("ring_secret = 1234567890123456\n", "ring-secret is \"(not shown)\""),
        ("queue_count = [3]\n", "it must be a whole number from 1 to 64"),
        ("queue_count = true\n", "it must be a whole number from 1 to 64"),
        ("internal_on_bind = 1\n", "it must be true or false"),
        ("immediate_posting = true\n", "it must be on or off"),
    ] {
        let texts = read(&["--config", file(text).path().to_str().unwrap()]).unwrap_err().texts();
        let [refused] = texts.as_slice() else { panic!("{text}: {texts:?}") };
        assert!(refused.contains(expected), "{text}: {refused}");
    }
}

#[test]
fn client_certificates_require_tls_and_authorities() {
    let tls = |arguments: &[&str]| read(arguments).map(|config| config.tls);
    let pair = ["--tls-certificate=pem", "--tls-key=key"];
    let check = |arguments: &[&str], setting: &str, needs: &str| {
        let refused = tls(arguments).unwrap_err().to_string();
        assert!(refused.starts_with(setting) && refused.contains(needs), "{refused}");
    };
    check(&pair[..1], "tls-certificate", "needs tls-key");
    check(&pair[1..], "tls-key", "needs tls-certificate");
    check(&["--tls-client-ca=ca"], "tls-client-ca", "needs TLS");
    check(&["--tls-client-certificates=required"], "tls-client-certificates", "needs TLS");
    let required = "--tls-client-certificates=required";
    check(&[pair[0], pair[1], required], "tls-client-certificates", "needs tls-client-ca");
    assert_eq!(tls(&["--tls-client-certificates=optional"]).unwrap(), None);
    assert_eq!(tls(&pair).unwrap().unwrap().clients, None);
    let clients = tls(&[pair[0], pair[1], "--tls-client-ca=ca", required]).unwrap().unwrap().clients;
    assert_eq!(clients, Some(TlsClients { authorities: "ca".into(), required: true }));
}

#[test]
fn settings_of_the_collector_fit_together() {
    let check = |arguments: &[&str], setting: &str, needs: &str| {
        let refused = read(arguments).unwrap_err().to_string();
        assert!(refused.starts_with(setting) && refused.contains(needs), "{refused}");
    };
    let with_path = "--otlp-endpoint=http://c/otlp";
    check(&["--otlp-ca=ca"], "otlp-ca", "https://");
    check(&[with_path, "--otlp-ca=ca"], "otlp-ca", "https://");
    drop(read(&[with_path]).unwrap());
    drop(read(&["--otlp-endpoint=https://c/", "--otlp-ca=ca"]).unwrap());
}

#[test]
fn the_help_contains_every_setting_with_its_variable_and_range() {
    let command = add_settings(Command::new("test"));
    let others = [Some("config"), Some("help-settings")];
    let settings = command.get_arguments().filter(|arg| !others.contains(&arg.get_long()));
    let mut ranges = 0;
    for arg in settings {
        let (name, help) = (arg.get_long().unwrap(), arg.get_help().unwrap().to_string());
        let variable = format!("POSTONCE_{}", name.replace('-', "_").to_uppercase());
        assert_eq!(arg.get_env().unwrap(), variable.as_str());
        assert!(arg.get_help_heading().is_some() && arg.is_global_set(), "{name}");
        let Some(range) = help.split(" from ").find(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        else {
            continue;
        };
        let numbers = range.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
        let numbers: Vec<i64> = numbers.take(2).map(|number| number.parse().unwrap()).collect();
        let (least, most) = (numbers[0], numbers[1]);
        ranges += 1;
        for (value, is_allowed) in [(least - 1, false), (least, true), (most, true), (most + 1, false)] {
            let refused = match read(&[&format!("--{name}={value}")]) {
                Ok(_) => false,
                // Some values are refused because of another setting.
                Err(refused) => {
                    let refused = refused.to_string();
                    refused.starts_with(name) && refused.contains(&format!("from {least} to {most}"))
                }
            };
            assert_eq!(refused, !is_allowed, "--{name}={value}: {help}");
        }
    }
    assert_eq!(ranges, 42);
}

#[test]
fn scaling_and_prices_are_read() {
    let arguments = ["--workers-floor", "0-59 7-9 * * MON = 4", "--time-zone", "Europe/Berlin"];
    let policy = read(&arguments).unwrap().scaling;
    let monday_at_seven = Timestamp::parse("2026-11-23T07:00:00+01:00").unwrap();
    assert_eq!((policy.floors.floor(monday_at_seven), policy.floors.highest()), (4, 4));
    assert_eq!((policy.age_target, policy.worker_rate), (Duration::from_secs(10), 200));
    assert_eq!((policy.workers_min, policy.workers_max), (1, 8));
    assert_eq!(read(&[]).unwrap().prices, Prices::default());
    let prices = read(&["--price-blob-read", "0.005"]).unwrap().prices;
    assert_eq!(prices.of(PriceKind::BlobRead, 10_000).usd(), "0.005000000");
}

#[test]
fn secrets_are_not_shown() {
    let message = read(&["--bootstrap-key", "hunter2"]).unwrap_err().to_string();
    assert!(message.contains("bootstrap-key") && !message.contains("hunter2"), "{message}");
    for storage in [
        "azure:AccountKey=hunter2",
        "azure:SharedAccessSignature=hunter2",
        "Azure:hunter2",
        "azure:BlobEndpoint=https://bank.example/;SharedAccessSignature=sv=2026&sig=hunter2",
        "azure:https://bank.example/?sv=2026&sig=hunter2",
        "azure:https://bank.example/?hunter2=1;https://bank.example/?hunter2=2",
        "https://bank.example/?sv=2026&sig=hunter2",
        "azure:AccountName=bank;AccountKey=a2V5;TableEndpoint=https://bank.example/?sig=hunter2",
        "azure:AccountName=hunter2!;AccountKey=a2V5",
    ] {
        let message = read(&["--storage", storage]).unwrap_err().to_string();
        assert!(message.contains("storage is \"(not shown)\"") && !message.contains("hunter2"), "{message}");
    }
    let message = read(&["--ring-secret", "hunter2"]).unwrap_err().to_string();
    assert!(message.contains("ring-secret") && message.contains("at least 16"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
    let message = read(&["--anchor-key", "hunter2"]).unwrap_err().to_string();
    assert!(message.contains("anchor-key is \"(not shown)\"") && !message.contains("hunter2"), "{message}");
    let seed = "aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMmh1bnQ=";
    assert!(!format!("{:?}", read(&["--anchor-key", seed]).unwrap()).contains(seed));
    let secret = "hunter2hunter2hunter2";
    let config = read(&["--bootstrap-key", secret, "--ring-secret", secret]).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_password_in_a_url_is_in_no_error_and_no_list() {
    for (setting, value) in [
        ("otlp-endpoint", "http://ada:Zq9x@collector:4318"),
        ("otlp-endpoint", "http://collector:4318?key=Zq9x"),
        ("advertise", "http://ada:Zq9x@10.0.0.7:8081"),
        ("advertise", "ada:Zq9x@10.0.0.7:8081"),
        ("public-address", "https://ada:Zq9x@bank.example"),
        ("bind", "ada:Zq9x@127.0.0.1:8080"),
        ("trusted-proxies", "http://ada:Zq9x@192.0.2.1"),
    ] {
        let errors = read(&[&format!("--{setting}={value}")]).unwrap_err().to_string();
        assert!(errors.contains(setting) && errors.contains("(not shown)"), "{errors}");
        assert!(!errors.contains("Zq9x"), "{errors}");
        let file = file(&format!("{} = {value:?}\n", setting.replace('-', "_")));
        let errors = read(&["--config", file.path().to_str().unwrap()]).unwrap_err().to_string();
        assert!(errors.contains(setting) && !errors.contains("Zq9x"), "{errors}");
    }
    let storage = "azure:BlobEndpoint=https://a:Zq9x@b;QueueEndpoint=https://q;TableEndpoint=https://t";
    let errors = read(&["--storage", storage]).unwrap_err().to_string();
    assert!(errors.contains("BlobEndpoint") && !errors.contains("Zq9x"), "{errors}");
}

#[test]
fn line_ends_after_a_secret_do_not_count() {
    let config = read(&["--bootstrap-key=a-key-of-16-characters\r\n", "--storage=sqlite:a.db\r"]).unwrap();
    assert_eq!(config.bootstrap_key.unwrap().expose_secret(), "a-key-of-16-characters");
    assert!(matches!(&config.storage, StorageConfig::Sqlite { path } if path.ends_with("a.db")));
    let errors = read(&["--bootstrap-key=a-key-of-16\r-characters"]).unwrap_err().to_string();
    assert!(errors.contains("bootstrap-key") && !errors.contains("a-key"), "{errors}");
}

#[test]
fn a_configuration_file_is_bounded() {
    let errors = read(&["--config", "/dev/zero"]).unwrap_err().to_string();
    assert!(
        errors.contains("/dev/zero cannot be read") && errors.contains("more than 1048576 bytes"),
        "{errors}"
    );
    let errors = read(&["--config", "/"]).unwrap_err().to_string();
    assert!(errors.contains("/ cannot be read"), "{errors}");
}
