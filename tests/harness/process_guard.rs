//! Ends every process that a test started when the test process ends, even if it is killed, and removes its directories.
//!
//! The operating system does not end child processes with their parent. Each test process therefore starts a shell, the
//! guard, which reads the ids of started and ended processes from a pipe. When the pipe closes, because the test process has
//! ended in any way, the guard kills the remaining processes and then removes the registered directories.
//!
//! A started process that is not registered yet would not be killed. Each process therefore starts as a shell that waits for a
//! line on its standard input before it executes the program. If the test process ends before that line, the shell ends too.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use parking_lot::Mutex;

/// Reads added and removed process ids, and directories, until the pipe closes. Ignores signals that a terminal sends to the
/// whole process group, because the guard is needed then.
const GUARD: &str = r#"
trap '' INT TERM HUP
pids=' '
while read -r what which; do
    case $what in
        added) pids="$pids$which " ;;
        removed) case $pids in *" $which "*) pids="${pids%% "$which" *} ${pids#* "$which" }" ;; esac ;;
        folder) set -- "$@" "$which" ;;
    esac
done
for pid in $pids; do kill -KILL "$pid"; done
# What sudo made can only be removed by sudo.
[ $# = 0 ] || rm -rf -- "$@" || sudo -n rm -rf -- "$@"
"#;

/// Executes the program after it was registered with the guard.
const WAIT_FOR_REGISTRATION: &str = r#"read -r word && [ "$word" = go ] && exec "$@" </dev/null"#;

/// The guard of this process. Its input closes when this process ends.
struct Guard(Mutex<Child>);

impl Guard {
    fn get() -> &'static Self {
        static GUARD_OF_THIS_PROCESS: OnceLock<Guard> = OnceLock::new();
        GUARD_OF_THIS_PROCESS.get_or_init(|| {
            let shell = Command::new("sh")
                .args(["-c", GUARD])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("a shell that ends what the tests started");
            Self(Mutex::new(shell))
        })
    }

    fn send(&self, what: &str, which: impl Display) {
        let mut shell = self.0.lock();
        let pipe = shell.stdin.as_mut().expect("its input is a pipe");
        // One write per line, so that lines of several threads do not mix.
        pipe.write_all(format!("{what} {which}\n").as_bytes()).expect("the guard reads its input");
    }
}

/// Starts a program that ends at the latest with this process. Its input is empty. `prepare` may set its environment, working
/// directory and output.
///
/// # Errors
/// When the shell cannot be started. A program that does not exist exits with code 127.
pub fn spawn(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    prepare: impl FnOnce(&mut Command),
) -> std::io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", WAIT_FOR_REGISTRATION, "wait"]).arg(program).args(arguments);
    prepare(&mut command);
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    Guard::get().send("added", child.id());
    let mut input = child.stdin.take().expect("its input is a pipe");
    input.write_all(b"go\n")?;
    Ok(child)
}

/// Unregisters a process that has ended and was waited for, because its id may be reused.
pub fn unregister(pid: u32) {
    Guard::get().send("removed", pid);
}

/// Registers a directory to be removed when this process ends.
pub fn remove(folder: &Path) {
    Guard::get().send("folder", folder.display());
}
