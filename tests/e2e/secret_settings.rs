//! Secret settings: none is shown anywhere, also if it is malformed, and each can come from a file, which is read again when it
//! changes. (`identity` has the files of the storage and of the secret between processes, `tls` that of the private key.)

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use postonce_shared::config::add_settings;
use postonce_tests::certificates::{Authority, TlsFiles};
use postonce_tests::collector::Collector;
use postonce_tests::prelude::*;
use postonce_tests::scenario::fresh_prefix;
use postonce_tests::shared_access::{ALL, LATER, connection_string, signature};
use serde_json::Value;
use tempfile::TempDir;

/// A mark in secrets; nothing else contains it.
const MARK: &str = "Zq9x";
const BOOTSTRAP: &str = "Zq9x-bootstrap-key-of-this-test";
const SEED: [u8; 32] = [0x5a; 32];
/// The scrubber begins within a minute after the start.
const ROUND_MAX: Duration = Duration::from_secs(150);
const BOTH: [Binary; 2] = [Binary::Web, Binary::Worker];

/// A valid value of each secret setting, and the part of it that nobody may see.
fn secrets() -> BTreeMap<&'static str, (String, String)> {
    let signature = signature(ALL, LATER);
    let code = signature.rsplit("sig=").next().expect("a code").to_owned();
    let storage = format!("azure:{}", connection_string(Azurite::shared().ports(), &signature));
    let ring = "Zq9x-ring-secret-of-this-test".to_owned();
    let seed = STANDARD.encode(SEED);
    BTreeMap::from([
        ("storage", (storage, code)),
        ("ring-secret", (ring, MARK.to_owned())),
        ("bootstrap-key", (BOOTSTRAP.to_owned(), MARK.to_owned())),
        ("anchor-key", (seed.clone(), seed)),
        ("otlp-headers", ("authorization=Bearer%20Zq9x-key".to_owned(), MARK.to_owned())),
    ])
}

fn variable(setting: &str) -> String {
    format!("POSTONCE_{}", setting.replace('-', "_").to_uppercase())
}

/// Settings without secrets, for processes on Azurite that export traces to no collector.
fn plain() -> Settings {
    Settings::default()
        .with("POSTONCE_BIND", "127.0.0.1:0")
        .with("POSTONCE_WORKER_BIND", "127.0.0.1:0")
        .with("POSTONCE_AZURE_IDENTITY", "sas")
        .with("POSTONCE_NAME_PREFIX", fresh_prefix())
        .with("POSTONCE_OTLP_ENDPOINT", "http://127.0.0.1:1")
        .with("POSTONCE_TRACE_SAMPLING", "1")
        .with("POSTONCE_LOG", "trace")
        .with("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=Zq9x-tenant")
        .with("OTEL_BSP_SCHEDULE_DELAY", "100")
        .with("POSTONCE_API_KEY", "Zq9x-key-of-a-client")
}

fn run(binary: Binary, settings: &Settings, arguments: &[&str], directory: &Path) -> (bool, String) {
    let (status, lines) = launch(binary, settings, arguments, directory).run(wait::TIMEOUT);
    (status.success(), lines.join("\n"))
}

#[test]
fn these_are_all_secret_settings() {
    let command = add_settings(clap::Command::new("postonce"));
    let secret = command.get_arguments().filter(|setting| setting.is_hide_env_values_set());
    let secret: BTreeSet<&str> = secret.filter_map(clap::Arg::get_long).collect();
    assert_eq!(secret, secrets().into_keys().collect());
}

