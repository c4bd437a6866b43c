//! For which client the current thread works: what many clients wait for is given to each in turn.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Does a piece of work for a client, which has a number. Work that it begins on other threads, or later, is for nobody.
pub fn while_serving<T>(client: u64, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(client);
    let done = work();
    CURRENT.set(before);
    done
}

/// Returns the number of the client for which the thread works; 0 if it works for none.
pub(crate) fn current_client() -> u64 {
    CURRENT.get()
}
