//! Notices panics of the code under test, wherever they are caught: a simulation runs on one thread.

use std::cell::{Cell, RefCell};
use std::sync::Once;

thread_local! {
    static LISTENING: Cell<bool> = const { Cell::new(false) };
    static HEARD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on panics of this thread are kept for [`take`], and not printed.
pub fn listen() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if LISTENING.get() {
                HEARD.with_borrow_mut(|heard| heard.get_or_insert_with(|| info.to_string()).shrink_to_fit());
            } else {
                before(info);
            }
        }));
    });
    LISTENING.set(true);
    HEARD.set(None);
}

/// The first panic since [`listen`].
pub fn take() -> Option<String> {
    HEARD.take()
}

/// From now on they are printed again.
pub fn rest() {
    LISTENING.set(false);
}