#[tokio::test]
async fn no_secret_is_in_logs_metrics_answers_and_outputs() {
    let directory = TempDir::with_prefix("postonce-secrets-").expect("a directory");
    let secrets = secrets();
    let settings = secrets.iter().fold(plain(), |all, (name, (value, _))| all.with(&variable(name), value));
    let mut worker = Service::start(Binary::Worker, &settings, &[], directory.path());
    let mut web = Service::start(Binary::Web, &settings, &["--no-worker"], directory.path());
    let client = Client::new(web.address(), BOOTSTRAP);
    client.until_ready().await;
    let probes = [ProcessProbe::of(worker.address()), ProcessProbe::with_key(web.address(), BOOTSTRAP)];
    probes[0].until_ready().await;
    let account = fresh_account();
    client.open(account).await;
    drop(client.submit_until_accepted(account, fresh_id(), &Submission::deposit("1.00")).await);

    let mut shown = Vec::new();
    web.until_logged("Traces are lost until").await;
    for probe in probes {
        shown.push(probe.metrics().await);
        shown.push(format!("{:?}", probe.health().await));
    }
    for path in ["/livez", "/v1/admin/workers", "/v1/admin/queues", "/openapi.json", "/console"] {
        shown.push(format!("{:?}", client.get(path).await));
    }
    for binary in BOTH {
        for arguments in [&["--help"][..], &["--help-settings"], &["--version"], &["health"]] {
            shown.push(run(binary, &settings, arguments, directory.path()).1);
        }
    }
    fs::write(directory.path().join("batch.csv"), "").expect("a file");
    for arguments in [
        &["config"][..],
        &["config", "--json"],
        &["config", "check"],
        &["batches", "submit", "--help"],
        &["batches", "submit", "batch.csv", "--url", web.address()],
        &["workers"],
        &["keys", "list"],
    ] {
        shown.push(run(Binary::Web, &settings, arguments, directory.path()).1);
    }
    for process in [&mut worker, &mut web] {
        process.drain().await;
        let lines = process.log().lines();
        assert!(lines.iter().any(|line| line.contains("starts on azure:(not shown)")), "{lines:#?}");
        shown.extend(lines);
    }
    let printed = shown.join("\n");
    assert!(
        printed.contains("(not shown)") && printed.contains("postonce_") && printed.contains("--anchor-key")
    );
    for (name, (_, secret)) in secrets {
        let found: Vec<&String> = shown.iter().filter(|text| text.contains(&secret)).collect();
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

/// Malformed values of a secret setting.
fn malformed(setting: &str) -> &'static [&'static str] {
    match setting {
        "storage" => &[
            "Zq9x",
            "azure:Zq9x",
            "azure:AccountName=a;AccountKey=Zq9x!",
            "azure:AccountName=Zq9x;AccountKey=Zq9x",
            "azure:AccountName=a;SharedAccessSignature=Zq9x",
            "azure:AccountName=a;SharedAccessSignature=sv=1&sig=Zq9x\tZq9x",
            "azure:BlobEndpoint=Zq9x;QueueEndpoint=https://Zq9x?Zq9x;TableEndpoint=https://t",
        ],
        "otlp-headers" => &["Zq9x", "Zq9x b=c", "a=Zq9x%0a", "a=Zq9x,", "a=Zq9x;b=Zq9x", "a=1,A=Zq9x"],
        "anchor-key" => &["Zq9x", "WnE5eA=="],
        _ => &["Zq9x", "Zq9x,with spaces and more of them"],
    }
}

#[test]
fn a_malformed_secret_is_in_no_error() {
    let directory = TempDir::with_prefix("postonce-secrets-").expect("a directory");
    let file = directory.path().join("value");
    let toml = directory.path().join("settings.toml");
    let settings = || Settings::default().with("POSTONCE_OTLP_ENDPOINT", "http://127.0.0.1:1");
    let check = |binary: Binary, settings: &Settings, arguments: &[&str], name: &str| {
        let (succeeded, printed) = run(binary, settings, arguments, directory.path());
        assert!(!succeeded && printed.contains(name), "{name} {arguments:?}: {printed}");
        let found = [MARK, "WnE5eA"].into_iter().find(|secret| printed.contains(secret));
        assert_eq!(found, None, "{name}: {printed}");
    };
    for name in secrets().into_keys() {
        for value in malformed(name) {
            fs::write(&file, value).expect("a file");
            let from_file = settings().with(&format!("{}_FILE", variable(name)), file.to_string_lossy());
            let quoted = Value::from(*value).to_string();
            fs::write(&toml, format!("{} = {quoted}\n", name.replace('-', "_"))).expect("a file");
            let from_toml = settings().with("POSTONCE_CONFIG", toml.to_string_lossy());
            for settings in [settings().with(&variable(name), *value), from_file, from_toml] {
                for binary in BOTH {
                    check(binary, &settings, &[], name);
                }
                check(Binary::Web, &settings, &["config"], name);
                check(Binary::Web, &settings, &["config", "check", "--json"], name);
            }
            check(Binary::Web, &settings(), &[&format!("--{name}={value}")], name);
        }
        // A line that is no TOML.
        fs::write(&toml, format!("{} = \"Zq9x\n", name.replace('-', "_"))).expect("a file");
        check(Binary::Web, &settings().with("POSTONCE_CONFIG", toml.to_string_lossy()), &[], "settings.toml");
    }
}

/// A key whose line ends were lost is one long line, which the error of a parser would repeat.
#[test]
fn a_malformed_private_key_is_in_no_error() {
    let directory = TempDir::with_prefix("postonce-secrets-").expect("a directory");
    let files = TlsFiles::within(directory.path());
    files.write(&Authority::named("Test").certify("localhost"));
    let pem = fs::read_to_string(&files.key).expect("a key");
    let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let settings = Settings::default()
        .with("POSTONCE_TLS_CERTIFICATE", files.certificate.to_string_lossy())
        .with("POSTONCE_TLS_KEY", files.key.to_string_lossy());
    for malformed in
        [pem.replace('\n', ""), pem.replace("-----END", "-END"), pem.replacen("-----\n", "\n", 1)]
    {
        fs::write(&files.key, &malformed).expect("a file");
        let (succeeded, printed) = run(Binary::Web, &settings, &["config", "check"], directory.path());
        assert!(!succeeded && printed.contains("tls-key"), "{printed}");
        // Also as numbers of bytes.
        let bytes = body.bytes().take(8).map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ");
        assert!(!printed.contains(&body[..8]) && !printed.contains(&bytes), "{printed}");
    }
}

#[test]
fn a_password_in_a_url_is_in_no_output() {
    let directory = TempDir::with_prefix("postonce-secrets-").expect("a directory");
    for (name, value) in [
        ("POSTONCE_OTLP_ENDPOINT", "http://ada:Zq9x@127.0.0.1:4318"),
        ("POSTONCE_ADVERTISE", "http://ada:Zq9x@10.0.0.7:8081"),
        ("POSTONCE_PUBLIC_ADDRESS", "https://ada:Zq9x@bank.example"),
    ] {
        let settings = Settings::default().with(name, value);
        for binary in BOTH {
            let (succeeded, printed) = run(binary, &settings, &[], directory.path());
            assert!(!succeeded && printed.contains("(not shown)@") && !printed.contains(MARK), "{printed}");
        }
        for arguments in [&["config"][..], &["config", "check"], &["config", "check", "--json"]] {
            let (succeeded, printed) = run(Binary::Web, &settings, arguments, directory.path());
            assert!(!succeeded && printed.contains("(not shown)@") && !printed.contains(MARK), "{printed}");
        }
    }
}

#[test]
fn each_secret_comes_from_a_file() {
    let directory = TempDir::with_prefix("postonce-secrets-").expect("a directory");
    let mut settings = plain();
    for (name, (value, _)) in secrets() {
        let path = directory.path().join(name);
        fs::write(&path, format!("{value}\n")).expect("a file");
        settings = settings.with(&format!("{}_FILE", variable(name)), path.to_string_lossy());
    }
    let (succeeded, printed) = run(Binary::Web, &settings, &["config", "--json"], directory.path());
    assert!(succeeded, "{printed}");
    let shown: Value = serde_json::from_str(&printed).expect("JSON");
    let of_files = shown["settings"].as_array().expect("settings").iter().filter_map(|setting| {
        assert_eq!(setting["origin"] == "secret_file", setting["value"].to_string().contains("(not shown)"));
        (setting["origin"] == "secret_file").then(|| setting["name"].as_str()).flatten()
    });
    assert_eq!(of_files.collect::<BTreeSet<_>>(), secrets().into_keys().collect());
}

/// A file with a secret.
struct SecretFile {
    path: PathBuf,
    _directory: TempDir,
}

impl SecretFile {
    fn new(secret: &str) -> Self {
        let directory = TempDir::with_prefix("postonce-secrets-").expect("a directory");
        let file = Self { path: directory.path().join("secret"), _directory: directory };
        file.write(secret);
        file
    }

    fn write(&self, secret: &str) {
        fs::write(&self.path, format!("{secret}\n")).expect("a file");
    }

    /// The path, as the value of a variable.
    fn path(&self) -> &str {
        self.path.to_str().expect("a plain path")
    }
}

#[tokio::test]
async fn the_next_anchor_is_signed_with_the_key_that_is_in_the_file_by_then() {
    let seeds = [SEED, [7; 32]].map(|seed| STANDARD.encode(seed));
    let file = SecretFile::new(&seeds[0]);
    let plan = Plan::on(StoreKind::Sqlite).with("POSTONCE_ANCHOR_KEY_FILE", file.path());
    let bank = plan.with("POSTONCE_SCRUBBER_OPERATIONS_PER_DAY", "10000").start().await;
    bank.client(0).open(fresh_account()).await;
    // The first round begins half a minute after the start.
    file.write("Zq9x");
    bank.webs[0].until_logged("The present anchor-key stays in use").await;
    file.write(&seeds[1]);
    bank.webs[0].until_logged("Read anchor-key again from ").await;
    let anchor = wait::until("an anchor is made", ROUND_MAX, async || {
        let printed = bank.operate(&["anchors"]);
        let anchor = printed.lines().find(|line| line.starts_with("{\"statement\":"));
        anchor.map(|anchor| serde_json::from_str::<Value>(anchor).expect("JSON")).ok_or(printed.clone())
    })
    .await;
    let second = SigningKey::from_bytes(&[7; 32]).verifying_key();
    assert_eq!(anchor["public_key"], STANDARD.encode(second.as_bytes()).as_str());
    let lines = bank.webs[0].log().lines();
    let shown = |line: &String| line.contains(MARK) || seeds.iter().any(|seed| line.contains(seed));
    assert!(!lines.iter().any(shown), "{lines:#?}");
}

#[tokio::test]
async fn spans_are_sent_with_the_headers_that_are_in_the_file_by_then() {
    let collector = Collector::start();
    let file = SecretFile::new("authorization=Bearer%20first");
    let bank = Plan::on(StoreKind::Sqlite)
        .with("POSTONCE_OTLP_ENDPOINT", &collector.endpoint())
        .with("POSTONCE_OTLP_HEADERS_FILE", file.path())
        .with("POSTONCE_TRACE_SAMPLING", "1")
        // The setting comes first.
        .with("OTEL_EXPORTER_OTLP_HEADERS", "authorization=environment,x-tenant=%2")
        .with("OTEL_BSP_SCHEDULE_DELAY", "100")
        .start()
        .await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let until_sent_with = async |authorization: &str| {
        wait::until(authorization, wait::TIMEOUT, async || {
            drop(client.balance(account).await);
            let spans = collector.spans();
            let is_sent = spans.last().is_some_and(|span| span.authorization == authorization);
            if is_sent { Ok(()) } else { Err(format!("{:?}", spans.last())) }
        })
        .await;
    };
    until_sent_with("Bearer first").await;
    bank.webs[0].until_logged("OTEL_EXPORTER_OTLP_HEADERS must be").await;
    file.write("Zq9x");
    bank.webs[0].until_logged("The present otlp-headers stays in use").await;
    file.write("authorization=Bearer%20second");
    until_sent_with("Bearer second").await;
    let sent: BTreeSet<String> = collector.spans().into_iter().map(|span| span.authorization).collect();
    assert_eq!(sent, BTreeSet::from(["Bearer first".to_owned(), "Bearer second".to_owned()]));
}
