//! The message of a panic that was caught.

use std::any::Any;

/// Returns the message of a panic, if it is a text, which it is for each macro of the standard library.
pub fn panic_text(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}
