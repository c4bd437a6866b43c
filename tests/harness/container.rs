//! Containers of [images](crate::images), started by crun. Their processes have their own namespaces, the user, the variables
//! and the command of the image, a read-only root file system, and no capabilities or ways to get new ones.
//!
//! Crun runs in a PID namespace that ends with the process that the test started, so a container does not outlive the test
//! process. If sudo is needed, a container outlives a test process that is killed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::debian::{self, is_root};
use crate::deployment::{items, members, text, texts};
use crate::images::{HINT, Image, Images, output_of, succeed};
use crate::process::{Launch, Log, Process};
use crate::service::DRAIN_TIME_MAX;
use crate::wait;

/// Maximum time of a command in a container.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(30);
const SIGKILL: i32 = 9;
/// Exit status of a program whose child process was ended by SIGKILL: 128 plus the number of the signal.
const CHILD_KILLED: i32 = 137;
/// Name of every container. It is not ambiguous, because each container has its own list.
const NAME: &str = "container";
/// Starts crun in namespaces that end with it. Crun sets no limits here, but refuses to start if control groups of both
/// versions are mounted, so only version 2 is visible.
const START: &str = r#"mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec "$@""#;
const NAMESPACES: [&str; 6] =
    ["--mount", "--mount-proc", "--pid", "--fork", "--kill-child", "--propagation=private"];

/// Settings of a container in addition to its image.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Whether it uses the network of this machine. Otherwise it has only its own loopback.
    pub on_network_of_machine: bool,
    /// Variables that replace those of the image.
    pub variables: BTreeMap<String, String>,
    /// Files of this machine, by their paths in the container, mounted read-only.
    pub files: BTreeMap<String, PathBuf>,
}

/// A running container, which is killed when it is dropped.
#[derive(Debug)]
pub struct Container {
    process: Process,
    /// The health check of the image.
    health: Vec<String>,
    /// User and working directory of commands in the container.
    user_and_directory: [String; 2],
    /// Directory with crun's list of containers.
    state: PathBuf,
}

impl Container {
    /// Returns whether root may create namespaces and mounts on this machine. Machines that are containers may forbid it.
    pub fn can_start() -> bool {
        let unshare = debian::privileged("unshare", "unshare", HINT).arguments(NAMESPACES);
        let mount = unshare.arguments(["sh", "-ec", START, "sh", "true"]);
        mount.run(COMMAND_TIME_MAX).0.success()
    }

    /// Starts the program of an image, with new, empty volumes. `name` is used in failure messages.
    ///
    /// # Panics
    /// When it cannot be started, or the configuration of the image is incomplete.
    pub fn start(name: &str, image: &Image, start: &Start) -> Self {
        let folder = Images::shared().new_folder();
        let [bundle, state] = ["bundle", "state"].map(|name| folder.join(name));
        for folder in [&bundle, &state] {
            fs::create_dir(folder).expect("a folder for a container");
        }
        let specification = specification(image, start, &volumes(image, &folder));
        fs::write(bundle.join("config.json"), specification.to_string()).expect("a file");
        let health = match items(&image.config()["Healthcheck"]["Test"]) {
            [kind, ..] if kind == "CMD" => strings(&image.config()["Healthcheck"]["Test"]).split_off(1),
            other => panic!("no health check that needs no shell: {other:?}"),
        };
        let launch = debian::privileged(name, "unshare", HINT)
            .arguments(NAMESPACES)
            .arguments(["sh", "-ec", START, "sh"])
            .arguments(crun(&state))
            .arguments(["run", "--bundle"])
            .arguments([&bundle])
            .arguments([NAME]);
        let user_and_directory = ["/User", "/WorkingDir"].map(|name| text(image.config(), name).to_owned());
        Self { process: Process::start(&launch), health, user_and_directory, state }
    }

    /// Waits until the health check of the image succeeds.
    ///
    /// # Panics
    /// When the container ends first, or the deadline passes.
    pub fn until_healthy(&mut self) {
        let health = self.health.clone();
        let healthy = wait::block_until(wait::TIMEOUT, || match self.process.ended() {
            Some(status) => Ok(Err(status)),
            None => self.execute(&health).map(Ok),
        });
        match healthy {
            Ok(Ok(_)) => {}
            Ok(Err(status)) => panic!("it ended before it was healthy: {status}"),
            Err(output) => panic!("not healthy within {:?}: {output}", wait::TIMEOUT),
        }
    }

    /// Runs a command in the container with the user, directory and variables of its program, and returns the output.
    ///
    /// # Errors
    /// The output of a command that fails, or the reason why it cannot be started.
    pub fn execute(&self, command: &[impl Into<OsString> + Clone]) -> Result<String, String> {
        // Crun passes on only the variables of the program.
        let [user, directory] = &self.user_and_directory;
        let launch =
            self.crun("exec")?.arguments(["--no-new-privs", "--user", user, "--cwd", directory, NAME]);
        let (status, lines) = launch.arguments(command.to_vec()).run(COMMAND_TIME_MAX);
        let output = lines.join("\n");
        if status.success() { Ok(output) } else { Err(format!("{status}: {output}")) }
    }

    /// Reads a file in `/proc` about the program, such as `status`.
    ///
    /// # Panics
    /// When the program does not run.
    pub fn about_program(&self, file: &str) -> String {
        let program = first_process(self.process.pid(), 2).expect("the program runs");
        output_of(&debian::privileged("cat", "cat", HINT).arguments([format!("/proc/{program}/{file}")]))
    }

