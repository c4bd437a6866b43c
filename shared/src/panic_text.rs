//! Extracts the message of a caught panic.

use std::any::Any;

/// Returns the message of a panic if it is a string. The macros of the standard library always produce one.
pub fn panic_text(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}
