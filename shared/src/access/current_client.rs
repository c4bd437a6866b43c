//! The client on whose behalf the current thread executes, so that a shared resource can be granted to clients in turn.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Executes a function on behalf of the client with this number. What it starts on other threads, or as a task, has no client.
pub fn while_serving<T>(client: u64, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(client);
    let done = work();
    CURRENT.set(before);
    done
}

/// Returns the number of the client on whose behalf the thread executes; 0 if there is none.
pub(crate) fn current_client() -> u64 {
    CURRENT.get()
}
