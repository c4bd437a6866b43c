//! Nothing that a test starts outlives the test process, also when that is killed.
//!
//! The operating system does not end children with their parent. So one small shell per test
//! process holds the read end of a pipe: it is told which processes were born and which are gone,
//! and when the pipe closes, because the test process ended in whatever way, it kills who is left.
//!
//! A process that was started but not yet reported would escape. So each one starts as a shell that
//! waits for one line on its standard input and only then becomes the program; if the test process
//! dies in between, the line never comes and the shell ends by itself.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Reads births and deaths until the pipe closes. Ignores what a terminal sends to the whole group
/// of processes, because then it is needed most.
const REAPER: &str = r#"
trap '' INT TERM HUP
pids=' '
while read -r what pid; do
    case $what in
        born) pids="$pids$pid " ;;
        gone) case $pids in *" $pid "*) pids="${pids%% "$pid" *} ${pids#* "$pid" }" ;; esac ;;
    esac
done
for pid in $pids; do kill -KILL "$pid"; done
"#;

/// Becomes the program once it is known to the reaper.
const GATE: &str = r#"read -r word && [ "$word" = go ] && exec "$@" </dev/null"#;

/// Its input closes when this process ends, and not before.
struct Reaper(Mutex<Child>);

impl Reaper {
    fn get() -> &'static Self {
        static REAPER_OF_THIS_PROCESS: OnceLock<Reaper> = OnceLock::new();
        REAPER_OF_THIS_PROCESS.get_or_init(|| {
            let shell = Command::new("sh")
                .args(["-c", REAPER])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("a shell that ends what the tests started");
            Self(Mutex::new(shell))
        })
    }

    fn tell(&self, what: &str, pid: u32) {
        let mut shell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = shell.stdin.as_mut().expect("its input is a pipe");
        // One write each, so that lines of several threads do not mix.
        pipe.write_all(format!("{what} {pid}\n").as_bytes()).expect("the reaper listens");
    }
}

/// Starts a program that ends with this process at the latest. Its input is empty. `prepare` may
/// set its environment, its directory and where its output goes.
///
/// # Errors
/// When it cannot be started. That the program does not exist shows only as exit code 127.
pub fn spawn(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    prepare: impl FnOnce(&mut Command),
) -> std::io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", GATE, "gate"]).arg(program).args(arguments);
    prepare(&mut command);
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    Reaper::get().tell("born", child.id());
    let mut gate = child.stdin.take().expect("its input is a pipe");
    gate.write_all(b"go\n")?;
    Ok(child)
}

/// Forgets a process that has ended and was waited for, so that its id may be used again.
pub fn forget(pid: u32) {
    Reaper::get().tell("gone", pid);
}
