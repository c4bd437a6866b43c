//! The services of the file for Compose on this machine, with the variables, arguments, secrets and ports of the file: the programs
//! as processes, or the images as containers. Each service has a loopback address of its own instead of a host name.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use postonce_tests::azurite_install;
use postonce_tests::container::{Container, Start};
use postonce_tests::deployment::{self, texts};
use postonce_tests::images::Images;
use postonce_tests::prelude::*;
use postonce_tests::promtool;
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
            machine.write_secret(name, &machine.with_addresses(value));
        }
        machine
    }

    /// Writes a secret as the README does: readable for the user in a container, and protected by the folder on the machine.
    fn write_secret(&self, name: &str, value: &str) {
        fs::write(self.secret(name), value).expect("a file");
        fs::set_permissions(self.secret(name), Permissions::from_mode(0o444)).expect("a mode");
    }

    fn secret(&self, name: &str) -> PathBuf {
        self.folder.path().join("secrets").join(name)
    }

    /// The loopback address of a service.
    pub fn address(&self, service: &str) -> &str {
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

    /// The settings of each service of a program.
    fn settings_of(&self, binary: Binary) -> Vec<Settings> {
        let settings = |(name, service)| {
            variables(service).into_iter().fold(Settings::default(), |settings, (variable, value)| {
                settings.with(variable, self.on_machine(name, value))
            })
        };
        self.compose.services_of(binary.name()).into_iter().map(settings).collect()
    }

    /// Starts the storage.
    pub fn start_azurite(&self) -> Process {
        let services = self.compose.services();
        let command = texts(&services[AZURITE]["command"]);
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
        let settings = self.settings_of(binary).into_iter();
        settings.map(|settings| (self.start_one(binary, &settings), settings)).collect()
    }

    /// Starts one service.
    pub fn start_one(&self, binary: Binary, settings: &Settings) -> Service {
        Service::start(binary, settings, &[], self.folder.path())
    }

    /// Starts all services of a program as containers of its image, each with its name.
    pub fn start_containers(&self, binary: Binary) -> Vec<(String, Container)> {
        let services = self.compose.services_of(binary.name()).into_iter();
        services.map(|(name, _)| (name.to_owned(), self.start_container(binary, name))).collect()
    }

    /// Starts one service as a container of the image of its program, with the variables and the secrets that the file gives it.
    pub fn start_container(&self, binary: Binary, name: &str) -> Container {
        let services = self.compose.services();
        let service = services[name];
        assert!(service["command"].is_null() && service["entrypoint"].is_null(), "{name}: that of the image");
        let value = |value: &str| self.with_addresses(value.replace("0.0.0.0", self.address(name)));
        let variables = variables(service).into_iter();
        let secrets = texts(&service["secrets"]);
        let start = Start {
            on_network_of_machine: true,
            variables: variables.map(|(variable, found)| (variable.to_owned(), value(found))).collect(),
            files: secrets.map(|secret| (format!("{SECRETS}{secret}"), self.secret(secret))).collect(),
        };
        Container::start(name, Images::shared().of(binary), &start)
    }

    /// Starts Prometheus with its configuration, the rules and a key for the metrics. Returns its address, too.
    pub fn start_prometheus(&self, key: &str) -> (Process, String) {
        const NAME: &str = "prometheus";
        self.write_secret("metrics-key", key);
        let services = self.compose.services();
        let service = services[NAME];
        let folder = self.folder.path().display().to_string();
        for volume in texts(&service["volumes"]).filter(|volume| volume.starts_with('.')) {
            let [source, target, "ro"] = *volume.split(':').collect::<Vec<_>>() else { panic!("{volume}") };
            let content = deployment::read(&format!("{FOLDER}/{source}"));
            let content = self.addresses.iter().fold(content, |content, (name, address)| {
                content.replace(&format!("\"{name}:"), &format!("\"{address}:"))
            });
            let target = PathBuf::from(format!("{folder}{target}"));
            fs::create_dir_all(target.parent().expect("a folder")).expect("a folder");
            fs::write(target, content.replace(SECRETS, &format!("{folder}/secrets/"))).expect("a file");
        }
        let listen = format!("{}:9090", self.address(NAME));
        let arguments =
            texts(&service["command"]).map(|argument| argument.replace("=/", &format!("={folder}/")));
        let launch = Launch::of(NAME, promtool::prometheus(), self.folder.path()).arguments(arguments);
        let launch = launch.arguments([format!("--web.listen-address={listen}")]);
        (Process::start(&launch), format!("http://{listen}"))
    }

    /// Runs a command with the settings of a process, and returns the lines that it prints.
    pub fn run(&self, binary: Binary, settings: &Settings, arguments: &[&str]) -> Vec<String> {
        let launch = service::launch(binary, settings, arguments, self.folder.path());
        let (status, lines) = launch.run(wait::TIMEOUT);
        assert!(status.success(), "{arguments:?}: {}", lines.join("\n"));
        lines
    }

    /// Audits the whole store.
    pub fn has_no_finding(&self) {
        let settings = self.settings_of(Binary::Web);
        let verified = self.run(Binary::Web, settings.first().expect("web"), &["verify"]).join("\n");
        assert!(verified.contains("findings: 0"), "{verified}");
    }
}

/// A client of a web process, with the key that the README makes.
pub fn client_of(address: &str) -> Client {
    Client::new(address, SECRET)
}
