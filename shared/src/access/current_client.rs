//! The client on whose behalf the current thread executes, so that a shared resource can be granted to clients in turn.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Executes a function on behalf of the client with this number. What it starts on other threads, or as a task, has no client.
pub fn while_serving<T>(client: u64, work: impl FnOnce() -> T) -> T {
    let _before = Before(CURRENT.replace(client));
    work()
}

/// The client that the thread served before; it does so again when this is dropped, also by a panic.
struct Before(u64);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Returns the number of the client on whose behalf the thread executes; 0 if there is none.
pub(crate) fn current_client() -> u64 {
    CURRENT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_before_is_served_again_also_after_a_panic() {
        while_serving(1, || {
            let panicked = std::panic::catch_unwind(|| while_serving(2, || panic!("{}", current_client())));
            assert!(panicked.is_err());
            assert_eq!(current_client(), 1);
        });
        assert_eq!(current_client(), 0);
    }
}
