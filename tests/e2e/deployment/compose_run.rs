//! The services of the file for Compose as processes of this machine, with the variables, arguments and ports of the
//! file. Each service has a loopback address of its own instead of a host name. Prometheus is not started: its targets are
//! read instead.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use postonce_tests::azurite_install;
use postonce_tests::binaries::Binary;
use postonce_tests::client::{Client, Submission};
use postonce_tests::deployment::{self, items, text};
use postonce_tests::process::{Launch, Process};
use postonce_tests::process_probe::ProcessProbe;
use postonce_tests::scenario::{fresh_account, fresh_id};
use postonce_tests::service::{self, Service, Settings};
use postonce_tests::wait;
use serde_json::Value;
use tempfile::TempDir;

use super::compose::{Compose, FOLDER, SECRETS, variables};
use super::manifests::AZURITE;

/// The value of each secret that the README makes.
pub const SECRET: &str = "secret-of-the-services-0123456789";

/// A machine on which the services run beside each other.
pub struct Machine {
    compose: Compose,
    /// The address of each service.
    addresses: BTreeMap<String, String>,
    folder: TempDir,
}

impl Machine {
    /// Prepares the secrets. `first` is the last part of the first loopback address: machines that run at the same time must not
    /// share addresses.
    pub fn prepare(first: u8) -> Self {
        let (compose, folder) = (Compose::read(), tempfile::tempdir().expect("a folder"));
        // Other test processes of this machine use other addresses.
        let [.., high, low] = std::process::id().to_be_bytes();
        let names: Vec<String> = compose.services().into_keys().map(str::to_owned).collect();
        let address = |number: u8| format!("127.{}.{low}.{number}", high.saturating_add(1));
        let addresses = names.into_iter().zip((first..=u8::MAX).map(address)).collect();
        let machine = Self { compose, addresses, folder };
        for part in ["secrets", "data"] {
            fs::create_dir(machine.folder.path().join(part)).expect("a folder");
        }
        for (name, file) in machine.compose.secrets() {
            // Those that the README makes are not part of the project.
            let is_made = file.starts_with("./secrets/");
            let read = || deployment::read(&format!("{FOLDER}/{file}"));
            let value = if is_made { SECRET.to_owned() } else { read() };
            fs::write(machine.secret(name), machine.with_addresses(value)).expect("a file");
        }
        machine
    }

    fn secret(&self, name: &str) -> PathBuf {
        self.folder.path().join("secrets").join(name)
    }

    fn address(&self, service: &str) -> &str {
        self.addresses.get(service).unwrap_or_else(|| panic!("there is no service {service}"))
    }

    /// Replaces the names of services in URLs.
    fn with_addresses(&self, text: String) -> String {
        self.addresses
            .iter()
            .fold(text, |text, (name, address)| text.replace(&format!("//{name}:"), &format!("//{address}:")))
    }

    /// A value as it is on this machine.
    fn on_machine(&self, service: &str, value: &str) -> String {
        let secrets = format!("{}/", self.folder.path().join("secrets").display());
        let value = value.replace(SECRETS, &secrets).replace("0.0.0.0", self.address(service));
        let data = self.folder.path().join("data").display().to_string();
        self.with_addresses(value).replace("=/data", &format!("={data}"))
    }

    fn settings(&self, name: &str, service: &Value) -> Settings {
        variables(service).into_iter().fold(Settings::default(), |settings, (variable, value)| {
            settings.with(variable, self.on_machine(name, value))
        })
    }

    /// Starts the storage.
    pub fn start_azurite(&self) -> Process {
        let services = self.compose.services();
        let command = items(&services[AZURITE]["command"]).iter().filter_map(Value::as_str);
        let arguments = command.skip(1).map(|argument| self.on_machine(AZURITE, argument));
        let launch = Launch::of(AZURITE, "node", self.folder.path())
            .arguments([azurite_install::program()])
            .arguments(arguments);
        let mut process = Process::start(&launch);
        let listens = "Azurite Table service is successfully listening";
        process.wait_for_line(listens, wait::TIMEOUT, |line| line.starts_with(listens).then_some(()));
        process
    }

