//! A private PostgreSQL for the benchmark peer: a separate cluster in its own directory, accessible only through a Unix socket,
//! and deleted with its files when it is dropped.
//!
//! It has the configuration of Debian with full durability (`fsync`, `synchronous_commit`, `full_page_writes`, and the default
//! `wal_sync_method` on Linux, fdatasync, which SQLite also uses), and is tuned as an experienced administrator would do it
//! for this load: see `SETTINGS`.

use std::ffi::OsString;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::debian::is_root;
use crate::postgres_install::Programs;
use crate::process::{Launch, Log, Process};
use crate::wait;

/// Settings that differ from Debian's defaults, with reasons. None of them reduces durability.
///
/// | setting | why |
/// |---|---|
/// | `listen_addresses`, `unix_socket_permissions` | a Unix socket only: faster than TCP for a local client, and not accessible to other users |
/// | `max_connections` | room for every pool that is tried; 100 is the default |
/// | `shared_buffers` | all tables and indexes of a run fit in memory; 128 MB is the default |
/// | `max_wal_size`, `checkpoint_timeout` | checkpoints are rare, since every page is logged in full once after a checkpoint; 1 GB and 5 minutes are the defaults |
/// | `min_wal_size` | WAL files are kept and reused: see [`WARM_UP`] |
///
/// Tried without a benefit: `commit_delay` (slower with few busy accounts), `wal_compression`, `wal_level`
/// with `track_activities`.
const SETTINGS: [(&str, &str); 7] = [
    ("listen_addresses", ""),
    ("unix_socket_permissions", "0700"),
    ("max_connections", "200"),
    ("shared_buffers", "1GB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "30min"),
    ("min_wal_size", "2GB"),
];

/// The database user.
const USER: &str = "postonce";
/// A database that every cluster contains.
const DATABASE: &str = "postgres";
/// Maximum length of the path of a Unix socket, without the terminating zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;
const PORT: &str = "5432";

/// Brings a new cluster to the state of one that has run for some time, with a gigabyte of WAL files to overwrite. Otherwise it
/// would write each file twice, first with zeros, while all postings wait.
const WARM_UP: [&str; 2] = [
    "DO $$ BEGIN FOR file IN 1..60 LOOP
        PERFORM pg_logical_emit_message(false, '', ''), pg_switch_wal();
    END LOOP; END $$",
    // Releases the files for reuse.
    "CHECKPOINT",
];

/// The operating system user that runs the cluster.
#[derive(Debug, Clone, Copy)]
enum Runner {
    /// The user of this process.
    Same,
    /// Debian's user, by id, because PostgreSQL does not run as root.
    Postgres { user: u32, group: u32 },
}

impl Runner {
    fn of_this_process() -> Self {
        if !is_root() {
            return Self::Same;
        }
        let id = |flag: &str| {
            let output =
                Command::new("id").args([flag, "postgres"]).output().expect("`id` is on every machine");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.trim().parse().expect("PostgreSQL, which does not run as root, has a user `postgres`")
        };
        Self::Postgres { user: id("-u"), group: id("-g") }
    }

    /// Makes this user the owner of a directory.
    fn own(self, directory: &Path) {
        if let Self::Postgres { user, group } = self {
            chown(directory, Some(user), Some(group)).expect("root can change the owner of a directory");
        }
    }

    /// Returns the launch of a program as this user, without an intermediate process.
    fn launch(self, program: &Path, arguments: &[&str], directory: &Path) -> Launch {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut launch = match self {
            Self::Same => Launch::of(name, program, directory),
            Self::Postgres { user, group } => {
                let ids =
                    [format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()];
                Launch::of(name, "setpriv", directory).arguments(ids).arguments([program])
            }
        };
        // Ignores PostgreSQL variables in the environment.
        launch.hidden_prefixes = vec!["PG"];
        launch.arguments.extend(arguments.iter().map(OsString::from));
        launch
    }
}

/// A running PostgreSQL server.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    socket: TempDir,
    files: TempDir,
}

impl Postgres {
    /// Creates a cluster in a new directory below `parent_directory`, and starts it. Installs PostgreSQL first if it is missing.
    ///
    /// # Panics
    /// When PostgreSQL cannot be installed or started. The message says how to fix it.
    pub fn start(parent_directory: &Path) -> Self {
        let programs = Programs::get();
        let runner = Runner::of_this_process();
        let files = TempDir::with_prefix_in("postonce-postgres-", parent_directory).expect("a directory");
        // In a separate directory, because the path of a socket must be short.
        let socket = TempDir::with_prefix("postonce-pg-").expect("a directory");
        runner.own(files.path());
        runner.own(socket.path());
        let data = files.path().join("data");
        let data = data.to_str().expect("the directory has a name in UTF-8");
        let socket_directory = socket.path().to_str().expect("the temporary directory has a name in UTF-8");
        let socket_path_bytes = format!("{socket_directory}/.s.PGSQL.{PORT}").len();
        assert!(socket_path_bytes <= SOCKET_PATH_BYTES_MAX, "{socket_directory} is too long for a socket");

        let initdb = ["--pgdata", data, "--username", USER, "--encoding=UTF8", "--no-locale"];
        // Trusts every user who can open the socket.
        let trust = ["--auth=trust"];
        run(&runner.launch(&programs.initdb, &[&initdb[..], &trust].concat(), files.path()));

        let settings = SETTINGS.map(|(name, value)| format!("--{name}={value}"));
        let mut options = vec!["-D", data, "-k", socket_directory, "-p", PORT];
        options.extend(settings.iter().map(String::as_str));
        let mut process = Process::start(&runner.launch(&programs.postgres, &options, files.path()));
        process.wait_for_line("readiness of PostgreSQL", wait::TIMEOUT, |line| {
            line.contains("database system is ready to accept connections").then_some(())
        });

        let client = ["--no-psqlrc", "-h", socket_directory, "-p", PORT, "-U", USER, "-d", DATABASE];
        let age = WARM_UP.map(|statement| ["-v", "ON_ERROR_STOP=1", "-c", statement]).concat();
        run(&runner.launch(&programs.psql, &[&client[..], &age].concat(), files.path()));
        Self { process, socket, files }
    }

    /// Returns the connection parameters for a client, as keywords and values of libpq.
    pub fn url(&self) -> String {
        format!("host='{}' port={PORT} user={USER} dbname={DATABASE}", self.socket.path().display())
    }

    /// Returns the directory of the tables and indexes.
    pub fn tables_directory(&self) -> PathBuf {
        self.files.path().join("data").join("base")
    }

    /// Returns the id of the main process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the log of the server.
    pub fn log(&self) -> &Log {
        self.process.log()
    }
}

impl Drop for Postgres {
    /// Shuts down immediately, without further writes: the files are deleted next, and a final checkpoint would disturb later
    /// measurements.
    fn drop(&mut self) {
        if self.process.ended().is_none() {
            let pid = self.process.pid().to_string();
            let asked = Command::new("sh").args(["-c", r#"kill -QUIT "$1""#, "kill", &pid]).status();
            if asked.is_ok_and(|status| status.success()) {
                self.process.wait(wait::TIMEOUT);
            }
        }
    }
}

fn run(launch: &Launch) {
    let (status, output) = launch.run(wait::TIMEOUT);
    assert!(
        status.success(),
        "{} failed in {} (where this runs as root, the user `postgres` must be able to enter every directory \
         above): it printed\n{}",
        launch.name,
        launch.directory.display(),
        output.join("\n")
    );
}
