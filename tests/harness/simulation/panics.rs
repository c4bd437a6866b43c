//! Captures panics of the code under test, even if they are caught. A simulation runs on one thread.

use std::cell::{Cell, RefCell};
use std::sync::Once;

thread_local! {
    static CAPTURING: Cell<bool> = const { Cell::new(false) };
    static FIRST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Starts to store panics of this thread for [`take`] instead of printing them.
pub fn start_capture() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CAPTURING.get() {
                FIRST_PANIC
                    .with_borrow_mut(|first| first.get_or_insert_with(|| info.to_string()).shrink_to_fit());
            } else {
                before(info);
            }
        }));
    });
    CAPTURING.set(true);
    FIRST_PANIC.set(None);
}

/// Returns the first panic since [`start_capture`].
pub fn take() -> Option<String> {
    FIRST_PANIC.take()
}

/// Stops the capture: panics of this thread are printed again.
pub fn stop_capture() {
    CAPTURING.set(false);
}
