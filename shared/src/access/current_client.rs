//! The client that the current thread serves, so that a shared resource can be granted to clients in turn.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Runs a function on behalf of a client. Threads and tasks that it starts have no client.
pub fn while_serving<T>(client: u64, work: impl FnOnce() -> T) -> T {
    let _before = Before(CURRENT.replace(client));
    work()
}

/// Restores the previous client of the thread on drop, also after a panic.
struct Before(u64);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Returns the number of the client that the thread serves; 0 if there is none.
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