    /// Sends SIGTERM to the program, as an engine does to stop a container, and waits until it has drained, without blocking other
    /// tasks of the test.
    ///
    /// # Panics
    /// When the program does not run, ends with an error, or does not end in time.
    pub async fn drain(&mut self) {
        self.signal("TERM");
        let status = wait::until("it drains", DRAIN_TIME_MAX, async || {
            self.process.ended().ok_or_else(|| self.log().lines().join("\n"))
        })
        .await;
        self.process.wait_for_output();
        let log = self.log().lines().join("\n");
        assert!(status.success(), "{status}: {log}");
    }

    /// Sends SIGKILL to the program, and waits until the container has ended.
    ///
    /// # Panics
    /// When the program does not run.
    pub fn kill(&mut self) {
        self.signal("KILL");
        let status = self.process.wait(wait::TIMEOUT);
        assert!(!status.success(), "a killed program ends with an error");
    }

    fn signal(&self, signal: &str) {
        let kill = self.crun("kill").unwrap_or_else(|state| panic!("it cannot be ended: {state}"));
        let (status, lines) = kill.arguments([NAME, signal]).run(COMMAND_TIME_MAX);
        // The kernel kills this command too if the first process of the namespace ends before the command.
        let is_killed_with_it = status.signal() == Some(SIGKILL) || status.code() == Some(CHILD_KILLED);
        assert!(status.success() || is_killed_with_it, "crun kill: {status}: {}", lines.join("\n"));
    }

    /// Returns the log of the program.
    pub fn log(&self) -> &Log {
        self.process.log()
    }

    /// Builds a crun command in the namespaces of the crun that started the container.
    fn crun(&self, command: &str) -> Result<Launch, String> {
        let first = first_process(self.process.pid(), 1).ok_or("crun does not run")?;
        let target = format!("--target={first}");
        let launch = debian::privileged(&format!("crun {command}"), "nsenter", HINT);
        let launch = launch.arguments([&*target, "--mount", "--pid"]).arguments(crun(&self.state));
        Ok(launch.arguments([command]))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Only sudo can kill a process that sudo started. The other processes in its namespace end with it.
        if !is_root()
            && self.process.ended().is_none()
            && let Some(first) = first_process(self.process.pid(), 1)
        {
            drop(Command::new("sudo").args(["-n", "kill", "-KILL", &first.to_string()]).output());
        }
    }
}

/// Returns the common start of all crun commands.
fn crun(state: &Path) -> [OsString; 5] {
    ["crun".into(), "--root".into(), state.into(), "--cgroup-manager".into(), "disabled".into()]
}

fn strings(list: &Value) -> Vec<String> {
    texts(list).map(str::to_owned).collect()
}

/// Creates a directory for each volume of an image, by its path in the container. As in engines, it gets the owner of that
/// directory in the image.
fn volumes(image: &Image, folder: &Path) -> BTreeMap<String, PathBuf> {
    let volume = |(number, (path, _)): (usize, (&str, &Value))| {
        let volume = folder.join(format!("volume-{number}"));
        fs::create_dir(&volume).expect("a folder for a volume");
        let reference = format!("--reference={}", image.path(path).display());
        let chown = debian::privileged("chown", "chown", HINT).arguments([reference]);
        succeed(&chown.arguments([&volume]));
        (path.to_owned(), volume)
    };
    members(&image.config()["Volumes"]).enumerate().map(volume).collect()
}

/// Returns the container as a specification for the runtime.
fn specification(image: &Image, start: &Start, volumes: &BTreeMap<String, PathBuf>) -> Value {
    let config = image.config();
    let mut variables: BTreeMap<String, String> = texts(&config["Env"])
        .filter_map(|variable| variable.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    variables.extend(start.variables.clone());
    let variables: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let command = [items(&config["Entrypoint"]), items(&config["Cmd"])].concat();
    let (user, group) = text(config, "/User").split_once(':').expect("a user and a group");
    let [user, group] = [user, group].map(|id| id.parse::<u32>().expect("a number"));
    let bind = |path: &str, source: &Path, access: &str| {
        let options = ["bind", "nosuid", "nodev", access];
        json!({"destination": path, "type": "bind", "source": source, "options": options})
    };
    let of_devices = ["nosuid", "mode=755", "size=64k"];
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": of_devices}),
    ];
    mounts.extend(volumes.iter().map(|(path, source)| bind(path, source, "rw")));
    mounts.extend(start.files.iter().map(|(path, source)| bind(path, source, "ro")));
    let namespaces = ["pid", "mount", "ipc", "uts", "network"].into_iter();
    let namespaces = namespaces.filter(|kind| *kind != "network" || !start.on_network_of_machine);
    let namespaces: Vec<Value> = namespaces.map(|kind| json!({"type": kind})).collect();
    json!({
        "ociVersion": "1.0.2",
        "root": {"path": image.root(), "readonly": true},
        "process": {
            "args": command,
            "cwd": text(config, "/WorkingDir"),
            "user": {"uid": user, "gid": group},
            "env": variables,
            "capabilities": {},
            "noNewPrivileges": true,
        },
        "mounts": mounts,
        "linux": {"namespaces": namespaces},
    })
}

/// Returns the descendant that is the first process in a PID namespace this number of levels below the namespace of this process.
fn first_process(ancestor: u32, levels: usize) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{ancestor}/task/{ancestor}/children")).ok()?;
    children.split_whitespace().find_map(|child| {
        let status = fs::read_to_string(format!("/proc/{child}/status")).ok()?;
        // Its ids in the namespace of this process and in nested namespaces.
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let ids: Vec<&str> = ids.split_whitespace().skip(1).collect();
        let child = child.parse().ok()?;
        let is_found = ids.len() == levels && ids.last() == Some(&"1");
        if is_found { Some(child) } else { first_process(child, levels) }
    })
}
