//! The units for systemd: they are valid and hardened, and what they start works.

use std::fs;
use std::path::{Path, PathBuf};

use postonce_tests::prelude::*;
use postonce_tests::{systemd, wait, workspace};

const SERVICES: [&str; 2] = ["postonce.service", "postonce-backup.service"];
const TIMER: &str = "postonce-backup.timer";
/// A drop-in of the service.
const DROP_IN: &str = "anchor-key.conf";
/// Highest exposure of a service, in tenths (`systemd-analyze security`).
const EXPOSURE_MAX: &str = "20";
const KEY: &str = "bootstrap-key-of-the-units";

/// A machine whose folders are below a temporary one.
struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    /// Installs the files of `deploy/systemd`, with the paths of this machine.
    fn install() -> Self {
        let machine = Self { root: tempfile::tempdir().expect("a folder") };
        for folder in ["units", "etc/postonce", "var/lib/postonce", "var/backups/postonce"] {
            fs::create_dir_all(machine.root.path().join(folder)).expect("a folder");
        }
        for unit in SERVICES.into_iter().chain([TIMER]) {
            fs::write(machine.unit(unit), machine.paths_in(&source(unit))).expect("a file");
        }
        let drop_ins = machine.unit("postonce.service.d");
        fs::create_dir(&drop_ins).expect("a folder");
        fs::write(drop_ins.join(DROP_IN), machine.paths_in(&source(DROP_IN))).expect("a file");
        let settings = machine.root.path().join("etc/postonce/postonce.toml");
        fs::write(settings, machine.paths_in(&source("postonce.toml"))).expect("a file");
        machine
    }

    fn unit(&self, name: &str) -> PathBuf {
        self.root.path().join("units").join(name)
    }

    fn paths_in(&self, text: &str) -> String {
        let (root, program) = (self.root.path().display(), Binary::Web.path().display());
        let text = text.replace("/usr/local/bin/postonce-web", &program.to_string());
        ["/etc/postonce", "/var/lib/postonce", "/var/backups/postonce"]
            .into_iter()
            .fold(text, |text, path| text.replace(path, &format!("{root}{path}")))
    }

    /// The command of a service.
    fn command_of(&self, service: &str) -> Vec<String> {
        let unit = fs::read_to_string(self.unit(service)).expect("an installed unit");
        let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
        match command.split_once(" -c '") {
            Some((shell, script)) => {
                let script = script.strip_suffix('\'').expect("a quoted script").replace("%%", "%");
                vec![shell.to_owned(), "-c".to_owned(), script]
            }
            None => command.split(' ').map(str::to_owned).collect(),
        }
    }

    fn backups(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.root.path().join("var/backups/postonce")).expect("a folder");
        folder.map(|entry| entry.expect("an entry").path()).collect()
    }
}

fn source(name: &str) -> String {
    fs::read_to_string(workspace::root().join("deploy/systemd").join(name)).expect("a file of the project")
}

/// Runs a command to its end, and returns its output.
fn succeed(name: &str, command: &[String], directory: &Path) -> String {
    let (program, arguments) = command.split_first().expect("a program");
    let (status, lines) = Launch::of(name, program, directory).arguments(arguments).run(wait::TIMEOUT);
    assert!(status.success(), "{name}: {}", lines.join("\n"));
    lines.join("\n")
}

#[test]
fn the_units_are_valid_and_hardened() {
    let machine = Machine::install();
    let units = SERVICES.into_iter().chain([TIMER]).map(|unit| machine.unit(unit).display().to_string());
    let options = ["verify", "--man=no", "--recursive-errors=no"].map(str::to_owned);
    let (is_valid, output) = systemd::analyze(options.into_iter().chain(units));
    assert!(is_valid && output.is_empty(), "{output}");
    for service in SERVICES {
        let threshold = format!("--threshold={EXPOSURE_MAX}");
        let unit = machine.unit(service).display().to_string();
        let (is_hardened, output) =
            systemd::analyze(["security".to_owned(), "--offline=true".to_owned(), threshold, unit]);
        assert!(is_hardened, "{output}");
    }
}

#[test]
fn a_secret_is_a_credential_of_the_service_and_no_variable() {
    let drop_in = source(DROP_IN);
    let of = |name: &str| drop_in.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    let (credential, file) = of("LoadCredential=").split_once(':').expect("a file");
    let (variable, path) = of("Environment=").split_once('=').expect("a variable");
    assert_eq!((path, file), (&*format!("%d/{credential}"), "/etc/postonce/anchor-key"));
    // The folder of credentials, as the service sees it.
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join(credential), "WlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlo=\n")
        .expect("a file");
    let path = path.replace("%d", &folder.path().to_string_lossy());
    let settings = Settings::default().with(variable, path);
    let (status, lines) =
        service::launch(Binary::Web, &settings, &["config"], folder.path()).run(wait::TIMEOUT);
    let shown = lines.join("\n");
    let is_used = |line: &&String| line.contains("anchor-key") && line.contains("(not shown)");
    assert!(status.success() && lines.iter().any(|line| is_used(&line)), "{shown}");
    for unit in SERVICES {
        assert!(!source(unit).contains("EnvironmentFile"), "{unit}");
    }
}

#[tokio::test]
async fn the_service_posts_and_its_backup_is_restored() {
    let machine = Machine::install();
    let directory = machine.root.path().join("var/lib/postonce");
    let settings = Settings::default().with("POSTONCE_BIND", "127.0.0.1:0");
    let settings = settings.with("POSTONCE_BOOTSTRAP_KEY", KEY);
    let command = machine.command_of("postonce.service");
    let arguments: Vec<&str> = command.iter().skip(1).map(String::as_str).collect();
    let start = || Service::start(Binary::Web, &settings, &arguments, &directory);
    let mut service = start();
    let client = Client::new(service.address(), KEY);
    let account = fresh_account();
    client.open(account).await;
    drop(client.submit_and_wait(account, fresh_id(), &Submission::deposit("125.50")).await.expect(200));

    let output = succeed("the backup", &machine.command_of("postonce-backup.service"), &directory);
    let [backup] = machine.backups().try_into().unwrap_or_else(|files| panic!("{files:?}: {output}"));

    drop(client.submit_and_wait(account, fresh_id(), &Submission::deposit("1.00")).await.expect(200));
    assert!(service.process().terminate(wait::TIMEOUT).success());
    let restore = ["restore", arguments[0], arguments[1], &*backup.to_string_lossy(), "--yes"];
    let launch = service::launch(Binary::Web, &settings, &restore, &directory);
    let (status, lines) = launch.run(wait::TIMEOUT);
    assert!(status.success(), "{}", lines.join("\n"));
    let service = start();
    assert_eq!(client.at(service.address()).balance(account).await, "125.50", "that of the backup");
}