    /// Starts all services of a program, with their settings.
    pub fn start(&self, binary: Binary) -> Vec<(Service, Settings)> {
        let services = self.compose.services_of(binary.name()).into_iter();
        let settings = services.map(|(name, service)| self.settings(name, service));
        settings.map(|settings| (self.start_one(binary, &settings), settings)).collect()
    }

    /// Starts one service.
    pub fn start_one(&self, binary: Binary, settings: &Settings) -> Service {
        Service::start(binary, settings, &[], self.folder.path())
    }

    /// Runs a command with the settings of a process, and returns the lines that it prints.
    pub fn run(&self, binary: Binary, settings: &Settings, arguments: &[&str]) -> Vec<String> {
        let launch = service::launch(binary, settings, arguments, self.folder.path());
        let (status, lines) = launch.run(wait::TIMEOUT);
        assert!(status.success(), "{arguments:?}: {}", lines.join("\n"));
        lines
    }
}

#[tokio::test]
async fn the_services_post_a_first_deposit_and_are_healthy() {
    let machine = Machine::prepare(1);
    let _azurite = machine.start_azurite();
    let (webs, workers) = (machine.start(Binary::Web), machine.start(Binary::Worker));
    for (worker, settings) in &workers {
        ProcessProbe::of(worker.address()).until_ready().await;
        machine.run(Binary::Worker, settings, &["health"]);
    }
    let clients: Vec<Client> = webs.iter().map(|(web, _)| Client::new(web.address(), SECRET)).collect();
    for (client, (_, settings)) in clients.iter().zip(&webs) {
        client.until_ready().await;
        machine.run(Binary::Web, settings, &["health"]);
    }

    // One deposit is posted by the process that receives it, one by a worker.
    let [first, second] = clients.as_slice() else { panic!("there are two web processes") };
    let account = fresh_account();
    first.open(account).await;
    drop(first.post(account, fresh_id(), &Submission::deposit("125.50")).await);
    let id = fresh_id();
    drop(second.submit_until_accepted(account, id, &Submission::deposit("1.00")).await);
    let answer = second.until_final(account, id).await;
    assert_eq!(answer.transaction_status(), "posted", "{answer:?}");
    assert_eq!(first.balance(account).await, "126.50");

    // The console is where operators are, at the port that the file publishes for them.
    let browser = reqwest::Client::builder().no_proxy().build().expect("a client");
    for (web, _) in &webs {
        let operators = web.operators_address().expect("it has an address for operators");
        assert!(operators.ends_with(":8081"), "{operators}");
        let page = browser.get(format!("{operators}/console/sign-in")).send().await.expect("an answer");
        let page = page.text().await.expect("a page");
        assert!(page.contains("API key"), "{page}");
    }

    // What Prometheus reads, with the key that the README makes.
    let (_, settings) = webs.first().expect("web");
    let add = ["partners", "add", "prometheus", "--all-accounts", "--scope", "metrics"];
    let printed = machine.run(Binary::Web, settings, &add);
    let key = printed.iter().find(|line| line.starts_with("po_")).expect("the key");
    for (name, port) in targets() {
        let address = format!("http://{}:{port}", machine.address(&name));
        let metrics = ProcessProbe::with_key(&address, key).metrics().await;
        assert!(metrics.contains("postonce_ready"), "{name}");
    }
}

/// The services and ports that Prometheus reads.
fn targets() -> Vec<(String, String)> {
    let documents = deployment::documents(&deployment::read(&format!("{FOLDER}/prometheus.yml")));
    let job = documents.first().expect("a document").pointer("/scrape_configs/0/static_configs");
    let groups = items(job.expect("a list of targets"));
    let targets = groups.iter().flat_map(|group| items(&group["targets"])).map(|target| text(target, ""));
    let target = |target: &str| target.split_once(':').map(|(name, port)| (name.to_owned(), port.to_owned()));
    let targets: Vec<_> = targets.filter_map(target).collect();
    assert_eq!(targets.len(), 4, "two processes of each kind: {targets:?}");
    targets
}
