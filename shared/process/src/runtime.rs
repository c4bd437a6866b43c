//! The asynchronous runtime of a program.

use std::io;
use std::time::Duration;

use tokio::runtime::Runtime;

/// Maximum time for which the end of a program waits for blocking operations, such as a write to an unresponsive file system.
const BLOCKING_TIME_MAX: Duration = Duration::from_secs(1);

/// Runs a program on a new runtime, and shuts the runtime down.
///
/// # Errors
/// Fails if the system lacks the resources for a runtime.
pub fn block_on<T>(program: impl Future<Output = T>) -> io::Result<T> {
    let runtime = Runtime::new()?;
    let ended = runtime.block_on(program);
    runtime.shutdown_timeout(BLOCKING_TIME_MAX);
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_program_ends_although_an_operation_blocks() {
        let (release, released) = mpsc::channel::<()>();
        let (sender, ended) = mpsc::channel();
        let program = thread::spawn(move || {
            let program = async {
                drop(tokio::task::spawn_blocking(move || released.recv()));
                7
            };
            sender.send(block_on(program).unwrap()).unwrap();
        });
        assert_eq!(ended.recv_timeout(BLOCKING_TIME_MAX * 10), Ok(7));
        program.join().unwrap();
        drop(release);
    }
}
