//! A private PostgreSQL, for the peer that the benchmark compares the bank with: a cluster of its own in
//! a directory of its own, reached only through a Unix socket, gone with its files when it is dropped.
//!
//! Configured as Debian ships it, with full durability (`fsync`, `synchronous_commit`,
//! `full_page_writes`, and `wal_sync_method` at its default on Linux, fdatasync, the same call that SQLite
//! makes), and what an able administrator sets for this work: see [`SETTINGS`].

use std::ffi::OsString;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::postgres_install::{Programs, is_root};
use crate::process::{Launch, Log, Process};
use crate::wait;

/// What is set besides Debian's defaults, and why. None of it gives up durability.
///
/// | setting | why |
/// |---|---|
/// | `listen_addresses`, `unix_socket_permissions` | a Unix socket only: faster than TCP for a client on the same machine, and nobody else's |
/// | `max_connections` | room for every pool that is tried; 100 is the default |
/// | `shared_buffers` | all tables and indexes of a run stay in memory; 128 MB is the default |
/// | `max_wal_size`, `checkpoint_timeout` | checkpoints, after which every page is logged in full once more, come seldom; 1 GB and 5 minutes are the defaults |
/// | `min_wal_size` | files of the log are kept and used again: see [`AGE`] |
///
/// Tried and left as they are, because nothing got better: `commit_delay` (worse where few accounts are
/// busy), `wal_compression`, `wal_level` with `track_activities`.
const SETTINGS: [(&str, &str); 7] = [
    ("listen_addresses", ""),
    ("unix_socket_permissions", "0700"),
    ("max_connections", "200"),
    ("shared_buffers", "1GB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "30min"),
    ("min_wal_size", "2GB"),
];

/// The user of the database, who owns it.
const USER: &str = "postonce";
/// The database that every cluster has.
const DATABASE: &str = "postgres";
/// Longest path of a Unix socket, without the zero at its end.
const SOCKET_PATH_BYTES_MAX: usize = 107;
const PORT: &str = "5432";

/// Gives a new cluster what one has that has run for a while: a gigabyte of files for its log, which it
/// overwrites. Without them it would write each file twice, full of zeros first, while all postings wait.
const AGE: [&str; 2] = [
    "DO $$ BEGIN FOR file IN 1..60 LOOP
        PERFORM pg_logical_emit_message(false, '', ''), pg_switch_wal();
    END LOOP; END $$",
    // Lets go of the files, for use as the next ones.
    "CHECKPOINT",
];

/// Who runs the cluster.
#[derive(Debug, Clone, Copy)]
enum Runner {
    /// Whoever runs this process.
    Same,
    /// Debian's user for it, by id: PostgreSQL does not run as root.
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

    /// Gives it a directory that only it can enter (and root).
    fn own(self, directory: &Path) {
        if let Self::Postgres { user, group } = self {
            chown(directory, Some(user), Some(group)).expect("root can give a directory away");
        }
    }

    /// What it runs. The process keeps its id: nothing stays between it and this one.
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
        // What a client of another PostgreSQL has set here is not for this one.
        launch.hidden_prefixes = vec!["PG"];
        launch.arguments.extend(arguments.iter().map(OsString::from));
        launch
    }
}

/// A running PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    socket: TempDir,
    _files: TempDir,
}

impl Postgres {
    /// Makes a cluster in a new directory below this one, and starts it. PostgreSQL is installed first
    /// where there is none.
    ///
    /// # Panics
    /// When that does not work, with what to do about it.
    pub fn start(parent_directory: &Path) -> Self {
        let programs = Programs::get();
        let runner = Runner::of_this_process();
        let files = TempDir::with_prefix_in("postonce-postgres-", parent_directory).expect("a directory");
        // Not beside the files: the path of a socket must be short.
        let socket = TempDir::with_prefix("postonce-pg-").expect("a directory");
        runner.own(files.path());
        runner.own(socket.path());
        let data = files.path().join("data");
        let data = data.to_str().expect("the directory has a name in UTF-8");
        let socket_directory = socket.path().to_str().expect("the temporary directory has a name in UTF-8");
        let socket_path_bytes = format!("{socket_directory}/.s.PGSQL.{PORT}").len();
        assert!(socket_path_bytes <= SOCKET_PATH_BYTES_MAX, "{socket_directory} is too long for a socket");

        let initdb = ["--pgdata", data, "--username", USER, "--encoding=UTF8", "--no-locale"];
        // Who can reach the socket is let in.
        let trust = ["--auth=trust"];
        run(&runner.launch(&programs.initdb, &[&initdb[..], &trust].concat(), files.path()));

        let settings = SETTINGS.map(|(name, value)| format!("--{name}={value}"));
        let mut options = vec!["-D", data, "-k", socket_directory, "-p", PORT];
        options.extend(settings.iter().map(String::as_str));
        let mut process = Process::start(&runner.launch(&programs.postgres, &options, files.path()));
        process.wait_for_line("readiness of PostgreSQL", wait::PATIENCE, |line| {
            line.contains("database system is ready to accept connections").then_some(())
        });

        let client = ["--no-psqlrc", "-h", socket_directory, "-p", PORT, "-U", USER, "-d", DATABASE];
        let age = AGE.map(|statement| ["-v", "ON_ERROR_STOP=1", "-c", statement]).concat();
        run(&runner.launch(&programs.psql, &[&client[..], &age].concat(), files.path()));
        Self { process, socket, _files: files }
    }

    /// How a client reaches it, as keywords and values of libpq.
    pub fn url(&self) -> String {
        format!("host='{}' port={PORT} user={USER} dbname={DATABASE}", self.socket.path().display())
    }

    /// The id of the process that started all its others.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it wrote.
    pub fn log(&self) -> &Log {
        self.process.log()
    }
}

impl Drop for Postgres {
    /// An immediate shutdown: it ends its processes and gives its memory back, but writes nothing more. The
    /// files are deleted next, and a last checkpoint would only disturb what is measured after it.
    fn drop(&mut self) {
        if self.process.ended().is_none() {
            let pid = self.process.pid().to_string();
            let asked = Command::new("sh").args(["-c", r#"kill -QUIT "$1""#, "kill", &pid]).status();
            if asked.is_ok_and(|status| status.success()) {
                self.process.wait(wait::PATIENCE);
            }
        }
    }
}

/// Runs a program to its end.
fn run(launch: &Launch) {
    let mut process = Process::start(launch);
    let status = process.wait(wait::PATIENCE);
    process.wait_for_output();
    assert!(
        status.success(),
        "{} failed in {} (where this runs as root, the user `postgres` must be able to enter every directory \
         above): it said\n{}",
        launch.name,
        launch.directory.display(),
        process.log().lines().join("\n")
    );
}
