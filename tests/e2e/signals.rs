//! Signals that do not end a process: SIGHUP makes it read secrets again, others have no effect.

use postonce_tests::prelude::*;
use postonce_tests::process::Signal;
use postonce_tests::service::{self, DRAIN_TIME_MAX, Settings};

/// What a process says that reads its secrets again.
const RELOADS: &str = "SIGHUP: reading the files with secrets and certificates again";
/// What a worker says whose supervisor was asked to.
const PASSED_ON: &str = "The supervisor received SIGHUP";
/// Starts a program in a terminal of its own, closes that terminal when the program has written a text, and prints the exit code of
/// the program.
const TERMINAL: &str = "
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
seen = b''
while sys.argv[1].encode() not in seen:
    seen += os.read(terminal, 1024)
os.close(terminal)
print('ended with', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

#[tokio::test]
async fn a_process_survives_signals_that_are_not_meant_to_end_it() {
    let mut bank = Plan::on(StoreKind::Sqlite).processes(1, 1).start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    for service in bank.webs.iter_mut().chain(&mut bank.workers) {
        for signal in [Signal::User1, Signal::User2, Signal::Alarm, Signal::Hangup] {
            service.process().signal(signal);
        }
        service.until_logged(RELOADS).await;
        assert!(service.process().ended().is_none());
    }
    client.post(account, fresh_id(), &Submission::deposit("7.00")).await;
    for service in bank.webs.iter_mut().chain(&mut bank.workers) {
        service.drain().await;
    }
}

#[tokio::test]
async fn a_supervisor_passes_on_that_secrets_are_to_be_read_again() {
    let mut bank = Plan::on(StoreKind::Sqlite).processes(1, 0).start().await;
    bank.start_worker_with(&["--scale", "1..2"]);
    bank.workers[0].process().signal(Signal::Hangup);
    bank.workers[0].until_logged(RELOADS).await;
    bank.workers[0].until_logged(PASSED_ON).await;
    bank.workers[0].drain().await;
}

#[tokio::test]
async fn a_process_drains_when_its_terminal_is_closed() {
    let settings =
        Settings::default().with("POSTONCE_BIND", "127.0.0.1:0").with("POSTONCE_WORKER_BIND", "127.0.0.1:0");
    // The first line is written before the store is opened.
    for text in ["listening on", "postonce-web"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut launch = service::launch(Binary::Web, &settings, &[], folder.path());
        let program = std::mem::replace(&mut launch.program, "python3".into());
        launch.arguments.splice(0..0, ["-c".into(), TERMINAL.into(), text.into(), program.into()]);
        let (status, printed) = launch.run(wait::TIMEOUT + DRAIN_TIME_MAX);
        assert!(status.success() && printed.contains(&"ended with 0".to_owned()), "{text}: {printed:#?}");
        let log = folder.path().join("postonce-data/postonce.db-wal");
        assert_eq!(std::fs::metadata(log).map_or(0, |log| log.len()), 0, "the store was closed");
    }
}
